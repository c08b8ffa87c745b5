//! Requests as raw HTTP/1.1, and what the case list says has to come of them.
//!
//! Such a file holds a request and nothing else. Its row in the list (`cases.md` in the folder above) says in words what has to come of it;
//! the first words of the row decide how the request ends. The rest follows from the request: what goes on goes on untouched, a body
//! means what it means without chunks, mark and coding, and a form is one unit of load.

use std::path::Path;

use prefixway_core::text::{Api, BodyFormat};

use super::expect::{Check, Ending, Prefix};
use super::file::Input;
use super::request::{Framing, Request};
use super::setup::{RawSetup, Setup};
use crate::error::CaseError;
use crate::folder;

/// The list of cases.
const LIST: &str = "cases.md";
/// Headers that belong to the connection or to framing.
const FRAMING: [&str; 4] = ["host", "content-length", "transfer-encoding", "connection"];

/// A row of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    id: String,
    expected: String,
}

/// Reads a file and its row: the case's id and its input.
pub(super) fn read(path: &Path) -> Result<(String, Input), CaseError> {
    let request = parse(&folder::read(path)?)?;
    let name = folder::name(path);
    let list = path
        .parent()
        .and_then(Path::parent)
        .map(|folder| folder.join(LIST));
    let list = list.and_then(|list| std::fs::read_to_string(list).ok());
    let row = list.and_then(|list| row(&list, &format!("requests/{name}")));
    let (id, endings) = match row {
        Some(row) => (row.id, endings(&row.expected)?),
        None => (String::from("?"), endings_of(&request)),
    };
    let input = Input {
        name: String::new(),
        setup: Setup::new(&RawSetup::default(), &RawSetup::default()),
        twins: Vec::new(),
        checks: checks(&request, endings),
        request,
    };
    Ok((id, input))
}

/// The row of a file: `| id | file | what it models | expected result |`.
fn row(list: &str, file: &str) -> Option<Row> {
    list.lines().find_map(|line| {
        let cells = line.strip_prefix('|')?.trim_end().strip_suffix('|')?;
        let mut cells = cells.split('|').map(str::trim);
        let (id, named) = (cells.next()?, cells.next()?.trim_matches('`'));
        let expected = cells.nth(1)?;
        (named == file).then(|| Row {
            id: id.to_owned(),
            expected: expected.to_owned(),
        })
    })
}

/// How a request ends, by the first words of its row.
fn endings(expected: &str) -> Result<Vec<Ending>, CaseError> {
    let first = expected.split(';').next().unwrap_or_default();
    let status = |text: &str| {
        let words = text.split(|c: char| !c.is_ascii_digit());
        let statuses = words.filter_map(|word| word.parse::<u16>().ok());
        let mut statuses = statuses.filter(|status| (400..600).contains(status));
        statuses.next()
    };
    if first.starts_with("passes through") {
        Ok(vec![Ending::PassThrough])
    } else if first.starts_with("routes") || first.contains("the normal answer") {
        Ok(vec![Ending::Route])
    } else if let Some(rest) = first.strip_prefix("either routed") {
        let other = status(rest).map(|status| Ending::Reject(Some(status)));
        Ok([Ending::Route].into_iter().chain(other).collect())
    } else if let Some(status) = status(first) {
        Ok(vec![Ending::Reject(Some(status))])
    } else {
        Err(CaseError::not_understood(format!(
            "expected result {first:?}"
        )))
    }
}

/// How a request ends of which the list says nothing.
fn endings_of(request: &Request) -> Vec<Ending> {
    match request.api() {
        None => vec![Ending::PassThrough],
        Some(_) => vec![Ending::Route, Ending::Reject(Some(400))],
    }
}

fn checks(request: &Request, endings: Vec<Ending>) -> Vec<Check> {
    let goes_on = !matches!(endings.as_slice(), [Ending::Reject(_)]);
    let mut checks = vec![Check::Result(endings)];
    if goes_on {
        checks.push(Check::Untouched);
    }
    match request.api().map(Api::body_format) {
        Some(BodyFormat::Json) if goes_on => checks.push(Check::LikePlain),
        Some(BodyFormat::Form) => {
            checks.push(Check::Prefix(Prefix::None));
            checks.push(Check::LoadUnits(1));
        }
        _ => {}
    }
    if request.waits_for_continue() {
        checks.push(Check::Continues);
    }
    checks
}

/// Reads a request's bytes.
fn parse(bytes: &[u8]) -> Result<Request, CaseError> {
    let wrong = |what: &str| CaseError::not_understood(format!("raw HTTP: {what}"));
    let end = find(bytes, b"\r\n\r\n").ok_or_else(|| wrong("no end of headers"))?;
    let (head, body) = (bytes.get(..end), bytes.get(end + 4..));
    let head = core::str::from_utf8(head.unwrap_or_default())
        .map_err(|_| wrong("headers that are no text"))?;
    let body = body.unwrap_or_default();
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, path, version) = (first.next(), first.next(), first.next());
    let (Some(method), Some(path), Some("HTTP/1.1")) = (method, path, version) else {
        return Err(wrong("first line"));
    };
    let all: Result<Vec<(String, String)>, CaseError> = lines
        .map(|line| {
            let (name, value) = line.split_once(':').ok_or_else(|| wrong(line))?;
            Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
        })
        .collect();
    let all = all?;
    let header = |name: &str| all.iter().find(|header| header.0 == name);
    let is_chunked = header("transfer-encoding").is_some();
    let pieces = if is_chunked {
        dechunk(body).ok_or_else(|| wrong("chunks"))?
    } else {
        match header("content-length") {
            Some((_, length)) if *length == body.len().to_string() => vec![body.to_vec()],
            None if body.is_empty() => Vec::new(),
            _ => return Err(wrong("content-length is not the body's")),
        }
    };
    Ok(Request {
        method: method.to_owned(),
        path: path.to_owned(),
        pieces,
        ends_empty: is_chunked,
        framing: if is_chunked {
            Framing::Chunked
        } else {
            Framing::Length
        },
        raw: Some(bytes.to_vec()),
        headers: all
            .into_iter()
            .filter(|(name, _)| !FRAMING.contains(&name.as_str()))
            .collect(),
    })
}

pub(super) fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

/// The pieces of a chunked body.
fn dechunk(mut rest: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut pieces = Vec::new();
    loop {
        let end = find(rest, b"\r\n")?;
        let line = core::str::from_utf8(rest.get(..end)?).ok()?;
        let size = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
        rest = rest.get(end + 2..)?;
        let piece = rest.get(..size)?;
        rest = rest.get(size..)?.strip_prefix(b"\r\n")?;
        if size == 0 {
            return rest.is_empty().then_some(pieces);
        }
        pieces.push(piece.to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_pieces() {
        let request = parse(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n").unwrap();
        assert_eq!(request.pieces, [&b"abc"[..], b"d"]);
        assert_eq!(request.headers, [("x-a".to_owned(), "b".to_owned())]);
        assert_eq!(request.framing, Framing::Chunked);
        for wrong in [
            "POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nab",
            "POST /x\r\n\r\n",
            "POST /x HTTP/1.1\r\n",
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_list_says_how_a_request_ends() {
        let list = "| id | file | a | b |\n| R15 | `requests/x.http` | what | routes; same |\n";
        let found = row(list, "requests/x.http").unwrap();
        assert_eq!(
            (found.id.as_str(), found.expected.as_str()),
            ("R15", "routes; same")
        );
        assert_eq!(row(list, "requests/y.http"), None);
        let route = vec![Ending::Route];
        for (text, wanted) in [
            ("routes load-only; body untouched", route.clone()),
            (
                "client gets 100 within 1 s and then the normal answer; never 413",
                route.clone(),
            ),
            (
                "passes through to a healthy pod; no 400",
                vec![Ending::PassThrough],
            ),
            (
                "either routed (or not) or 415 that names it; never 400",
                vec![Ending::Route, Ending::Reject(Some(415))],
            ),
            (
                "one clean 413 with a JSON body",
                vec![Ending::Reject(Some(413))],
            ),
        ] {
            assert_eq!(endings(text).unwrap(), wanted, "{text}");
        }
        assert!(endings("something nice happens").is_err());
    }
}
