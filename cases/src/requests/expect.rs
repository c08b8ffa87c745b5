//! What has to come of a request.

use serde::Deserialize;

use crate::error::CaseError;

/// `expect` as the files write it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawExpect {
    result: Option<String>,
    status: Option<u16>,
    error_body: Option<String>,
    error_param: Option<String>,
    body: Option<String>,
    prefix: Option<String>,
    streaming: Option<bool>,
    load_units: Option<u32>,
    allowed_pods: Option<Vec<String>>,
    must_not: Option<Vec<String>>,
    notes: Option<Vec<String>>,
}

/// One thing to check. A level that can't see it leaves it to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// The request ends in one of these ways.
    Result(Vec<Ending>),
    /// The answer is an error in an API's envelope.
    ErrorBody,
    /// The error names this parameter.
    ErrorParam(String),
    /// The pod gets body, query and headers as they were sent.
    Untouched,
    /// Whether prefix knowledge is used.
    Prefix(Prefix),
    /// Whether the answer is taken for a stream.
    Streaming(bool),
    /// Load that the request books.
    LoadUnits(u32),
    /// Only these pods may get it.
    AllowedPods(Vec<String>),
    /// The pod sees a path that ends so.
    PathEnds(String),
    /// None of the values of the client's own routing headers reaches a pod.
    NoClientValues,
    /// None of these addresses is ever named to a pod or connected to.
    NoAddress(Vec<String>),
    /// The client's view of an answer has nothing that the pod did not say.
    NothingTold,
    /// With an index in which `pod` holds the first `ids` token ids in blocks of `block`, `pick` is picked with `tokens` matched.
    Seeded(Seeded),
    /// `100 Continue` comes within a second.
    Continues,
    /// The same prompt as the body in one piece, without mark and coding; or load alone.
    LikePlain,
}

/// Numbers of [`Check::Seeded`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seeded {
    pub(crate) ids: usize,
    pub(crate) block: usize,
    pub(crate) pod: String,
    pub(crate) pick: String,
    pub(crate) tokens: u32,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Forwarded to a pod of the right pool.
    Route,
    /// Forwarded without a look at the body, and not counted.
    PassThrough,
    /// The router answers with this status, or with any when there is none.
    Reject(Option<u16>),
}

/// Whether prefix knowledge is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// The prompt's identity must be derived.
    Use,
    /// Either.
    May,
    /// It must not.
    None,
}

impl Check {
    /// Its name in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Result(_) => "result",
            Self::ErrorBody => "error_body",
            Self::ErrorParam(_) => "error_param",
            Self::Untouched => "body",
            Self::Prefix(_) => "prefix",
            Self::Streaming(_) => "streaming",
            Self::LoadUnits(_) => "load_units",
            Self::AllowedPods(_) => "allowed_pods",
            Self::PathEnds(_) => "path at the pod",
            Self::NoClientValues => "must_not (client's values)",
            Self::NoAddress(_) => "must_not (connections)",
            Self::NothingTold => "must_not (cache facts)",
            Self::Seeded(_) => "seeded index",
            Self::Continues => "100 Continue",
            Self::LikePlain => "identity of the plain body",
        }
    }
}

impl RawExpect {
    /// Everything that is to be checked.
    ///
    /// # Errors
    /// A word that has no meaning here.
    pub(super) fn checks(&self) -> Result<Vec<Check>, CaseError> {
        let mut checks = Vec::new();
        if let Some(result) = &self.result {
            checks.push(Check::Result(endings(result, self.status)?));
        } else if let Some(status) = self.status {
            checks.push(Check::Result(vec![Ending::Reject(Some(status))]));
        } else {
            return Err(CaseError::not_understood("an `expect` without `result`"));
        }
        if let Some(text) = &self.error_body {
            if !text.starts_with("OpenAI error envelope") {
                return Err(CaseError::not_understood(format!("error_body {text:?}")));
            }
            checks.push(Check::ErrorBody);
        }
        if let Some(param) = &self.error_param {
            checks.push(Check::ErrorParam(param.clone()));
        }
        match self.body.as_deref() {
            None => {}
            Some("untouched") => checks.push(Check::Untouched),
            Some(other) => return Err(CaseError::not_understood(format!("body {other:?}"))),
        }
        if let Some(prefix) = &self.prefix {
            checks.push(Check::Prefix(match prefix.as_str() {
                "use" => Prefix::Use,
                "may" => Prefix::May,
                "none" => Prefix::None,
                _ => return Err(CaseError::not_understood(format!("prefix {prefix:?}"))),
            }));
        }
        checks.extend(self.streaming.map(Check::Streaming));
        checks.extend(self.load_units.map(Check::LoadUnits));
        checks.extend(self.allowed_pods.clone().map(Check::AllowedPods));
        for text in self.must_not.iter().flatten() {
            checks.push(must_not(text)?);
        }
        // Notes are for people. What some of them say can be checked.
        checks.extend(
            self.notes
                .iter()
                .flatten()
                .filter_map(|note| note_check(note)),
        );
        Ok(checks)
    }
}

/// `route`, `reject`, `pass_through` or a status; several with "or" between them.
fn endings(result: &str, status: Option<u16>) -> Result<Vec<Ending>, CaseError> {
    let word = |word: &str| match word.trim() {
        "route" => Ok(Ending::Route),
        "pass_through" => Ok(Ending::PassThrough),
        "reject" => Ok(Ending::Reject(status)),
        other => match other.parse() {
            Ok(status) => Ok(Ending::Reject(Some(status))),
            Err(_) => Err(CaseError::not_understood(format!("result {result:?}"))),
        },
    };
    result.split(" or ").map(word).collect()
}

fn must_not(text: &str) -> Result<Check, CaseError> {
    if let Some(addresses) = text.strip_prefix("upstream connection to ") {
        let addresses = addresses.split(" or ").map(|part| part.trim().to_owned());
        return Ok(Check::NoAddress(addresses.collect()));
    }
    if text.contains("client values reaching a pod") {
        return Ok(Check::NoClientValues);
    }
    if text.contains("tells the client about cache") {
        return Ok(Check::NothingTold);
    }
    Err(CaseError::not_understood(format!("must_not {text:?}")))
}

fn note_check(note: &str) -> Option<Check> {
    if let Some(end) = note.strip_prefix(":path at the pod still ends in ") {
        return Some(Check::PathEnds(end.to_owned()));
    }
    seeded(note).map(Check::Seeded)
}

/// `index seeded with blocks of the first 32 ids (block size 4) on pod b: pick b, 32 tokens matched, ...`
fn seeded(note: &str) -> Option<Seeded> {
    let rest = note.strip_prefix("index seeded with blocks of the first ")?;
    let (ids, rest) = rest.split_once(" ids (block size ")?;
    let (block, rest) = rest.split_once(") on pod ")?;
    let (pod, rest) = rest.split_once(": pick ")?;
    let (pick, rest) = rest.split_once(", ")?;
    let (tokens, _) = rest.split_once(" tokens matched")?;
    Some(Seeded {
        ids: ids.parse().ok()?,
        block: block.parse().ok()?,
        pod: pod.to_owned(),
        pick: pick.to_owned(),
        tokens: tokens.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(json: &str) -> Result<Vec<Check>, CaseError> {
        serde_json::from_str::<RawExpect>(json)?.checks()
    }

    #[test]
    fn results_may_have_alternatives() {
        let result = |text: &str| checks(&format!(r#"{{"result": "{text}"}}"#)).unwrap();
        let either = vec![Ending::Route, Ending::Reject(Some(400))];
        assert_eq!(result("route or 400"), [Check::Result(either)]);
        assert_eq!(
            checks(r#"{"result": "reject", "status": 413}"#).unwrap(),
            [Check::Result(vec![Ending::Reject(Some(413))])]
        );
    }

    #[test]
    fn words_that_are_not_known_are_errors() {
        for json in [
            r#"{"result": "drop"}"#,
            r#"{"result": "route", "prefix": "maybe"}"#,
            r#"{"result": "route", "body": "shortened"}"#,
            r#"{"result": "route", "must_not": ["sleep"]}"#,
            r#"{"result": "reject", "error_body": "a plain text"}"#,
            r#"{"result": "route", "latency": 1}"#,
            r#"{"prefix": "use"}"#,
        ] {
            assert!(checks(json).is_err(), "{json}");
        }
    }

    #[test]
    fn notes_that_can_be_checked_are() {
        let note = "index seeded with blocks of the first 32 ids (block size 4) on pod b: pick b, 32 tokens matched, the partial block never counts";
        let wanted = Seeded {
            ids: 32,
            block: 4,
            pod: "b".to_owned(),
            pick: "b".to_owned(),
            tokens: 32,
        };
        assert_eq!(note_check(note), Some(Check::Seeded(wanted)));
        assert_eq!(
            note_check(":path at the pod still ends in ?beta=true"),
            Some(Check::PathEnds("?beta=true".to_owned()))
        );
        assert_eq!(note_check("one pod takes the whole batch"), None);
    }
}
