//! What a level saw of one request.

use prefixway_core::hash::Space;

/// What became of a request, as far as the level can see.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Where it went.
    pub(crate) fate: Fate,
    /// Its prompt's identity; `None`: the level can't see it.
    pub(crate) identity: Option<Identity>,
    /// Tokens that the picked pod was said to hold.
    pub(crate) matched_tokens: Option<u32>,
    /// Whether its answer was taken for a stream.
    pub(crate) is_streamed: Option<bool>,
    /// Load that it booked while it ran.
    pub(crate) load_units: Option<u32>,
    /// Load that was left when it was over.
    pub(crate) left_over: Option<u32>,
    /// What the pod got.
    pub(crate) upstream: Option<Upstream>,
    /// Headers of the pod's answer that the client got although the pod did not send them.
    pub(crate) added_headers: Option<Vec<(String, String)>>,
    /// Whether `100 Continue` came in time, where the client waited for it.
    pub(crate) continued: Option<bool>,
    /// Bytes by which a filter's memory has grown.
    pub(crate) grown_bytes: Option<usize>,
}

impl Seen {
    /// A request of which nothing but its end was seen.
    pub(crate) fn new(fate: Fate) -> Self {
        Self {
            fate,
            identity: None,
            matched_tokens: None,
            is_streamed: None,
            load_units: None,
            left_over: None,
            upstream: None,
            added_headers: None,
            continued: None,
            grown_bytes: None,
        }
    }
}

/// Where a request went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// To pods that the router chose, best first.
    Routed(Vec<String>),
    /// On, without a choice.
    Passed,
    /// Nowhere: the router answered.
    Answered(Answer),
}

/// An answer of the router's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// What a pod got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upstream {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// Whatever is compared to find cached prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// There is none: the request is routed by load alone.
    None,
    /// Hashes at the rungs of the prompt, of a batch of the first one that has any, and the prompts where they can be seen.
    Known {
        rungs: Vec<u64>,
        prompts: Option<Prompts>,
    },
}

/// Prompts in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompts {
    /// Model, adapter and salt: prompts in different scopes never match.
    pub(crate) scope: [String; 3],
    /// Each prompt.
    pub(crate) texts: Vec<Text>,
}

/// One prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) space: Space,
    pub(crate) bytes: Vec<u8>,
    /// Whether something that is no text follows.
    pub(crate) is_truncated: bool,
}
