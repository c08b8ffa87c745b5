//! What a request's headers say of how it is to be served.
//!
//! ```text
//!  policy, profiles ─► Wanted ─ read(headers) ─► Said ─► Wishes of a decision
//! ```
//!
//! Headers are gone through once. Values are bounded, and what can't be understood counts as absent: these are wishes, so that nothing is
//! refused for them.

use super::Wishes;
use crate::{
    admission::Objectives, admission::WhenMissed, mode::session_of, proto, schedule::Profiles,
};

/// Target for the time to the first token, in ms, and its older name.
pub const TTFT_HEADERS: [&str; 2] = ["x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"];
/// Target for the time of each token after it, in ms, and its older name.
pub const TPOT_HEADERS: [&str; 2] = ["x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"];
/// Names the objective, and its older name.
pub const OBJECTIVE_HEADERS: [&str; 2] = [
    "x-llm-d-inference-objective",
    "x-gateway-inference-objective",
];
/// Names the tenant, and its older name.
pub const TENANT_HEADERS: [&str; 2] = [
    "x-llm-d-inference-fairness-id",
    "x-gateway-inference-fairness-id",
];
/// Longest value that is read; a longer one counts as absent.
pub const MAX_VALUE_BYTES: usize = 1024;
/// Most headers that profiles are told of; more are left out.
pub const MAX_HEADERS: usize = 64;
/// Targets above this are none.
const MAX_TARGET_MS: f64 = 1e9;

/// What of a request's headers matters, by the policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Names the session; empty = none does.
    session_header: String,
    /// Likewise, where no header does.
    session_cookie: String,
    /// Asked for by filters and scorers; names in lower case.
    headers: Vec<String>,
    objectives: Objectives,
}

/// What a request's headers say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// What names the session, as a hash.
    pub session: Option<u64>,
    /// Time to the first token that is wanted, in ms.
    pub ttft_ms: Option<f64>,
    /// Time for each token after it, in ms.
    pub tpot_ms: Option<f64>,
    /// When no endpoint is expected to meet the first.
    pub when_missed: WhenMissed,
    /// Greater goes first.
    pub priority: i32,
    /// Whose it is, as a hash; requests that don't say it are one tenant's.
    pub tenant: u64,
    /// Headers that a profile asks for, names in lower case.
    pub headers: Vec<(String, String)>,
}

/// A header and its older name, which counts where the other is absent.
#[derive(Clone, Copy, Debug, Default)]
struct Pair<'h>([Option<&'h str>; 2]);

impl<'h> Pair<'h> {
    /// Keeps the first value of each name.
    fn take(&mut self, names: [&str; 2], name: &str, value: &'h str) {
        for (of, kept) in names.into_iter().zip(&mut self.0) {
            if of == name && kept.is_none() {
                *kept = Some(value);
            }
        }
    }

    fn value(self) -> Option<&'h str> {
        let [name, alias] = self.0;
        name.or(alias)
    }

    fn target_ms(self) -> Option<f64> {
        let ms: f64 = self.value()?.trim().parse().ok()?;
        (ms > 0.0 && ms <= MAX_TARGET_MS).then_some(ms)
    }
}

impl Wanted {
    /// What matters under a policy and its profiles.
    pub fn new(policy: &proto::Policy, profiles: &Profiles) -> Self {
        let mut headers = profiles.headers();
        headers.truncate(MAX_HEADERS);
        Self {
            session_header: policy.session_header.to_ascii_lowercase(),
            session_cookie: policy.session_cookie.clone(),
            headers,
            objectives: Objectives::of(policy),
        }
    }

    /// Reads headers, names in lower case.
    pub fn read<'h>(&self, headers: impl Iterator<Item = (&'h [u8], &'h [u8])>) -> Said {
        let text = |bytes: &'h [u8]| core::str::from_utf8(bytes).ok();
        let mut said = Said::default();
        let (mut session, mut cookie) = (None, None);
        let (mut ttft, mut tpot) = (Pair::default(), Pair::default());
        let (mut objective, mut tenant) = (Pair::default(), Pair::default());
        for (name, value) in headers {
            if value.is_empty() || value.len() > MAX_VALUE_BYTES && name != b"cookie" {
                continue;
            }
            let (Some(name), Some(value)) = (text(name), text(value)) else {
                continue;
            };
            if name.starts_with("x-") {
                ttft.take(TTFT_HEADERS, name, value);
                tpot.take(TPOT_HEADERS, name, value);
                objective.take(OBJECTIVE_HEADERS, name, value);
                tenant.take(TENANT_HEADERS, name, value);
            }
            if name == self.session_header {
                session = session.or(Some(value));
            }
            if name == "cookie" && !self.session_cookie.is_empty() {
                cookie = cookie.or_else(|| cookie_of(value, &self.session_cookie));
            }
            let is_known = || said.headers.iter().any(|(known, _)| known == name);
            if self.headers.iter().any(|wanted| wanted == name) && !is_known() {
                said.headers.push((name.to_owned(), value.to_owned()));
            }
        }
        said.session = session.or(cookie).map(session_of);
        let objective = objective.value().map(|name| self.objectives.get(name));
        let objective = objective.unwrap_or_default();
        said.ttft_ms = ttft.target_ms().or(objective.ttft_ms);
        said.tpot_ms = tpot.target_ms().or(objective.tpot_ms);
        said.when_missed = objective.when_missed;
        said.priority = objective.priority;
        said.tenant = tenant.value().map_or(0, session_of);
        said
    }
}

impl Said {
    /// As wishes of a decision; how much may be generated is said elsewhere.
    pub fn wishes(&self) -> Wishes<'_> {
        Wishes {
            output_tokens: None,
            session: self.session,
            ttft_ms: self.ttft_ms,
            tpot_ms: self.tpot_ms,
            when_missed: self.when_missed,
            headers: &self.headers,
        }
    }
}

/// The value of a cookie in a `cookie` header (RFC 6265: `name=value; name=value`).
fn cookie_of<'h>(header: &'h str, name: &str) -> Option<&'h str> {
    let mut pairs = header.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(of, _)| of.trim() == name)?;
    let value = value.trim();
    let value = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'))
        .unwrap_or(value);
    (!value.is_empty() && value.len() <= MAX_VALUE_BYTES).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(headers: &[&str]) -> Wanted {
        Wanted {
            session_header: "x-session".to_owned(),
            session_cookie: "sid".to_owned(),
            headers: headers.iter().map(|&name| name.to_owned()).collect(),
            objectives: Objectives::default(),
        }
    }

    fn read(wanted: &Wanted, headers: &[(&str, &str)]) -> Said {
        let pairs = headers.iter();
        wanted.read(pairs.map(|(name, value)| (name.as_bytes(), value.as_bytes())))
    }

    #[test]
    fn sessions_are_named_by_the_header_and_else_by_the_cookie() {
        let wanted = wanted(&[]);
        let session = |headers: &[(&str, &str)]| read(&wanted, headers).session;
        let (a, b) = (Some(session_of("a")), Some(session_of("b")));
        assert_eq!(session(&[("x-session", "a"), ("cookie", "sid=b")]), a);
        assert_eq!(session(&[("cookie", "x=1; sid=b; sid=c")]), b);
        assert_eq!(session(&[("cookie", "x=1"), ("cookie", "sid=\"b\"")]), b);
        assert_eq!(session(&[("x-session", ""), ("cookie", "sid=")]), None);
        assert_eq!(session(&[("cookie", "xsid=b")]), None);
        let none = Wanted::default();
        assert_eq!(read(&none, &[("cookie", "=b")]).session, None);
    }

    #[test]
    fn targets_are_positive_numbers_and_older_names_count_where_the_newer_are_absent() {
        let wanted = Wanted::default();
        let of = |headers: &[(&str, &str)]| {
            let said = read(&wanted, headers);
            (said.ttft_ms, said.tpot_ms)
        };
        let [ttft, old_ttft] = TTFT_HEADERS;
        let [tpot, old_tpot] = TPOT_HEADERS;
        let both = [(old_ttft, "9"), (ttft, " 250 "), (old_tpot, "12.5")];
        assert_eq!(of(&both), (Some(250.0), Some(12.5)));
        for bad in ["", "0", "-1", "nan", "inf", "1e10", "soon"] {
            assert_eq!(of(&[(ttft, bad), (tpot, bad)]), (None, None), "{bad}");
        }
    }

    #[test]
    fn an_objective_stands_in_for_targets_that_headers_do_not_name() {
        let objective = |name: &str, priority, when_missed: &str| proto::Objective {
            name: name.to_owned(),
            priority,
            ttft_ms: Some(400.0),
            tpot_ms: Some(40.0),
            when_missed: when_missed.to_owned(),
        };
        let policy = proto::Policy {
            objectives: vec![objective("chat", 7, "queue"), objective("bulk", -7, "")],
            ..proto::Policy::default()
        };
        let wanted = Wanted::new(&policy, &Profiles::default());
        let of = |headers: &[(&str, &str)]| read(&wanted, headers);
        let [name, alias] = OBJECTIVE_HEADERS;
        let chat = of(&[(name, "chat"), (alias, "bulk"), (TTFT_HEADERS[0], "90")]);
        assert_eq!((chat.priority, chat.when_missed), (7, WhenMissed::Queue));
        assert_eq!((chat.ttft_ms, chat.tpot_ms), (Some(90.0), Some(40.0)));
        assert_eq!(of(&[(alias, "bulk")]).priority, -7);
        assert_eq!(of(&[(name, "nobody")]), Said::default());
        let tenant = |value| of(&[(TENANT_HEADERS[0], value)]).tenant;
        assert_eq!(tenant("a"), of(&[(TENANT_HEADERS[1], "a")]).tenant);
        assert_ne!(tenant("a"), tenant("b"));
    }

    #[test]
    fn headers_that_profiles_ask_for_are_kept_within_bounds() {
        let wanted = wanted(&["x-zone", "x-long", "x-raw"]);
        let long = "v".repeat(MAX_VALUE_BYTES + 1);
        let headers: [(&[u8], &[u8]); 5] = [
            (b"x-zone", b"1"),
            (b"x-zone", b"2"),
            (b"x-other", b"3"),
            (b"x-long", long.as_bytes()),
            (b"x-raw", b"\xff"),
        ];
        let said = wanted.read(headers.into_iter());
        assert_eq!(said.headers, [("x-zone".to_owned(), "1".to_owned())]);
        assert_eq!(said.wishes().headers.len(), 1);
    }
}
