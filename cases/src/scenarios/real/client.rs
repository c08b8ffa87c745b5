//! A client that sees every piece when it comes, and can leave whenever it wants.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::LIMIT;
use super::pod::{NUMBER, PLAY, Play};

/// A client of a gateway; every request has a connection of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    gateway: SocketAddr,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The head as it came.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) waited: Duration,
}

impl Answer {
    /// A header's first value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// A request whose answer is under way. Dropping it leaves.
#[derive(Debug)]
pub(crate) struct Open {
    connection: TcpStream,
    held: Vec<u8>,
    head: String,
    is_over: bool,
}

impl Client {
    pub(crate) fn new(gateway: SocketAddr) -> Self {
        Self { gateway }
    }

    /// Sends a request whose answer is not waited for yet.
    pub(crate) async fn send(
        &self,
        path: &str,
        body: &str,
        play: Play,
        number: usize,
    ) -> anyhow::Result<Open> {
        let text = format!(
            "POST {path} HTTP/1.1\r\nhost: gateway.test\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{PLAY}: {}\r\n{NUMBER}: {number}\r\n\r\n{body}",
            body.len(),
            play.as_str()
        );
        self.open(&text).await
    }

    /// Sends the head of a request with a body of so many bytes, and nothing of the body.
    pub(crate) async fn announce(&self, path: &str, bytes: usize) -> anyhow::Result<Open> {
        let text = format!(
            "POST {path} HTTP/1.1\r\nhost: gateway.test\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\n\r\n"
        );
        self.open(&text).await
    }

    async fn open(&self, text: &str) -> anyhow::Result<Open> {
        let mut connection = TcpStream::connect(self.gateway).await?;
        connection.set_nodelay(true)?;
        connection.write_all(text.as_bytes()).await?;
        Ok(Open {
            connection,
            held: Vec::new(),
            head: String::new(),
            is_over: false,
        })
    }

    /// Sends a request and waits for the whole answer.
    pub(crate) async fn post(
        &self,
        path: &str,
        body: &str,
        play: Play,
        number: usize,
    ) -> anyhow::Result<Answer> {
        let started = std::time::Instant::now();
        let mut open = self.send(path, body, play, number).await?;
        let status = open.head().await?;
        let body = open.rest().await?;
        Ok(Answer {
            status,
            head: open.head,
            body,
            waited: started.elapsed(),
        })
    }
}

impl Open {
    /// A header's first value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Waits for the head; gives the status.
    pub(crate) async fn head(&mut self) -> anyhow::Result<u16> {
        let end = loop {
            if let Some(at) = self
                .held
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
            {
                break at + 4;
            }
            ensure!(self.more().await? > 0, "closed before the head was whole");
        };
        self.head = String::from_utf8_lossy(&self.held.drain(..end).collect::<Vec<u8>>()).into();
        let status = self.head.split(' ').nth(1).and_then(|s| s.parse().ok());
        status.context("no status")
    }

    /// Waits for the next piece of the body; `None` at its end.
    pub(crate) async fn piece(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        if self.is_over {
            return Ok(None);
        }
        if header(&self.head, "transfer-encoding") == Some("chunked") {
            return self.chunk().await;
        }
        let length = header(&self.head, "content-length").and_then(|text| text.parse().ok());
        let length: usize = length.unwrap_or(0);
        while self.held.len() < length {
            ensure!(self.more().await? > 0, "closed in the middle of the body");
        }
        self.is_over = true;
        let body: Vec<u8> = self.held.drain(..length).collect();
        Ok(Some(body))
    }

    async fn chunk(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = self.held.windows(2).position(|window| window == b"\r\n") {
                let line = String::from_utf8_lossy(self.held.get(..at).unwrap_or_default());
                let size = usize::from_str_radix(&line, 16)?;
                let end = at + 2 + size + 2;
                if self.held.len() >= end {
                    let whole: Vec<u8> = self.held.drain(..end).collect();
                    self.is_over = size == 0;
                    let data = whole.get(at + 2..at + 2 + size).unwrap_or_default();
                    return Ok((size > 0).then(|| data.to_vec()));
                }
            }
            ensure!(self.more().await? > 0, "closed in the middle of the body");
        }
    }

    /// Waits for all that is left of the body.
    pub(crate) async fn rest(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece().await? {
            body.extend(piece);
        }
        Ok(body)
    }

    async fn more(&mut self) -> anyhow::Result<usize> {
        let mut buffer = vec![0; 16 << 10];
        let reading = timeout(LIMIT, self.connection.read(&mut buffer)).await;
        let read: Result<usize, io::Error> = match reading {
            Ok(read) => read,
            Err(_) => bail!("no answer within {LIMIT:?}"),
        };
        let read = read?;
        self.held.extend(buffer.iter().take(read));
        Ok(read)
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
    values.next().map(|(_, value)| value.trim())
}
