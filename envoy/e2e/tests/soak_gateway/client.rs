//! A client that behaves as clients do: it waits, reads slowly, or leaves at any moment.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use h2::client::SendRequest;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Longest wait for anything: hanging is a failure.
const LIMIT: Duration = Duration::from_secs(40);
/// Pause of a slow reader after each piece, and after how many pieces it has caught up.
const SLOW_PAUSE: Duration = Duration::from_millis(40);
const SLOW_PIECES: usize = 25;
/// Connections that are tried for a request that a closing one has not taken.
const MAX_CONNECTIONS: usize = 4;

/// How requests get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1, a connection for each.
    Http1,
    /// HTTP/1.1 with a body of unknown length.
    Http1Chunked,
    /// HTTP/2, one connection after another.
    Http2,
}

/// What the client does besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// Waits for everything.
    Patient,
    /// Takes its time with each piece.
    Slow,
    /// Leaves before it has sent all, after the time.
    LeavesSending(Duration),
    /// Leaves after the time, whatever has come.
    LeavesAfter(Duration),
    /// Leaves after so many pieces of the answer.
    LeavesAtPiece(usize),
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) path: &'static str,
    /// `None`: a GET.
    pub(crate) body: Option<Bytes>,
    pub(crate) protocol: Protocol,
    pub(crate) conduct: Conduct,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A whole answer.
    Whole {
        status: u16,
        engine: String,
        body: Vec<u8>,
    },
    /// Somebody else ended it; without a status, before anything had come.
    Cut {
        status: Option<u16>,
        engine: String,
        why: String,
    },
    /// The client left.
    Left,
}

/// One client with its connections.
#[derive(Debug)]
pub(crate) struct Client {
    gateway: SocketAddr,
    http1: reqwest::Client,
    http2: Option<SendRequest<Bytes>>,
}

/// What an answer's head says.
struct Head {
    status: u16,
    engine: String,
}

impl Head {
    fn cut(self, error: &impl std::fmt::Debug) -> End {
        End::Cut {
            status: Some(self.status),
            engine: self.engine,
            why: format!("{error:?}"),
        }
    }
}

fn never_began(error: &impl std::fmt::Debug) -> End {
    End::Cut {
        status: None,
        engine: String::new(),
        why: format!("{error:?}"),
    }
}

impl Client {
    pub(crate) fn new(gateway: SocketAddr) -> Self {
        let http1 = reqwest::Client::builder()
            .pool_max_idle_per_host(0)
            .http1_only()
            .build()
            .unwrap_or_default();
        Self {
            gateway,
            http1,
            http2: None,
        }
    }

    /// Sends a request, and behaves as it says.
    pub(crate) async fn send(&mut self, ask: &Ask) -> End {
        let conduct = ask.conduct;
        let playing = async {
            match ask.protocol {
                Protocol::Http1 | Protocol::Http1Chunked => self.http1(ask).await,
                Protocol::Http2 => self.http2(ask).await,
            }
        };
        match conduct {
            Conduct::LeavesSending(after) | Conduct::LeavesAfter(after) => {
                timeout(after, playing).await.unwrap_or(End::Left)
            }
            Conduct::Patient | Conduct::Slow | Conduct::LeavesAtPiece(_) => {
                let ended = timeout(LIMIT, playing).await;
                ended.unwrap_or_else(|_| never_began(&"nothing more came within the limit"))
            }
        }
    }

    async fn http1(&self, ask: &Ask) -> End {
        let url = format!("http://{}{}", self.gateway, ask.path);
        let request = match &ask.body {
            None => self.http1.get(url),
            Some(body) => {
                let request = self.http1.post(url);
                request
                    .header("content-type", "application/json")
                    .body(framed(body, ask))
            }
        };
        let mut answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => return never_began(&error),
        };
        let engine = answer.headers().get("x-engine");
        let head = Head {
            status: answer.status().as_u16(),
            engine: engine.map_or_else(String::new, text),
        };
        let mut body = Vec::new();
        for piece in 1.. {
            match answer.chunk().await {
                Ok(Some(bytes)) => body.extend(bytes),
                Ok(None) => break,
                Err(error) => return head.cut(&error),
            }
            if leaves(ask.conduct, piece).await {
                return End::Left;
            }
        }
        let Head { status, engine } = head;
        End::Whole {
            status,
            engine,
            body,
        }
    }

    async fn http2(&mut self, ask: &Ask) -> End {
        let mut why = String::new();
        for _ in 0..MAX_CONNECTIONS {
            match self.http2_once(ask).await {
                Ok(end) => return end,
                Err(error) => {
                    why = error;
                    self.http2 = None;
                }
            }
        }
        never_began(&why)
    }

    /// An error means that the connection is closing and has not taken the request.
    async fn http2_once(&mut self, ask: &Ask) -> Result<End, String> {
        let told = |error: h2::Error| error.to_string();
        let sender = match self.http2.take() {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let mut sender = sender.ready().await.map_err(told)?;
        let head = http::Request::builder()
            .method(if ask.body.is_some() { "POST" } else { "GET" })
            .uri(format!("http://gateway.test{}", ask.path))
            .header("content-type", "application/json")
            .body(())
            .map_err(|error| error.to_string())?;
        let (answer, mut sending) = sender
            .send_request(head, ask.body.is_none())
            .map_err(told)?;
        self.http2 = Some(sender);
        if let Some(body) = &ask.body {
            let (first, is_all) = match ask.conduct {
                Conduct::LeavesSending(_) => (body.slice(..body.len() / 2), false),
                _ => (body.clone(), true),
            };
            // A failure shows in the answer.
            let _ = sending.send_data(first, is_all);
        }
        let answer = match answer.await {
            Ok(answer) => answer,
            Err(error) if is_untaken(&error) => return Err(told(error)),
            Err(error) => return Ok(never_began(&error)),
        };
        let engine = answer.headers().get("x-engine");
        let head = Head {
            status: answer.status().as_u16(),
            engine: engine.map_or_else(String::new, text),
        };
        let mut receiving = answer.into_body();
        let mut body = Vec::new();
        let mut piece = 0;
        while let Some(bytes) = receiving.data().await {
            match bytes {
                Ok(bytes) => {
                    let _ = receiving.flow_control().release_capacity(bytes.len());
                    body.extend(bytes);
                }
                Err(error) => return Ok(head.cut(&error)),
            }
            piece += 1;
            if leaves(ask.conduct, piece).await {
                return Ok(End::Left);
            }
        }
        let Head { status, engine } = head;
        Ok(End::Whole {
            status,
            engine,
            body,
        })
    }

    async fn connect(&self) -> Result<SendRequest<Bytes>, String> {
        let tcp = TcpStream::connect(self.gateway).await;
        let tcp = tcp.map_err(|error| error.to_string())?;
        let (sender, connection) = h2::client::handshake(tcp)
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(async move {
            // Its end shows in the requests on it.
            let _ = connection.await;
        });
        Ok(sender)
    }
}

/// Whether the connection was closing, so that the request may be sent on another.
fn is_untaken(error: &h2::Error) -> bool {
    error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM)
}

fn text(value: &http::HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn framed(body: &Bytes, ask: &Ask) -> reqwest::Body {
    let parts = |end: usize| {
        let whole = body.slice(..end);
        let size = (end / 3).max(1);
        let parts = (0..end)
            .step_by(size)
            .map(move |at| Ok::<_, std::io::Error>(whole.slice(at..(at + size).min(whole.len()))));
        stream::iter(parts.collect::<Vec<_>>())
    };
    match (ask.conduct, ask.protocol) {
        (Conduct::LeavesSending(_), _) => {
            reqwest::Body::wrap_stream(parts(body.len() / 2).chain(stream::pending()))
        }
        (_, Protocol::Http1Chunked) => reqwest::Body::wrap_stream(parts(body.len())),
        _ => body.clone().into(),
    }
}

/// What happens after a piece of the answer; gives whether the client leaves.
async fn leaves(conduct: Conduct, piece: usize) -> bool {
    match conduct {
        Conduct::Slow if piece <= SLOW_PIECES => sleep(SLOW_PAUSE).await,
        Conduct::LeavesAtPiece(at) => return piece >= at,
        _ => {}
    }
    false
}
