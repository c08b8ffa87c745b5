//! A pod that does as a test says: its engine's figures and health, and how each request ends.
//!
//! What it does with a request, the request says itself (header `x-play`), so that a test needs no lock-step with connections.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Header that says what becomes of a request.
pub(crate) const PLAY: &str = "x-play";
/// Header with a number that a request keeps when it is retried.
pub(crate) const NUMBER: &str = "x-number";
/// One event of a stream.
pub(crate) const EVENT: &str = "data: {\"choices\":[]}\n\n";

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Play {
    /// A whole answer at once.
    Answer,
    /// Nothing comes until the test lets go; then a whole answer.
    Hold,
    /// One event, and the rest once the test lets go.
    Stream,
    /// One event; the connection breaks once the test lets go.
    Break,
    /// 503 from the first pod that gets it; the next one streams.
    RefuseFirst,
    /// 200 without a byte.
    Empty,
    /// The scripted answer, a piece for each time the test lets go.
    Scripted,
}

impl Play {
    /// Its name in the header.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Hold => "hold",
            Self::Stream => "stream",
            Self::Break => "break",
            Self::RefuseFirst => "refuse-first",
            Self::Empty => "empty",
            Self::Scripted => "scripted",
        }
    }

    fn read(text: &str) -> Self {
        let all = [
            Self::Hold,
            Self::Stream,
            Self::Break,
            Self::RefuseFirst,
            Self::Empty,
            Self::Scripted,
        ];
        let mut all = all.into_iter();
        all.find(|play| play.as_str() == text)
            .unwrap_or(Self::Answer)
    }
}

/// An answer in pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) pieces: Vec<Vec<u8>>,
}

/// What all pods of a test share.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Each permit lets one that waits go on.
    pub(crate) gate: Semaphore,
    /// Requests that some pod has refused already.
    refused: Mutex<HashSet<String>>,
    pub(crate) script: Mutex<Script>,
}

impl Stage {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: Semaphore::new(0),
            refused: Mutex::new(HashSet::new()),
            script: Mutex::new(Script::default()),
        })
    }
}

#[derive(Debug)]
struct State {
    name: String,
    stage: Arc<Stage>,
    is_healthy: AtomicBool,
    /// The page of metrics; `None`: there is none.
    page: Mutex<Option<String>>,
    /// Inference requests that came.
    seen: AtomicUsize,
}

/// A running pod; dropping it ends it and breaks its connections.
#[derive(Debug)]
pub(crate) struct Pod {
    address: SocketAddr,
    state: Arc<State>,
    server: JoinHandle<()>,
}

impl Pod {
    /// Starts one that is healthy and has no metrics.
    ///
    /// # Errors
    /// There is no free port.
    pub(crate) async fn start(name: &str, stage: &Arc<Stage>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            name: name.to_owned(),
            stage: Arc::clone(stage),
            is_healthy: AtomicBool::new(true),
            page: Mutex::new(None),
            seen: AtomicUsize::new(0),
        });
        let served = Arc::clone(&state);
        let server = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                let state = Arc::clone(&served);
                connections.spawn(async move {
                    // A connection that breaks is part of the play.
                    let _ = serve(connection, &state).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            address,
            state,
            server,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.state.name
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set_healthy(&self, is_healthy: bool) {
        self.state.is_healthy.store(is_healthy, Ordering::SeqCst);
    }

    pub(crate) fn set_page(&self, page: Option<String>) {
        *lock(&self.state.page) = page;
    }

    /// Inference requests that came so far.
    pub(crate) fn seen(&self) -> usize {
        self.state.seen.load(Ordering::SeqCst)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.server.abort();
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Asked {
    path: String,
    play: Play,
    number: String,
}

async fn serve(mut connection: TcpStream, state: &State) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut held = Vec::new();
    while let Some(asked) = read(&mut connection, &mut held).await? {
        match asked.path.as_str() {
            "/health" => {
                let is_healthy = state.is_healthy.load(Ordering::SeqCst);
                let status = if is_healthy { 200 } else { 503 };
                whole(&mut connection, state, status, "text/plain", "").await?;
            }
            "/metrics" => {
                let page = lock(&state.page).clone();
                let status = if page.is_some() { 200 } else { 404 };
                let page = page.unwrap_or_default();
                whole(&mut connection, state, status, "text/plain", &page).await?;
            }
            _ => {
                state.seen.fetch_add(1, Ordering::SeqCst);
                play(&mut connection, state, &asked).await?;
            }
        }
    }
    Ok(())
}

/// Reads one request, its body included; `None` when the peer has closed.
async fn read(connection: &mut TcpStream, held: &mut Vec<u8>) -> io::Result<Option<Asked>> {
    let head = loop {
        if let Some(at) = held.windows(4).position(|window| window == b"\r\n\r\n") {
            break held.drain(..at + 4).collect::<Vec<u8>>();
        }
        if !more(connection, held).await? {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&head).into_owned();
    let header = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.trim().to_owned())
    };
    if header("transfer-encoding").is_some() {
        // The last chunk is empty, and bodies here are JSON.
        while !held.ends_with(b"0\r\n\r\n") {
            if !more(connection, held).await? {
                return Ok(None);
            }
        }
        held.clear();
    } else {
        let length = header("content-length").and_then(|length| length.parse().ok());
        let length: usize = length.unwrap_or(0);
        while held.len() < length {
            if !more(connection, held).await? {
                return Ok(None);
            }
        }
        held.drain(..length);
    }
    Ok(Some(Asked {
        path: head.split(' ').nth(1).unwrap_or_default().to_owned(),
        play: Play::read(&header(PLAY).unwrap_or_default()),
        number: header(NUMBER).unwrap_or_default(),
    }))
}

async fn more(connection: &mut TcpStream, held: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = vec![0; 16 << 10];
    let read = connection.read(&mut buffer).await?;
    held.extend(buffer.iter().take(read));
    Ok(read > 0)
}

async fn play(connection: &mut TcpStream, state: &State, asked: &Asked) -> io::Result<()> {
    let json = "application/json";
    match asked.play {
        Play::Answer => whole(connection, state, 200, json, "{\"choices\":[]}").await,
        Play::Empty => whole(connection, state, 200, json, "").await,
        Play::Hold => {
            pass(connection, state).await?;
            whole(connection, state, 200, json, "{\"choices\":[]}").await
        }
        Play::RefuseFirst if lock(&state.stage.refused).insert(asked.number.clone()) => {
            whole(connection, state, 503, json, "{}").await
        }
        Play::Stream | Play::RefuseFirst => {
            begin(connection, state, 200, "text/event-stream").await?;
            chunk(connection, EVENT.as_bytes()).await?;
            pass(connection, state).await?;
            chunk(connection, b"data: [DONE]\n\n").await?;
            chunk(connection, b"").await
        }
        Play::Break => {
            begin(connection, state, 200, "text/event-stream").await?;
            chunk(connection, EVENT.as_bytes()).await?;
            pass(connection, state).await?;
            // The connection goes in the middle of the body.
            Err(io::ErrorKind::ConnectionReset.into())
        }
        Play::Scripted => {
            let script = lock(&state.stage.script).clone();
            begin(connection, state, script.status, &script.content_type).await?;
            for piece in &script.pieces {
                pass(connection, state).await?;
                chunk(connection, piece).await?;
            }
            chunk(connection, b"").await
        }
    }
}

/// Waits until the test lets one go. Fails when the peer has left meanwhile: then another one may go.
async fn pass(connection: &TcpStream, state: &State) -> io::Result<()> {
    let mut byte = [0];
    tokio::select! {
        biased;
        left = connection.peek(&mut byte) => match left? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        },
        permit = state.stage.gate.acquire() => {
            if let Ok(permit) = permit {
                permit.forget();
            }
            Ok(())
        }
    }
}

async fn begin(
    connection: &mut TcpStream,
    state: &State,
    status: u16,
    content_type: &str,
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status} X\r\nx-engine: {}\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n",
        state.name
    );
    connection.write_all(head.as_bytes()).await
}

/// An empty one ends the body.
async fn chunk(connection: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut text = format!("{:x}\r\n", bytes.len()).into_bytes();
    text.extend(bytes);
    text.extend(b"\r\n");
    connection.write_all(&text).await
}

async fn whole(
    connection: &mut TcpStream,
    state: &State,
    status: u16,
    content_type: &str,
    body: &str,
) -> io::Result<()> {
    let text = format!(
        "HTTP/1.1 {status} X\r\nx-engine: {}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        state.name,
        body.len()
    );
    connection.write_all(text.as_bytes()).await
}
