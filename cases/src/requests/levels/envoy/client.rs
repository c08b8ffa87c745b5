//! A client that puts exactly these bytes, chunks and frames on the wire.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::requests::request::{Framing, Request};

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(30);
/// Time in which `100 Continue` has to come.
const CONTINUE_LIMIT: Duration = Duration::from_secs(1);
/// End of the headers.
const BLANK: &[u8] = b"\r\n\r\n";

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Whether `100 Continue` came in time; `None` when it was not waited for.
    pub(super) continued: Option<bool>,
}

impl Reply {
    /// A header's first value.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|header| header.0 == name);
        header.map(|header| header.1.as_str())
    }
}

/// Sends a request on a connection of its own.
///
/// # Errors
/// There is no whole answer in time.
pub(super) fn send(runtime: &Runtime, address: SocketAddr, request: &Request) -> io::Result<Reply> {
    match request.framing {
        Framing::Http2 => runtime.block_on(async {
            let sending = tokio::time::timeout(LIMIT, send_frames(address, request));
            sending.await.map_err(|_| io::ErrorKind::TimedOut)?
        }),
        Framing::Length | Framing::Chunked => send_bytes(address, request),
    }
}

fn send_bytes(address: SocketAddr, request: &Request) -> io::Result<Reply> {
    let bytes = request.raw.clone().unwrap_or_else(|| spelled(request));
    let head = bytes
        .windows(BLANK.len())
        .position(|window| window == BLANK);
    let (head, body) = bytes.split_at(head.map_or(bytes.len(), |at| at + BLANK.len()));
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    stream.write_all(head)?;
    let mut first = None;
    if request.waits_for_continue() {
        let started = Instant::now();
        let reply = read_head(&mut reader)?;
        if reply.status != 100 {
            // A final answer in place of it.
            return read_body(&mut reader, reply);
        }
        first = Some(started.elapsed() <= CONTINUE_LIMIT);
    }
    // The answer may come before the body is through, and nobody reads the rest then.
    let rest = body.to_vec();
    let mut writing = stream.try_clone()?;
    let writer = std::thread::spawn(move || writing.write_all(&rest));
    let reply = read_head(&mut reader).and_then(|reply| read_body(&mut reader, reply));
    // Wakes the writer where it still waits for room.
    let _ = stream.shutdown(std::net::Shutdown::Both);
    // It fails where the answer came first.
    let _ = writer.join();
    let mut reply = reply?;
    reply.continued = first;
    Ok(reply)
}

/// The bytes of a request that no file spells.
fn spelled(request: &Request) -> Vec<u8> {
    let is_chunked = request.framing == Framing::Chunked && !request.pieces.is_empty();
    let mut lines = vec![
        format!("{} {} HTTP/1.1", request.method, request.path),
        "host: gateway.test".to_owned(),
    ];
    let headers = request.sent_headers().into_iter();
    lines.extend(headers.map(|(name, value)| format!("{name}: {value}")));
    if is_chunked {
        lines.push("transfer-encoding: chunked".to_owned());
    }
    let mut bytes = lines.join("\r\n").into_bytes();
    bytes.extend(BLANK);
    if !is_chunked {
        bytes.extend(request.body());
        return bytes;
    }
    // An empty chunk would end the body.
    for piece in request.pieces.iter().filter(|piece| !piece.is_empty()) {
        bytes.extend(format!("{:x}\r\n", piece.len()).into_bytes());
        bytes.extend(piece);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

fn read_head(reader: &mut impl BufRead) -> io::Result<Reply> {
    let line = read_line(reader)?;
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| broken("a header without colon"))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok(Reply {
        status: status.ok_or_else(|| broken("no status"))?,
        headers,
        body: Vec::new(),
        continued: None,
    })
}

fn read_body(reader: &mut impl BufRead, mut reply: Reply) -> io::Result<Reply> {
    let is_chunked = reply.header("transfer-encoding") == Some("chunked");
    if is_chunked {
        loop {
            let line = read_line(reader)?;
            let size = usize::from_str_radix(&line, 16).map_err(|_| broken("a chunk's size"))?;
            let mut piece = vec![0; size + 2];
            reader.read_exact(&mut piece)?;
            if size == 0 {
                return Ok(reply);
            }
            reply.body.extend(piece.iter().take(size));
        }
    }
    let length = reply
        .header("content-length")
        .and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    reply.body = body;
    Ok(reply)
}

/// Sends a request over HTTP/2 without encryption, one DATA frame for each piece.
async fn send_frames(address: SocketAddr, request: &Request) -> io::Result<Reply> {
    let failed = |error: h2::Error| io::Error::other(error.to_string());
    let tcp = tokio::net::TcpStream::connect(address).await?;
    let (client, connection) = h2::client::handshake(tcp).await.map_err(failed)?;
    let driver = tokio::spawn(connection);
    let mut head = http::Request::builder()
        .method(request.method.as_str())
        .uri(format!("http://gateway.test{}", request.path));
    for (name, value) in request.sent_headers() {
        head = head.header(name, value);
    }
    let head = head.body(()).map_err(io::Error::other)?;
    let mut client = client.ready().await.map_err(failed)?;
    let is_bare = request.pieces.is_empty();
    let (response, mut body) = client.send_request(head, is_bare).map_err(failed)?;
    let last = request.pieces.len().saturating_sub(1);
    for (number, piece) in request.pieces.iter().enumerate() {
        let ends = number == last && !request.ends_empty;
        // A reset tells that the answer is there already.
        if body.send_data(piece.clone().into(), ends).is_err() {
            break;
        }
    }
    if request.ends_empty && !is_bare {
        let _ = body.send_data(bytes::Bytes::new(), true);
    }
    let response = response.await.map_err(failed)?;
    let (head, mut body) = response.into_parts();
    let mut whole = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(failed)?;
        let _ = body.flow_control().release_capacity(piece.len());
        whole.extend(piece);
    }
    driver.abort();
    let headers = head.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.to_string(), value)
    });
    Ok(Reply {
        status: head.status.as_u16(),
        headers: headers.collect(),
        body: whole,
        continued: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_on_the_wire_as_they_are() {
        let request = Request {
            method: "POST".to_owned(),
            path: "/v1/x?y".to_owned(),
            headers: vec![("a".to_owned(), "b".to_owned())],
            pieces: vec![b"abc".to_vec(), Vec::new(), b"d".to_vec()],
            ends_empty: true,
            raw: None,
            framing: Framing::Chunked,
        };
        let bytes = String::from_utf8(spelled(&request)).unwrap();
        assert_eq!(
            bytes,
            "POST /v1/x?y HTTP/1.1\r\nhost: gateway.test\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"
        );
        let plain = request.framed(Framing::Length);
        let bytes = String::from_utf8(spelled(&plain)).unwrap();
        assert!(
            bytes.ends_with("a: b\r\ncontent-length: 4\r\n\r\nabcd"),
            "{bytes}"
        );
    }

    #[test]
    fn answers_are_read_in_both_framings() {
        let read = |bytes: &[u8]| {
            let mut reader = bytes;
            let head = read_head(&mut reader)?;
            read_body(&mut reader, head)
        };
        let chunked =
            read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n")
                .unwrap();
        assert_eq!((chunked.status, chunked.body.as_slice()), (200, &b"ab"[..]));
        let plain = read(b"HTTP/1.1 404 Not Found\r\ncontent-length: 1\r\n\r\nx").unwrap();
        assert_eq!((plain.status, plain.body.as_slice()), (404, &b"x"[..]));
        assert!(read(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nx").is_err());
        assert!(read(b"nonsense\r\n\r\n").is_err());
    }
}
