//! A stand-in for an engine that answers with the request headers it saw and some token counts, and keeps what it got.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, Method, Uri};
use axum::{Json, Router};
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

/// Request header that says how long the answer takes.
pub const TAKES_MS: &str = "x-takes-ms";

/// One request that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Headers in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

/// A running recorder; dropping it stops it.
#[derive(Debug)]
pub struct Recorder {
    address: SocketAddr,
    recorded: Arc<Mutex<Vec<Recorded>>>,
    slots: Arc<Slots>,
    server: JoinHandle<()>,
}

impl Recorder {
    /// Starts one that signs its answers with `name` (header `x-engine`).
    ///
    /// # Errors
    /// When no loopback port is free.
    pub async fn start(name: &str) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("no port for a recorder")?;
        let address = listener.local_addr()?;
        let name = name.to_owned();
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&recorded);
        // The body is read to its end: a server that answers before closes the connection, and the next request on it fails.
        let slots = Arc::new(Slots::default());
        let used = Arc::clone(&slots);
        let handler = move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
            let request = record(&method, &uri, &headers, &body);
            let answer = answer(name.clone(), &request);
            let time = time_of(&request);
            if let Ok(mut kept) = kept.lock() {
                kept.push(request);
            }
            let slots = Arc::clone(&used);
            async move {
                if let Some(time) = time {
                    slots.take();
                    tokio::time::sleep(time).await;
                    slots.free();
                }
                answer
            }
        };
        let app = Router::new()
            .fallback(handler)
            .layer(DefaultBodyLimit::disable());
        let server = tokio::spawn(async move {
            // Ends with the task only.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self {
            address,
            recorded,
            slots,
            server,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Most requests with the header [`TAKES_MS`] that there were at once since the last call.
    pub fn take_most(&self) -> usize {
        self.slots.most.swap(0, Ordering::SeqCst)
    }

    /// Takes what has come since the last call, oldest first.
    pub fn take(&self) -> Vec<Recorded> {
        let recorded = self.recorded.lock();
        recorded
            .map(|mut recorded| std::mem::take(&mut *recorded))
            .unwrap_or_default()
    }
}

/// Requests that take time (header [`TAKES_MS`]).
#[derive(Debug, Default)]
struct Slots {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Slots {
    fn take(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn free(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

fn time_of(request: &Recorded) -> Option<Duration> {
    let mut headers = request.headers.iter();
    let (_, ms) = headers.find(|(name, _)| name == TAKES_MS)?;
    Some(Duration::from_millis(ms.parse().ok()?))
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn record(method: &Method, uri: &Uri, headers: &HeaderMap, body: &Bytes) -> Recorded {
    let path = uri.path_and_query().map(ToString::to_string);
    let headers = headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.to_string(), value)
    });
    Recorded {
        method: method.to_string(),
        path: path.unwrap_or_default(),
        headers: headers.collect(),
        body: body.to_vec(),
    }
}

fn answer(name: String, request: &Recorded) -> ([(&'static str, String); 1], Json<Value>) {
    let headers = request.headers.iter().cloned();
    let seen: Map<String, Value> = headers.map(|(name, value)| (name, value.into())).collect();
    let usage = json!({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}});
    let body = json!({"headers": seen, "usage": usage});
    ([("x-engine", name)], Json(body))
}
