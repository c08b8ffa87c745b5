//! Other forms of a request, whose results can be compared.

use prefixway_core::admission::{AtHead, Head, at_head};
use serde_json::Value;

use super::request::{Framing, Request};

/// UTF-8 byte order mark.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The ways in which a request's body is put on the wire.
pub(super) fn framings(request: &Request) -> Vec<Request> {
    let is_fixed =
        request.raw.is_some() || request.framing == Framing::Http2 || request.pieces.is_empty();
    if is_fixed {
        return vec![request.clone()];
    }
    [Framing::Length, Framing::Chunked]
        .map(|framing| request.framed(framing))
        .into()
}

/// The same request without mark and coding, in one piece; `None` where the coding is not read.
pub(super) fn plain(request: &Request) -> Option<Request> {
    let body = request.body();
    let head = Head {
        method: &request.method,
        path: &request.path,
        content_encoding: request.header("content-encoding"),
        ..Head::default()
    };
    let AtHead::Hold(held) = at_head(&head, usize::MAX) else {
        return None;
    };
    let opened = held.open(&body).ok()?;
    let text = opened.strip_prefix(MARK).unwrap_or(&opened).to_vec();
    let mut plain = Request {
        pieces: vec![text],
        ..request.clone()
    };
    plain
        .headers
        .retain(|(name, _)| name != "content-encoding" && name != "expect");
    Some(plain.framed(Framing::Length))
}

/// The first request with no more than the messages that both begin with, and without anything that asks for an answer.
pub(super) fn leading_messages(request: &Request, twin: &Request) -> Option<Request> {
    let read = |request: &Request| serde_json::from_slice::<Value>(&request.body()).ok();
    let (mut ours, theirs) = (read(request)?, read(twin)?);
    let (messages, others) = (
        ours.get("messages")?.as_array()?,
        theirs.get("messages")?.as_array()?,
    );
    let pairs = messages.iter().zip(others);
    let common: Vec<Value> = pairs
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a.clone())
        .collect();
    if common.is_empty() {
        return None;
    }
    let fields = ours.as_object_mut()?;
    fields.insert("messages".to_owned(), common.into());
    fields.insert("add_generation_prompt".to_owned(), false.into());
    fields.insert("continue_final_message".to_owned(), false.into());
    Some(Request {
        pieces: vec![ours.to_string().into_bytes()],
        ..request.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &str) -> Request {
        Request {
            method: "POST".to_owned(),
            path: "/v1/chat/completions".to_owned(),
            headers: Vec::new(),
            pieces: vec![body.as_bytes().to_vec()],
            ends_empty: false,
            raw: None,
            framing: Framing::Length,
        }
    }

    #[test]
    fn the_plain_form_has_no_mark() {
        let plain = plain(&request("\u{feff}{}")).unwrap();
        assert_eq!(plain.body(), b"{}");
    }

    #[test]
    fn leading_messages_are_those_that_both_begin_with() {
        let ours = request(r#"{"messages": [{"role": "a"}, {"role": "b"}], "x": 1}"#);
        let twin = request(r#"{"messages": [{"role": "a"}, {"role": "c"}]}"#);
        let leading = leading_messages(&ours, &twin).unwrap();
        assert_eq!(
            String::from_utf8(leading.body()).unwrap(),
            r#"{"messages":[{"role":"a"}],"x":1,"add_generation_prompt":false,"continue_final_message":false}"#
        );
        assert!(leading_messages(&ours, &request("{}")).is_none());
    }
}
