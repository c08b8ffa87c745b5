//! gRPC streams that the filter opened.

use crate::headers::Headers;

/// Number of a gRPC stream within its VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamToken(pub u32);

/// One stream as its server sees it.
#[derive(Clone, Debug, Default)]
pub struct GrpcStream {
    /// Envoy cluster.
    pub cluster: String,
    /// `:authority` of the call.
    pub authority: String,
    /// Path, `/service/method`.
    pub path: String,
    /// Metadata the filter sent.
    pub metadata: Headers,
    /// Messages the filter sent and nobody took yet.
    pub sent: Vec<Vec<u8>>,
    /// The filter ended its side.
    pub half_closed: bool,
    /// No message can pass any more.
    pub closed: bool,
    /// Context that opened it.
    pub(crate) context: u32,
}
