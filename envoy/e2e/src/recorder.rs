//! A stand-in for an engine that answers with the request headers it saw.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::{Json, Router};
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

/// A running recorder; dropping it stops it.
#[derive(Debug)]
pub struct Recorder {
    address: SocketAddr,
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
        // The body is read to its end: a server that answers before closes the connection, and the next request on it fails.
        let app = Router::new().fallback(move |headers: HeaderMap, _: Bytes| {
            std::future::ready(answer(name.clone(), &headers))
        });
        let server = tokio::spawn(async move {
            // Ends with the task only.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { address, server })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn answer(name: String, headers: &HeaderMap) -> ([(&'static str, String); 1], Json<Value>) {
    let seen: Map<String, Value> = headers
        .iter()
        .map(|(key, value)| {
            (
                key.to_string(),
                String::from_utf8_lossy(value.as_bytes()).into(),
            )
        })
        .collect();
    ([("x-engine", name)], Json(json!({"headers": seen})))
}
