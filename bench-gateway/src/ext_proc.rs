//! The least that an `ext_proc` server can do: take the body and set the header.
//!
//! The messages are those parts of `envoy.service.ext_proc.v3` that it takes (field numbers as in Envoy's files).

use std::convert::Infallible;
use std::net::SocketAddr;

use tokio_stream::StreamExt;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Context, Poll, Service, http};
use tonic::{Request, Response, Status, Streaming};

#[derive(Clone, PartialEq, prost::Message)]
struct ProcessingRequest {
    #[prost(oneof = "Part", tags = "2, 4")]
    part: Option<Part>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Part {
    #[prost(message, tag = "2")]
    Headers(Ignored),
    #[prost(message, tag = "4")]
    Body(HttpBody),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Ignored {}

#[derive(Clone, PartialEq, prost::Message)]
struct HttpBody {
    #[prost(bytes = "vec", tag = "1")]
    body: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProcessingResponse {
    #[prost(oneof = "Reply", tags = "1, 3")]
    reply: Option<Reply>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Reply {
    #[prost(message, tag = "1")]
    Headers(Outcome),
    #[prost(message, tag = "3")]
    Body(Outcome),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Outcome {
    #[prost(message, optional, tag = "1")]
    common: Option<Common>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Common {
    #[prost(message, optional, tag = "2")]
    headers: Option<HeaderMutation>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    set: Vec<HeaderOption>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HeaderOption {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Header {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "vec", tag = "3")]
    raw_value: Vec<u8>,
}

/// Names one endpoint in the header, whatever comes.
#[derive(Clone)]
struct Picker {
    endpoint: String,
}

type Replies =
    std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<ProcessingResponse, Status>> + Send>>;

impl tonic::server::StreamingService<ProcessingRequest> for Picker {
    type Response = ProcessingResponse;
    type ResponseStream = Replies;
    type Future = BoxFuture<Response<Replies>, Status>;

    fn call(&mut self, request: Request<Streaming<ProcessingRequest>>) -> Self::Future {
        let endpoint = self.endpoint.clone();
        let replies = request.into_inner().map(move |request| {
            let reply = match request?.part {
                Some(Part::Body(_)) => Reply::Body(named(&endpoint)),
                _ => Reply::Headers(Outcome::default()),
            };
            Ok(ProcessingResponse { reply: Some(reply) })
        });
        Box::pin(async move { Ok(Response::new(Box::pin(replies) as Replies)) })
    }
}

fn named(endpoint: &str) -> Outcome {
    let header = Header {
        key: "x-gateway-destination-endpoint".to_owned(),
        raw_value: endpoint.as_bytes().to_vec(),
    };
    let set = vec![HeaderOption {
        header: Some(header),
    }];
    Outcome {
        common: Some(Common {
            headers: Some(HeaderMutation { set }),
        }),
    }
}

impl tonic::server::NamedService for Picker {
    const NAME: &'static str = "envoy.service.ext_proc.v3.ExternalProcessor";
}

impl Service<http::Request<Body>> for Picker {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let picker = self.clone();
        Box::pin(async move {
            let codec = tonic_prost::ProstCodec::default();
            let mut grpc =
                tonic::server::Grpc::new(codec).apply_max_message_size_config(Some(32 << 20), None);
            Ok(grpc.streaming(picker, request).await)
        })
    }
}

/// Serves until the process ends; the address it listens on.
///
/// # Errors
/// When no port is free.
pub(crate) async fn serve(endpoint: SocketAddr) -> anyhow::Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let picker = Picker {
        endpoint: endpoint.to_string(),
    };
    tokio::spawn(
        tonic::transport::Server::builder()
            // Envoy resets each stream when it has its answer; a server that is behind would take that for an attack.
            .http2_max_pending_accept_reset_streams(Some(usize::MAX))
            .http2_max_local_error_reset_streams(Some(usize::MAX))
            .add_service(picker)
            .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener)),
    );
    Ok(address)
}
