//! What can stand between a body and its canonical text.

use super::json::JsonError;

/// Why a body can't be an inference request at all; engines answer such bodies with an error too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The body is not UTF-8.
    #[error("body is not UTF-8 from byte {at} on")]
    Utf8 {
        /// Length of the valid part, in bytes.
        at: usize,
    },
    /// The body is not JSON.
    #[error("body is not JSON: {0}")]
    Json(#[from] JsonError),
    /// The body is JSON, but no object.
    #[error("body is not a JSON object")]
    NotObject,
    /// `model` is neither a string nor null.
    #[error("model is not a string")]
    ModelType,
}

impl BodyError {
    /// The request field at fault, for an error reply; `None`: the body as a whole.
    pub fn param(&self) -> Option<&'static str> {
        match self {
            Self::ModelType => Some("model"),
            _ => None,
        }
    }
}

/// Why a request has no canonical text; it is then routed by load alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unscorable {
    /// The API's translation to a prompt is not known.
    #[error("the API's translation to a prompt is not known")]
    Api,
    /// The model has no chat template.
    #[error("the model has no chat template")]
    NoTemplate,
    /// The request brings its own chat template, which is not trusted.
    #[error("the request brings its own chat template")]
    RequestTemplate,
    /// The template refused the request or needs something that is not supported.
    #[error("the chat template failed")]
    Template,
    /// Rendering took too much work or made too much text.
    #[error("the prompt exceeds a limit")]
    Limit,
    /// A string of the prompt holds half a surrogate pair.
    #[error("the prompt holds half a surrogate pair")]
    LoneSurrogate,
    /// A field has a value that the engine refuses.
    #[error("a field has a value that engines refuse")]
    Invalid,
    /// The request asks the engine not to read the prefix cache.
    #[error("the request does not read the prefix cache")]
    NoCacheRead,
    /// The engine is asked to cut the prompt.
    #[error("the engine is asked to cut the prompt")]
    Truncation,
    /// The prompt is media from its start on.
    #[error("the prompt starts with media")]
    Media,
    /// The prompt is given as embeddings.
    #[error("the prompt is given as embeddings")]
    Embeddings,
    /// The conversation goes on from one that the engine has stored.
    #[error("the conversation goes on from one that the engine has stored")]
    StoredState,
    /// Token ids of an earlier prefill replace the messages.
    #[error("forwarded token ids replace the messages")]
    ForwardedTokens,
    /// The request holds several prompts where one was asked for.
    #[error("the request holds several prompts")]
    Batch,
}

impl Unscorable {
    /// Every reason, for defining metrics ahead of time.
    pub const ALL: [Self; 14] = [
        Self::Api,
        Self::NoTemplate,
        Self::RequestTemplate,
        Self::Template,
        Self::Limit,
        Self::LoneSurrogate,
        Self::Invalid,
        Self::NoCacheRead,
        Self::Truncation,
        Self::Media,
        Self::Embeddings,
        Self::StoredState,
        Self::ForwardedTokens,
        Self::Batch,
    ];

    /// The reason as a metric label.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::NoTemplate => "no_template",
            Self::RequestTemplate => "request_template",
            Self::Template => "template",
            Self::Limit => "limit",
            Self::LoneSurrogate => "lone_surrogate",
            Self::Invalid => "invalid",
            Self::NoCacheRead => "no_cache_read",
            Self::Truncation => "truncation",
            Self::Media => "media",
            Self::Embeddings => "embeddings",
            Self::StoredState => "stored_state",
            Self::ForwardedTokens => "forwarded_tokens",
            Self::Batch => "batch",
        }
    }
}

/// Why a model's files can't be made into a profile or token bytes.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A file is not JSON, or not of the expected shape.
    #[error("{file} can't be read")]
    File {
        /// The file's usual name.
        file: &'static str,
        /// What the reader says.
        #[source]
        source: serde_json::Error,
    },
    /// The tokenizer is of a kind whose tokens don't spell the text.
    #[error("tokenizer model {kind} is not supported, only BPE keeps the text")]
    Model {
        /// The model's type in tokenizer.json.
        kind: String,
    },
    /// Unknown characters become one token that stands for none of them.
    #[error("tokenizer maps unknown characters to {unk} and has no byte fallback")]
    UnknownToken {
        /// The unknown token.
        unk: String,
    },
    /// A step of the tokenizer changes or drops text in a way that can't be followed.
    #[error("{stage} {kind} is not supported: {why}")]
    Step {
        /// Which part of tokenizer.json: normalizer, pre-tokenizer or post-processor.
        stage: &'static str,
        /// The step's type.
        kind: String,
        /// What it does.
        why: &'static str,
    },
    /// The tokenizer's class does something that can't be followed.
    #[error("tokenizer class {class:?} is not supported: {why}")]
    TokenizerClass {
        /// Its name in `tokenizer_config.json`.
        class: String,
        /// What it does.
        why: &'static str,
    },
    /// An added token has flags that the rules for this tokenizer don't cover.
    #[error("added token {token:?} is not supported: {why}")]
    AddedToken {
        /// The token's literal.
        token: String,
        /// Which flag.
        why: &'static str,
    },
    /// A token id is too large to be kept in a table.
    #[error("token id {id} is over {max}")]
    TokenId {
        /// The id.
        id: u64,
        /// The largest id that is kept.
        max: u32,
    },
    /// The engine doesn't render the model's chats through its template.
    #[error("renderer {renderer} is not supported: {why}")]
    Renderer {
        /// The engine's name for it.
        renderer: String,
        /// What it does.
        why: &'static str,
    },
    /// The chat template can't be compiled.
    #[error("chat template can't be compiled")]
    Template {
        /// What the template engine says.
        #[source]
        source: minijinja::Error,
    },
    /// The default template arguments are no JSON object.
    #[error("default template arguments are not a JSON object")]
    DefaultKwargs,
    /// The added-token literals can't be searched for.
    #[error("added tokens can't be searched for")]
    Literals {
        /// What the searcher says.
        #[source]
        source: Box<aho_corasick::BuildError>,
    },
}
