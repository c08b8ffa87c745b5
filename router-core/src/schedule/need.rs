//! What is asked of the schedule.

use hashbrown::HashMap;

use crate::{
    admission::Limits,
    load::EndpointLoad,
    snapshot::{Credit, EndpointInfo, EndpointKey},
};

/// Phase the endpoint is wanted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Prefill and decode in one place, or the decode leg.
    #[default]
    Decode,
    /// The prefill leg.
    Prefill,
}

/// What a request needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Need<'a> {
    /// Profile id of the model; empty = any.
    pub model: &'a str,
    /// Adapter, when not the base model.
    pub adapter: Option<&'a str>,
    /// Pool; empty = any.
    pub pool: &'a str,
    /// Phase.
    pub phase: Phase,
    /// Tokens of the prompt, estimated.
    pub prompt_tokens: u32,
    /// Tokens that may be generated, when the request says so.
    pub output_tokens: Option<u32>,
    /// When an endpoint is full.
    pub limits: Limits,
    /// What names the session, as a hash; `None` when the request belongs to none.
    pub session: Option<u64>,
    /// Time to the first token that is wanted, in ms.
    pub ttft_ms: Option<f64>,
    /// Time for each token after it that is wanted, in ms.
    pub tpot_ms: Option<f64>,
    /// Request headers that the profile asks for, names in lower case.
    pub headers: &'a [(String, String)],
    /// When each endpoint was last given a request of which nobody held anything; greater = later.
    pub last_cold: Option<&'a HashMap<EndpointKey, u64>>,
}

impl<'a> Need<'a> {
    /// A request header that the profile asked for.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(of, _)| of == name)?;
        Some(value)
    }
}

/// An endpoint with what is known of it for one request.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The endpoint.
    pub endpoint: &'a EndpointInfo,
    /// Number of its shard.
    pub shard: usize,
    /// What it holds of the prompt.
    pub credit: Credit,
    /// Its load.
    pub load: EndpointLoad,
}
