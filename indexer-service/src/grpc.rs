//! The gRPC service `prefixway.v1.Snapshot`: one bidirectional stream per proxy.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use prefixway_core::proto::{Down, Subscribe, Up, up};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};

use crate::ingest::{Command, Handle};
use crate::metrics::Reason;
use crate::publish::{StreamId, Subscription};
use crate::shutdown::Shutdown;

#[expect(
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    unused_qualifications,
    reason = "generated; see router-core/tests/generated_proto.rs"
)]
mod stubs {
    include!("generated/prefixway.v1.rs");
}

pub use stubs::{snapshot_client, snapshot_server};

/// Time that a gateway has to say what it wants.
const SUBSCRIBE_LIMIT: Duration = Duration::from_secs(10);
/// Largest message from a gateway.
const MAX_UP_BYTES: usize = 4 << 20;
/// Most pools that a gateway may ask for, and the longest name of a pool or gateway.
const MAX_POOLS: usize = 256;
const MAX_NAME_BYTES: usize = 512;
/// HTTP/2 pings find gateways that are gone without a word.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Flow control windows that let a base of many megabytes through without a round trip per 64 KiB.
const WINDOW_BYTES: u32 = 8 << 20;

/// Serves streams until `shutdown`.
pub async fn serve(listener: TcpListener, ingest: Handle, shutdown: Shutdown) {
    let service = snapshot_server::SnapshotServer::new(Service { ingest })
        .max_decoding_message_size(MAX_UP_BYTES);
    let served = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(2 * WINDOW_BYTES)
        .tcp_nodelay(true)
        .add_service(service)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), shutdown.wait())
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "grpc server failed");
    }
}

#[derive(Debug)]
struct Service {
    ingest: Handle,
}

#[tonic::async_trait]
impl snapshot_server::Snapshot for Service {
    type WatchStream = Downstream;

    async fn watch(&self, request: Request<Streaming<Up>>) -> Result<Response<Downstream>, Status> {
        let mut ups = request.into_inner();
        let subscribe = tokio::time::timeout(SUBSCRIBE_LIMIT, first_message(&mut ups))
            .await
            .map_err(|_| Status::deadline_exceeded("no Subscribe came"))??;
        let Some(Subscription {
            id,
            first,
            queue,
            ended,
        }) = self.ingest.subscribe(subscribe).await
        else {
            return Err(Status::unavailable("the indexer stops"));
        };
        let open = Open {
            ingest: self.ingest.clone(),
            id,
        };
        let reader = Box::pin(read(self.ingest.clone(), id, ups));
        Ok(Response::new(Downstream {
            reader,
            first: first.into_iter(),
            queue,
            ended,
            is_over: false,
            _open: open,
        }))
    }
}

async fn first_message(ups: &mut Streaming<Up>) -> Result<Subscribe, Status> {
    match ups.message().await?.and_then(|up| up.kind) {
        Some(up::Kind::Subscribe(subscribe)) => bounded(subscribe),
        _ => Err(Status::invalid_argument(
            "the first message must be Subscribe",
        )),
    }
}

/// A subscription is kept as long as its stream, and its gateway's name is logged.
fn bounded(subscribe: Subscribe) -> Result<Subscribe, Status> {
    let names = subscribe.pools.iter().chain([&subscribe.gateway]);
    if subscribe.pools.len() > MAX_POOLS || names.into_iter().any(|n| n.len() > MAX_NAME_BYTES) {
        return Err(Status::invalid_argument(format!(
            "Subscribe has at most {MAX_POOLS} pools, and names of at most {MAX_NAME_BYTES} bytes"
        )));
    }
    Ok(subscribe)
}

/// Hands on what the gateway says until it stops; gives the status that the stream ends with.
async fn read(ingest: Handle, stream: StreamId, mut ups: Streaming<Up>) -> Option<Status> {
    loop {
        match ups.message().await {
            Ok(Some(Up {
                kind: Some(up::Kind::Subscribe(_)),
                ..
            })) => {
                return Some(Status::invalid_argument(
                    "Subscribe comes once, on a new stream",
                ));
            }
            Ok(Some(message)) => {
                if ingest.send(Command::Up { stream, message }).await.is_err() {
                    return Some(Status::unavailable("the indexer stops"));
                }
            }
            Ok(None) => return None,
            Err(status) => return Some(status),
        }
    }
}

/// The stream to one gateway. Polling it also reads what the gateway says, so that the two halves end together and no task is left behind.
pub struct Downstream {
    reader: Pin<Box<dyn Future<Output = Option<Status>> + Send>>,
    first: std::vec::IntoIter<Down>,
    queue: mpsc::Receiver<Down>,
    ended: Arc<OnceLock<Reason>>,
    is_over: bool,
    _open: Open,
}

impl std::fmt::Debug for Downstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Downstream")
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

impl Stream for Downstream {
    type Item = Result<Down, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(status) = self.reader.as_mut().poll(context) {
            self.is_over = true;
            return Poll::Ready(status.map(Err));
        }
        if let Some(down) = self.first.next() {
            return Poll::Ready(Some(Ok(down)));
        }
        match self.queue.poll_recv(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(down)) => Poll::Ready(Some(Ok(down))),
            Poll::Ready(None) => {
                self.is_over = true;
                Poll::Ready(Some(Err(match self.ended.get() {
                    Some(Reason::Slow) => {
                        Status::resource_exhausted("the gateway reads too slowly: subscribe anew")
                    }
                    Some(_) => Status::aborted("the version line has ended: subscribe anew"),
                    None => Status::unavailable("the indexer stops"),
                })))
            }
        }
    }
}

/// Tells the owner of the index when a stream is no longer read.
#[derive(Debug)]
struct Open {
    ingest: Handle,
    id: StreamId,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.ingest.closed(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_is_bounded() {
        let subscribe = |pools: usize, name: usize| Subscribe {
            pools: vec!["p".repeat(name); pools],
            gateway: "g".repeat(name),
            ..Subscribe::default()
        };
        assert!(bounded(subscribe(MAX_POOLS, MAX_NAME_BYTES)).is_ok());
        for (pools, name) in [(MAX_POOLS + 1, 1), (0, MAX_NAME_BYTES + 1)] {
            let status = bounded(subscribe(pools, name)).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
        }
    }
}
