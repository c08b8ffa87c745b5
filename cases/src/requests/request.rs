//! A request as a client sends it.

use serde_json::Value;

use prefixway_core::text::Api;

/// How a body is put on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// HTTP/1.1 with `content-length`.
    Length,
    /// HTTP/1.1 in chunks.
    Chunked,
    /// HTTP/2, a DATA frame for each piece, without `content-length`.
    Http2,
}

impl Framing {
    /// Its name in reports.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Length => "content-length",
            Self::Chunked => "chunked",
            Self::Http2 => "http2",
        }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Method.
    pub(crate) method: String,
    /// Path with query.
    pub(crate) path: String,
    /// Headers in order, names in lower case; none that belong to a connection or to framing.
    pub(crate) headers: Vec<(String, String)>,
    /// Pieces of the body in order, some of them empty; none: there is no body.
    pub(crate) pieces: Vec<Vec<u8>>,
    /// Whether an empty piece ends the body.
    pub(crate) ends_empty: bool,
    /// The exact bytes of a `.http` file.
    pub(crate) raw: Option<Vec<u8>>,
    /// How the body is put on the wire.
    pub(crate) framing: Framing,
}

/// Headers by which routers pass destinations on: the router's own, whoever sends them.
pub(crate) const ROUTER_OWNED: [&str; 6] = [
    "x-gateway-destination-endpoint",
    "x-prefiller-host-port",
    "x-prefiller-url",
    "x-data-parallel-host-port",
    "x-data-parallel-rank",
    "x-envoy-original-dst-host",
];

impl Request {
    /// A header's first value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }

    /// The whole body.
    pub(crate) fn body(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    /// Whether the client waits for `100 Continue`.
    pub(crate) fn waits_for_continue(&self) -> bool {
        let expects = self.header("expect");
        expects.is_some_and(|value| value.eq_ignore_ascii_case("100-continue"))
    }

    /// Whether it is an inference call: POST with a body on a path that is known.
    pub(crate) fn api(&self) -> Option<Api> {
        let is_post = self.method == "POST" && !self.pieces.is_empty();
        Api::from_path(&self.path).filter(|_| is_post)
    }

    /// The same request with its body on the wire in another way.
    pub(crate) fn framed(&self, framing: Framing) -> Self {
        let body = self.body();
        let pieces = match framing {
            Framing::Length => vec![body],
            // Cut where it hurts: anywhere.
            Framing::Chunked | Framing::Http2 => body
                .chunks(body.len().div_ceil(3).max(1))
                .map(<[u8]>::to_vec)
                .collect(),
        };
        Self {
            pieces: if self.pieces.is_empty() {
                Vec::new()
            } else {
                pieces
            },
            ends_empty: framing != Framing::Length,
            framing,
            raw: None,
            ..self.clone()
        }
    }

    /// Headers that are sent, those of framing included.
    pub(crate) fn sent_headers(&self) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        if self.framing == Framing::Length && !self.pieces.is_empty() {
            headers.push(("content-length".to_owned(), self.body().len().to_string()));
        }
        headers
    }

    /// `model` of a JSON body, if there is one that can be read.
    pub(crate) fn model(&self) -> Option<String> {
        let value: Value = serde_json::from_slice(&self.body()).ok()?;
        value.get("model")?.as_str().map(str::to_owned)
    }
}
