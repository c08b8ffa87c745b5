//! Holding what was seen against what has to be.

use serde_json::Value;

use super::expect::{Check, Ending, Prefix};
use super::file::Input;
use super::request::{ROUTER_OWNED, Request};
use super::seen::{Answer, Fate, Identity, Seen, Upstream};
use crate::error::CaseError;

/// Growth of a filter's memory that any request may cause, besides twice its body.
const MAX_GROWTH_BYTES: usize = 1 << 20;
/// Values shorter than this may be equal by chance.
const MIN_TELLING_BYTES: usize = 4;

/// What came of a check.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It holds.
    Held,
    /// The level can't see it.
    Unseen,
    /// It does not hold.
    Failed(CaseError),
}

/// Holds everything that needs no other request.
pub(crate) fn check(check: &Check, input: &Input, seen: &Seen) -> Outcome {
    let result = match check {
        Check::Result(endings) => result(endings, input, seen),
        Check::ErrorBody => answer(seen).and_then(|answer| error_body(answer).map(|_| ())),
        Check::ErrorParam(param) => answer(seen).and_then(|answer| error_param(answer, param)),
        Check::Untouched => upstream(seen).and_then(|upstream| untouched(&input.request, upstream)),
        Check::Prefix(Prefix::May) => Ok(()),
        Check::Prefix(prefix) => of(seen.identity.as_ref()).and_then(|id| uses(*prefix, id)),
        Check::Streaming(wanted) => {
            of(seen.is_streamed).and_then(|is| same("streaming", wanted, &is))
        }
        Check::LoadUnits(wanted) => {
            of(seen.load_units).and_then(|units| same("load units", wanted, &units))
        }
        Check::AllowedPods(allowed) => allowed_pods(allowed, &seen.fate),
        Check::PathEnds(end) => upstream(seen).and_then(|upstream| {
            let path = &upstream.path;
            holds(path.ends_with(end.as_str()), "path at the pod", end, path)
        }),
        Check::NoClientValues => {
            upstream(seen).and_then(|upstream| no_client_values(&input.request, upstream))
        }
        Check::NoAddress(addresses) => {
            upstream(seen).and_then(|upstream| no_address(addresses, upstream))
        }
        Check::NothingTold => of(seen.added_headers.as_ref()).and_then(|added| {
            holds(
                added.is_empty(),
                "headers that the pod did not send",
                "none",
                &format!("{added:?}"),
            )
        }),
        Check::Continues => of(seen.continued).and_then(|is| same("100 Continue", &true, &is)),
        // These need another request.
        Check::Seeded(_) | Check::LikePlain => Err(Failure::Unseen),
    };
    match result {
        Ok(()) => Outcome::Held,
        Err(Failure::Unseen) => Outcome::Unseen,
        Err(Failure::Wrong(error)) => Outcome::Failed(error),
    }
}

/// What holds of every request: nothing stays booked, and memory is bounded.
pub(crate) fn invariants(request: &Request, seen: &Seen) -> Result<(), CaseError> {
    if let Some(left @ 1..) = seen.left_over {
        return Err(CaseError::mismatch("load after the end", &0, &left));
    }
    let most = 2 * request.body().len() + MAX_GROWTH_BYTES;
    match seen.grown_bytes {
        Some(grown) if grown > most => Err(CaseError::mismatch(
            "bytes that the filter's memory grew by",
            &format!("at most {most}"),
            &grown,
        )),
        _ => Ok(()),
    }
}

enum Failure {
    Unseen,
    Wrong(CaseError),
}

type Result<T, E = Failure> = core::result::Result<T, E>;

fn of<T>(value: Option<T>) -> Result<T> {
    value.ok_or(Failure::Unseen)
}

fn holds(is_so: bool, what: &str, wanted: &str, got: &str) -> Result<()> {
    if is_so {
        Ok(())
    } else {
        Err(Failure::Wrong(CaseError::mismatch(what, &wanted, &got)))
    }
}

fn same<T: PartialEq + core::fmt::Display>(what: &str, wanted: &T, got: &T) -> Result<()> {
    holds(wanted == got, what, &wanted.to_string(), &got.to_string())
}

fn result(endings: &[Ending], input: &Input, seen: &Seen) -> Result<()> {
    let is_so = endings.iter().any(|ending| match (ending, &seen.fate) {
        (Ending::Route, Fate::Routed(pods)) => {
            let model = input.request.model();
            let pool = input.setup.pods_for(model.as_deref());
            !pods.is_empty() && pods.iter().all(|pod| pool.contains(&pod.as_str()))
        }
        // What is no inference call, or comes before anything is known, goes wherever the proxy's own policy sends it.
        (Ending::Route, Fate::Passed) => !input.setup.is_known || input.request.api().is_none(),
        (Ending::PassThrough, Fate::Passed) => seen.load_units.unwrap_or(0) == 0,
        (Ending::Reject(status), Fate::Answered(answer)) => {
            status.is_none_or(|status| status == answer.status)
        }
        _ => false,
    });
    let got = match &seen.fate {
        Fate::Answered(answer) => {
            let body = String::from_utf8_lossy(&answer.body);
            format!("answer {} {body:.200}", answer.status)
        }
        other => format!("{other:?}"),
    };
    holds(is_so, "result", &format!("{endings:?}"), &got)
}

fn answer(seen: &Seen) -> Result<&Answer> {
    match &seen.fate {
        Fate::Answered(answer) => Ok(answer),
        other => Err(Failure::Wrong(CaseError::mismatch(
            "answer",
            &"the router's",
            &format!("{other:?}"),
        ))),
    }
}

/// The error object of an OpenAI envelope.
fn error_body(answer: &Answer) -> Result<Value> {
    let is_type = |header: &&(String, String)| header.0 == "content-type";
    let content_type = answer.headers.iter().find(is_type);
    let content_type = content_type.map_or("none", |header| header.1.as_str());
    same("content-type", &"application/json", &content_type)?;
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let error = body.get("error").cloned().unwrap_or_default();
    let has = |key: &str| error.get(key).is_some();
    let is_whole = ["message", "type", "param", "code"].into_iter().all(has);
    let is_told = |key: &str| error.get(key).is_some_and(Value::is_string);
    holds(
        is_whole && is_told("message") && is_told("type"),
        "error body",
        "error.message, error.type, error.param, error.code",
        &body.to_string(),
    )?;
    Ok(error)
}

fn error_param(answer: &Answer, param: &str) -> Result<()> {
    let error = error_body(answer)?;
    let got = error.get("param").and_then(Value::as_str);
    holds(
        got == Some(param),
        "error.param",
        param,
        &format!("{got:?}"),
    )
}

fn upstream(seen: &Seen) -> Result<&Upstream> {
    of(seen.upstream.as_ref())
}

fn untouched(request: &Request, upstream: &Upstream) -> Result<()> {
    let sent = request.body();
    let at = sent.iter().zip(&upstream.body).position(|(a, b)| a != b);
    holds(
        sent == upstream.body,
        "body at the pod",
        &format!("{} bytes as sent", sent.len()),
        &format!(
            "{} bytes, different from byte {at:?} on",
            upstream.body.len()
        ),
    )?;
    same("path at the pod", &request.path, &upstream.path)?;
    for (name, value) in request.sent_headers() {
        // Hop by hop, or a router's: those have checks of their own.
        let is_theirs = ROUTER_OWNED.contains(&name.as_str()) || name.starts_with("x-envoy-");
        if is_theirs || name == "expect" {
            continue;
        }
        let is_there = upstream.headers.contains(&(name.clone(), value.clone()));
        holds(
            is_there,
            &format!("header {name} at the pod"),
            &value,
            &format!("{:?}", upstream.headers),
        )?;
    }
    Ok(())
}

fn uses(prefix: Prefix, identity: &Identity) -> Result<()> {
    let is_known = matches!(identity, Identity::Known { .. });
    let is_so = match prefix {
        Prefix::Use => is_known,
        Prefix::May => true,
        Prefix::None => !is_known,
    };
    let got = if is_known {
        "an identity"
    } else {
        "load alone"
    };
    holds(is_so, "prefix", &format!("{prefix:?}"), got)
}

fn allowed_pods(allowed: &[String], fate: &Fate) -> Result<()> {
    let Fate::Routed(pods) = fate else {
        return Err(Failure::Unseen);
    };
    let is_so = pods.iter().all(|pod| allowed.contains(pod));
    holds(is_so, "pods", &allowed.join(", "), &pods.join(", "))
}

fn no_client_values(request: &Request, upstream: &Upstream) -> Result<()> {
    for (name, value) in &request.headers {
        if !ROUTER_OWNED.contains(&name.as_str()) {
            continue;
        }
        let leak = upstream.headers.iter().find(|(other, got)| {
            let is_named = other == name && got.split(',').any(|part| part.trim() == value);
            is_named || (value.len() >= MIN_TELLING_BYTES && got.contains(value.as_str()))
        });
        holds(
            leak.is_none(),
            "client's value at the pod",
            "none",
            &format!("{leak:?}"),
        )?;
    }
    Ok(())
}

fn no_address(addresses: &[String], upstream: &Upstream) -> Result<()> {
    let names = |value: &String| {
        addresses
            .iter()
            .any(|address| value.contains(address.as_str()))
    };
    let leak = upstream.headers.iter().find(|(_, value)| names(value));
    holds(
        leak.is_none(),
        "address at the pod",
        "none",
        &format!("{leak:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::request::Framing;
    use crate::requests::setup::{RawSetup, Setup};

    fn input(headers: &[(&str, &str)]) -> Input {
        Input {
            name: String::new(),
            setup: Setup::new(&RawSetup::default(), &RawSetup::default()),
            request: Request {
                method: "POST".to_owned(),
                path: "/v1/completions?x=1".to_owned(),
                headers: owned(headers),
                pieces: vec![b"{}".to_vec()],
                ends_empty: false,
                raw: None,
                framing: Framing::Length,
            },
            twins: Vec::new(),
            checks: Vec::new(),
        }
    }

    fn owned(headers: &[(&str, &str)]) -> Vec<(String, String)> {
        let headers = headers.iter();
        headers
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn got(headers: &[(&str, &str)]) -> Seen {
        Seen {
            upstream: Some(Upstream {
                path: "/v1/completions?x=1".to_owned(),
                headers: owned(headers),
                body: b"{}".to_vec(),
            }),
            ..Seen::new(Fate::Routed(vec!["a".to_owned()]))
        }
    }

    fn verdict(wanted: &Check, input: &Input, seen: &Seen) -> &'static str {
        match check(wanted, input, seen) {
            Outcome::Held => "held",
            Outcome::Unseen => "unseen",
            Outcome::Failed(_) => "failed",
        }
    }

    #[test]
    fn every_check_can_fail() {
        let plain = input(&[("content-type", "application/json")]);
        let whole = got(&[
            ("content-type", "application/json"),
            ("content-length", "2"),
        ]);
        let lost = got(&[("content-type", "application/json")]);
        assert_eq!(verdict(&Check::Untouched, &plain, &whole), "held");
        assert_eq!(verdict(&Check::Untouched, &plain, &lost), "failed");
        let mut longer = whole.clone();
        longer.upstream.as_mut().unwrap().body.push(b' ');
        assert_eq!(verdict(&Check::Untouched, &plain, &longer), "failed");
        let blind = Seen::new(Fate::Passed);
        assert_eq!(verdict(&Check::Untouched, &plain, &blind), "unseen");

        let route = Check::Result(vec![Ending::Route]);
        assert_eq!(verdict(&route, &plain, &whole), "held");
        assert_eq!(verdict(&route, &plain, &blind), "failed");
        let stranger = Seen::new(Fate::Routed(vec!["z".to_owned()]));
        assert_eq!(verdict(&route, &plain, &stranger), "failed");
        let only = Check::AllowedPods(vec!["b".to_owned()]);
        assert_eq!(verdict(&only, &plain, &whole), "failed");

        let units = |units| Seen {
            load_units: Some(units),
            ..whole.clone()
        };
        assert_eq!(verdict(&Check::LoadUnits(3), &plain, &units(3)), "held");
        assert_eq!(verdict(&Check::LoadUnits(3), &plain, &units(1)), "failed");
        assert_eq!(verdict(&Check::LoadUnits(3), &plain, &whole), "unseen");
        assert!(
            invariants(
                &plain.request,
                &Seen {
                    left_over: Some(1),
                    ..units(1)
                }
            )
            .is_err()
        );
        assert!(
            invariants(
                &plain.request,
                &Seen {
                    grown_bytes: Some(2 << 20),
                    ..units(1)
                }
            )
            .is_err()
        );
        assert!(invariants(&plain.request, &units(1)).is_ok());

        let id = |identity| Seen {
            identity: Some(identity),
            ..whole.clone()
        };
        let known = Identity::Known {
            rungs: Vec::new(),
            prompts: None,
        };
        assert_eq!(
            verdict(&Check::Prefix(Prefix::Use), &plain, &id(known.clone())),
            "held"
        );
        assert_eq!(
            verdict(&Check::Prefix(Prefix::None), &plain, &id(known)),
            "failed"
        );
        assert_eq!(
            verdict(&Check::Prefix(Prefix::Use), &plain, &id(Identity::None)),
            "failed"
        );
    }

    #[test]
    fn a_clients_routing_values_must_not_arrive() {
        let spoofed = input(&[
            ("x-prefiller-url", "http://h.test/"),
            ("x-data-parallel-rank", "7"),
        ]);
        let leaks =
            |headers: &[(&str, &str)]| verdict(&Check::NoClientValues, &spoofed, &got(headers));
        assert_eq!(
            leaks(&[("x-data-parallel-rank", "0"), ("content-length", "7")]),
            "held"
        );
        assert_eq!(leaks(&[("x-data-parallel-rank", "7")]), "failed");
        assert_eq!(leaks(&[("x-other", "see http://h.test/")]), "failed");
        let address = Check::NoAddress(vec!["10.9.9.9".to_owned()]);
        let seen = got(&[("x-gateway-destination-endpoint", "10.0.0.1:1,10.9.9.9:8000")]);
        assert_eq!(verdict(&address, &spoofed, &seen), "failed");
    }

    #[test]
    fn an_error_is_json_with_four_fields() {
        let answered = |content_type: &str, body: &str| {
            Seen::new(Fate::Answered(Answer {
                status: 400,
                headers: owned(&[("content-type", content_type)]),
                body: body.as_bytes().to_vec(),
            }))
        };
        let body = r#"{"error": {"message": "m", "type": "t", "param": "model", "code": null}}"#;
        let good = answered("application/json", body);
        let (plain, param) = (input(&[]), Check::ErrorParam("model".to_owned()));
        assert_eq!(verdict(&Check::ErrorBody, &plain, &good), "held");
        assert_eq!(verdict(&param, &plain, &good), "held");
        for bad in [
            answered("text/plain", body),
            answered(
                "application/json",
                r#"{"error": {"message": "m", "type": "t", "param": null}}"#,
            ),
            answered("application/json", "no such model"),
            Seen::new(Fate::Passed),
        ] {
            assert_eq!(verdict(&Check::ErrorBody, &plain, &bad), "failed");
            assert_eq!(verdict(&param, &plain, &bad), "failed");
        }
    }
}
