//! Just enough HTTP/1.1 for a client and a server that cost next to nothing.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What an engine answers: as short as answers with a usage are.
const ANSWER: &str = r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":8,"completion_tokens":1,"total_tokens":9}}"#;

/// A connection that is read message by message.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::with_capacity(64 << 10),
        })
    }

    async fn more(&mut self) -> anyhow::Result<bool> {
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }

    /// Reads one message and drops it; its head, `None` where the other side has closed.
    async fn message(&mut self) -> anyhow::Result<Option<String>> {
        let end = loop {
            let end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            match end {
                Some(end) => break end + 4,
                None if !self.more().await? => return Ok(None),
                None => {}
            }
        };
        let head = String::from_utf8_lossy(self.buffer.get(..end).unwrap_or_default()).into_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>())
        });
        let whole = end + length.transpose()?.unwrap_or(0);
        while self.buffer.len() < whole {
            if !self.more().await? {
                bail!("the connection ended within a message");
            }
        }
        self.buffer.drain(..whole);
        Ok(Some(head))
    }
}

/// Answers every request on a free port at once, until the process ends.
///
/// # Errors
/// When no port is free.
pub(crate) async fn serve() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ANSWER}",
        ANSWER.len()
    );
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut connection = Connection::new(stream)?;
                while connection.message().await?.is_some() {
                    connection.stream.write_all(answer.as_bytes()).await?;
                }
                anyhow::Ok(())
            });
        }
    });
    Ok(address)
}

/// A client with one connection.
pub(crate) struct Client(Connection);

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self(Connection::new(TcpStream::connect(address).await?)?))
    }

    /// Sends a whole request and waits for the end of its answer; the answer's head.
    ///
    /// # Errors
    /// When the answer is not one with status 200.
    pub(crate) async fn send(&mut self, request: &[u8]) -> anyhow::Result<String> {
        self.0.stream.write_all(request).await?;
        let head = self.0.message().await?.context("the gateway has closed")?;
        if !head.starts_with("HTTP/1.1 200 ") {
            bail!("the gateway answered: {head}");
        }
        Ok(head)
    }
}

/// A request as bytes.
pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The body of what `path` gives, of a server that closes the connection.
///
/// # Errors
/// When it doesn't answer.
pub(crate) async fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
