//! Request cases as their JSON files write them.

use serde::Deserialize;
use serde_json::Value;

use super::expect::{Check, RawExpect};
use super::request::{Framing, ROUTER_OWNED, Request};
use super::setup::{RawSetup, Setup};
use crate::error::CaseError;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) id: String,
    #[serde(rename = "about")]
    _about: Option<String>,
    #[serde(rename = "from")]
    _from: Option<Vec<String>>,
    request: Option<RawRequest>,
    #[serde(default)]
    variants: Vec<Variant>,
    #[serde(default)]
    compare: Vec<RawTwin>,
    expect: Option<RawExpect>,
    #[serde(default)]
    setup: RawSetup,
}

/// Another input of the same case; what it leaves out is the case's.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    request: Option<RawRequest>,
    path: Option<String>,
    method: Option<String>,
    change: Option<String>,
    note: Option<String>,
    #[serde(default)]
    compare: Vec<RawTwin>,
    expect: Option<RawExpect>,
    #[serde(default)]
    setup: RawSetup,
    // These say what is special about it, for people.
    #[serde(rename = "depth")]
    _depth: Option<u64>,
    #[serde(rename = "unclosed")]
    _unclosed: Option<bool>,
    #[serde(rename = "where")]
    _where: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRequest {
    method: Option<String>,
    path: Option<String>,
    #[serde(default)]
    headers: serde_json::Map<String, Value>,
    body: Option<Value>,
    body_text: Option<String>,
    body_parts: Option<Vec<Part>>,
    #[serde(default)]
    http2: bool,
    data_frames: Option<Vec<String>>,
    end_stream: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    text: Option<String>,
    repeat: Option<String>,
    times: Option<usize>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTwin {
    relation: Relation,
    request: RawRequest,
}

/// How a request and its twin relate.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Relation {
    /// The same prompt.
    SamePrefix,
    /// Another prompt, from the first chunk on that covers a difference.
    DifferentPrefix,
    /// The same up to where the shorter one ends.
    CommonPrefixKept,
}

/// A twin to compare with.
#[derive(Clone, Debug)]
pub(crate) struct Twin {
    pub(crate) relation: Relation,
    pub(crate) request: Request,
}

/// One request to send, and what has to come of it.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// What tells it from the case's others; empty when it is the only one.
    pub(crate) name: String,
    pub(crate) setup: Setup,
    pub(crate) request: Request,
    pub(crate) twins: Vec<Twin>,
    pub(crate) checks: Vec<Check>,
}

/// An input, or why it can't be sent here.
pub(super) type Read = Result<Input, String>;

impl File {
    /// All inputs of the file.
    ///
    /// # Errors
    /// Something in it has no meaning.
    pub(super) fn inputs(&self) -> Result<Vec<Read>, CaseError> {
        let mut inputs = Vec::new();
        if let Some(request) = &self.request {
            let input = self.input(String::new(), request, &Variant::default())?;
            inputs.push(Ok(input));
        }
        for (number, variant) in (1..).zip(&self.variants) {
            inputs.push(self.variant(number, variant)?);
        }
        if inputs.is_empty() {
            return Err(CaseError::not_understood("a case without a request"));
        }
        Ok(inputs)
    }

    fn variant(&self, number: usize, variant: &Variant) -> Result<Read, CaseError> {
        let name = format!("variant {number}");
        let base = variant.request.as_ref().or(self.request.as_ref());
        let Some(base) = base else {
            return Err(CaseError::not_understood(format!("{name} has no request")));
        };
        let mut request = base.clone();
        if variant.method.is_some() {
            request.method.clone_from(&variant.method);
        }
        if variant.path.is_some() {
            request.path.clone_from(&variant.path);
        }
        if request.method.as_deref() == Some("GET") {
            request.take_body();
        }
        if let Some(change) = &variant.change
            && !request.change(change)
        {
            return Ok(Err(format!("{name}: not runnable here: change {change:?}")));
        }
        let mut input = self.input(name.clone(), &request, variant)?;
        if let Some(note) = &variant.note
            && !heed(note, &mut input)
        {
            return Ok(Err(format!("{name}: not runnable here: note {note:?}")));
        }
        Ok(Ok(input))
    }

    fn input(
        &self,
        name: String,
        request: &RawRequest,
        variant: &Variant,
    ) -> Result<Input, CaseError> {
        let expect = variant.expect.as_ref().or(self.expect.as_ref());
        let expect = expect.ok_or_else(|| CaseError::not_understood("a case without `expect`"))?;
        // A variant's own request has no twins but its own.
        let twins = if variant.request.is_some() || !variant.compare.is_empty() {
            &variant.compare
        } else {
            &self.compare
        };
        let twins: Result<Vec<Twin>, CaseError> = twins
            .iter()
            .map(|twin| {
                Ok(Twin {
                    relation: twin.relation,
                    request: twin.request.read()?,
                })
            })
            .collect();
        Ok(Input {
            name,
            setup: Setup::new(&self.setup, &variant.setup),
            request: request.read()?,
            twins: twins?,
            checks: expect.checks()?,
        })
    }
}

/// Does what a variant's note says; `false` when it says nothing that is known.
fn heed(note: &str, input: &mut Input) -> bool {
    if note.contains("has no data") {
        input.setup.is_known = false;
        return true;
    }
    let Some(values) = note.strip_prefix("same header sent twice: ") else {
        return false;
    };
    let values: Vec<&str> = values.split(" and ").map(str::trim).collect();
    let headers = &mut input.request.headers;
    let sent = headers.iter().position(|(name, value)| {
        ROUTER_OWNED.contains(&name.as_str()) && values.contains(&value.as_str())
    });
    let Some((name, _)) = sent.map(|at| headers.remove(at)) else {
        return false;
    };
    let twice = values
        .iter()
        .map(|value| (name.clone(), (*value).to_owned()));
    headers.extend(twice);
    true
}

impl RawRequest {
    fn take_body(&mut self) {
        (self.body, self.body_text, self.body_parts) = (None, None, None);
        self.data_frames = None;
    }

    /// Changes the request as a variant says; `false` when it says nothing that is known.
    ///
    /// Known are `as is` and `times=N`, both with a remark behind them.
    fn change(&mut self, change: &str) -> bool {
        let word = change.split(" (").next().unwrap_or_default().trim();
        if word == "as is" {
            return true;
        }
        let times = word.strip_prefix("times=").map(str::parse);
        let Some(Ok(times)) = times else {
            return false;
        };
        let parts = self.body_parts.iter_mut().flatten();
        let mut repeated: Vec<&mut Part> = parts.filter(|part| part.repeat.is_some()).collect();
        match repeated.as_mut_slice() {
            [part] => {
                part.times = Some(times);
                true
            }
            _ => false,
        }
    }

    fn read(&self) -> Result<Request, CaseError> {
        let mut headers = Vec::new();
        for (name, value) in &self.headers {
            let value = value.as_str().ok_or_else(|| {
                CaseError::not_understood(format!("header {name} that is no text"))
            })?;
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut pseudo = |name: &str| {
            let at = headers.iter().position(|(other, _)| other == name)?;
            Some(headers.remove(at).1)
        };
        let (method, path) = (pseudo(":method"), pseudo(":path"));
        // Scheme and authority are the connection's.
        headers.retain(|(name, _)| !matches!(name.as_str(), ":scheme" | ":authority"));
        let missing = |what: &str| CaseError::not_understood(format!("a request without {what}"));
        let (pieces, ends_empty) = self.pieces()?;
        Ok(Request {
            method: self
                .method
                .clone()
                .or(method)
                .ok_or_else(|| missing("method"))?,
            path: self.path.clone().or(path).ok_or_else(|| missing("path"))?,
            headers,
            pieces,
            ends_empty,
            raw: None,
            framing: if self.http2 {
                Framing::Http2
            } else {
                Framing::Length
            },
        })
    }

    /// Pieces of the body, and whether an empty one ends it.
    fn pieces(&self) -> Result<(Vec<Vec<u8>>, bool), CaseError> {
        let given = [
            self.body.is_some(),
            self.body_text.is_some(),
            self.body_parts.is_some(),
            self.data_frames.is_some(),
        ];
        if given.iter().filter(|given| **given).count() > 1 {
            return Err(CaseError::not_understood("a request with two bodies"));
        }
        if self.http2 != self.data_frames.is_some() && self.end_stream.is_some() {
            return Err(CaseError::not_understood(
                "`end_stream` without data frames",
            ));
        }
        if let Some(frames) = &self.data_frames {
            let ends_empty = match self.end_stream.as_deref() {
                Some(end) if end.contains("empty") => true,
                None => false,
                Some(end) => {
                    return Err(CaseError::not_understood(format!("end_stream {end:?}")));
                }
            };
            let pieces = frames.iter().map(|frame| frame.as_bytes().to_vec());
            return Ok((pieces.collect(), ends_empty));
        }
        let body = if let Some(body) = &self.body {
            Some(serde_json::to_vec(body)?)
        } else if let Some(text) = &self.body_text {
            Some(text.as_bytes().to_vec())
        } else if let Some(parts) = &self.body_parts {
            let parts: Result<Vec<String>, CaseError> = parts.iter().map(Part::read).collect();
            Some(parts?.concat().into_bytes())
        } else {
            None
        };
        Ok((body.into_iter().collect(), false))
    }
}

impl Part {
    fn read(&self) -> Result<String, CaseError> {
        match (&self.text, &self.repeat, self.times) {
            (Some(text), None, None) => Ok(text.clone()),
            (None, Some(text), Some(times)) => Ok(text.repeat(times)),
            _ => Err(CaseError::not_understood(format!("body part {self:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(json: &str) -> Result<Vec<Read>, CaseError> {
        serde_json::from_str::<File>(json)?.inputs()
    }

    const HEAD: &str = r#""id": "R99", "expect": {"result": "route"}, "request": {"method": "POST", "path": "/v1/completions",
        "headers": {"X-Prefiller-Url": "u:1"}"#;

    #[test]
    fn bodies_are_spelled_in_four_ways() {
        let body = |body: &str| {
            let inputs = file(&format!("{{{HEAD}, {body}}}}}")).unwrap();
            inputs[0].as_ref().unwrap().request.pieces.clone()
        };
        assert_eq!(
            body(r#""body": {"b": 1.0, "a": null}"#),
            [br#"{"b":1.0,"a":null}"#]
        );
        assert_eq!(body(r#""body_text": " é""#), ["\u{20}é".as_bytes()]);
        assert_eq!(
            body(r#""body_parts": [{"text": "a"}, {"repeat": "bc", "times": 2}]"#),
            [b"abcbc"]
        );
        assert_eq!(
            body(r#""http2": true, "data_frames": ["a", "", "b"]"#),
            [&b"a"[..], b"", b"b"]
        );
        assert!(file(&format!("{{{HEAD}, \"body\": 1, \"body_text\": \"\"}}}}")).is_err());
    }

    #[test]
    fn variants_change_what_they_name_and_keep_the_rest() {
        let inputs = file(&format!(
            r#"{{{HEAD}, "body_parts": [{{"repeat": "x", "times": 2}}]}},
            "variants": [{{"change": "times=3 (more)"}}, {{"change": "as is"}}, {{"change": "upside down"}},
                {{"method": "GET", "path": "/healthz"}}, {{"note": "same header sent twice: u:1 and v:2"}},
                {{"note": "the router has no data"}}, {{"note": "on a Tuesday"}}]}}"#
        ))
        .unwrap();
        let ran = |at: usize| inputs[at].as_ref().unwrap();
        assert_eq!(
            (ran(0).request.body(), ran(1).request.body()),
            (b"xx".to_vec(), b"xxx".to_vec())
        );
        assert_eq!(ran(2).request.body(), b"xx");
        assert_eq!(
            inputs[3].as_ref().unwrap_err(),
            "variant 3: not runnable here: change \"upside down\""
        );
        assert_eq!(
            (ran(4).request.path.as_str(), ran(4).request.pieces.len()),
            ("/healthz", 0)
        );
        let values = |name: &str| -> Vec<String> {
            let headers = ran(5)
                .request
                .headers
                .iter()
                .filter(|header| header.0 == name);
            headers.map(|header| header.1.clone()).collect()
        };
        assert_eq!(values("x-prefiller-url"), ["u:1", "v:2"]);
        assert!(!ran(6).setup.is_known && ran(5).setup.is_known);
        assert!(inputs[7].is_err());
    }

    #[test]
    fn keys_that_are_not_known_are_errors() {
        for json in [
            r#"{"id": "R1"}"#.to_owned(),
            format!("{{{HEAD}}}, \"variant\": []}}"),
            format!("{{{HEAD}, \"trailers\": {{}}}}}}"),
            format!("{{{HEAD}}}, \"compare\": [{{\"relation\": \"near\", \"request\": {{}}}}]}}"),
            format!("{{{HEAD}, \"body_parts\": [{{\"text\": \"a\", \"times\": 2}}]}}}}"),
        ] {
            assert!(file(&json).is_err(), "{json}");
        }
    }
}
