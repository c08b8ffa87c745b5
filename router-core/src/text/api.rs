//! The request paths whose bodies are understood.

use std::borrow::Cow;

/// An inference API of an engine.
///
/// Paths that none of these names pass untouched: an engine answers them itself, or knows nothing of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/chat/completions/batch`: several conversations in one request.
    ChatBatch,
    /// `/v1/completions`.
    Completions,
    /// `/v1/messages`.
    Messages,
    /// `/v1/messages/count_tokens`.
    CountTokens,
    /// `/v1/responses`.
    Responses,
    /// `/v1/embeddings`.
    Embeddings,
    /// `/pooling`, `/classify` and `/v2/embed`.
    Pooling,
    /// `/score` and `/v1/score`.
    Score,
    /// `/rerank`, `/v1/rerank` and `/v2/rerank`.
    Rerank,
    /// `/tokenize` and `/detokenize`.
    Tokenize,
    /// `/inference/v1/generate`: token ids in, token ids out.
    Generate,
    /// `/v1/audio/transcriptions`.
    Transcriptions,
    /// `/v1/audio/translations`.
    Translations,
}

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodyFormat {
    /// A JSON object.
    Json,
    /// Fields and files (`multipart/form-data`).
    Form,
}

/// How an API words its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorStyle {
    /// `{"error": {"message", "type", "param", "code"}}`.
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}}`.
    Anthropic,
}

/// Longest path that is looked at; those that are known are much shorter.
const MAX_PATH_BYTES: usize = 256;

impl Api {
    /// Every API.
    pub const ALL: [Self; 14] = [
        Self::Chat,
        Self::ChatBatch,
        Self::Completions,
        Self::Messages,
        Self::CountTokens,
        Self::Responses,
        Self::Embeddings,
        Self::Pooling,
        Self::Score,
        Self::Rerank,
        Self::Tokenize,
        Self::Generate,
        Self::Transcriptions,
        Self::Translations,
    ];

    /// The API that `path` names. `None`: no known inference call.
    ///
    /// Paths are compared as engines compare them: after the query (and a fragment) is cut off and percent escapes are undone, byte
    /// for byte. A trailing slash is another path, which an engine answers with a redirect, and so are a double slash, a prefix and
    /// other letters' case, which it does not know.
    pub fn from_path(path: &str) -> Option<Self> {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        if path.len() > MAX_PATH_BYTES {
            return None;
        }
        match unescape(path).as_ref() {
            b"/v1/chat/completions" => Some(Self::Chat),
            b"/v1/chat/completions/batch" => Some(Self::ChatBatch),
            b"/v1/completions" => Some(Self::Completions),
            b"/v1/messages" => Some(Self::Messages),
            b"/v1/messages/count_tokens" => Some(Self::CountTokens),
            b"/v1/responses" => Some(Self::Responses),
            b"/v1/embeddings" => Some(Self::Embeddings),
            b"/pooling" | b"/classify" | b"/v2/embed" => Some(Self::Pooling),
            b"/score" | b"/v1/score" => Some(Self::Score),
            b"/rerank" | b"/v1/rerank" | b"/v2/rerank" => Some(Self::Rerank),
            b"/tokenize" | b"/detokenize" => Some(Self::Tokenize),
            b"/inference/v1/generate" => Some(Self::Generate),
            b"/v1/audio/transcriptions" => Some(Self::Transcriptions),
            b"/v1/audio/translations" => Some(Self::Translations),
            _ => None,
        }
    }

    /// The API's name as a metric label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::ChatBatch => "chat_batch",
            Self::Completions => "completions",
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::Pooling => "pooling",
            Self::Score => "score",
            Self::Rerank => "rerank",
            Self::Tokenize => "tokenize",
            Self::Generate => "generate",
            Self::Transcriptions => "transcriptions",
            Self::Translations => "translations",
        }
    }

    /// How the API's bodies are written.
    pub fn body_format(self) -> BodyFormat {
        match self {
            Self::Transcriptions | Self::Translations => BodyFormat::Form,
            _ => BodyFormat::Json,
        }
    }

    /// How the API words its errors.
    pub fn error_style(self) -> ErrorStyle {
        match self {
            Self::Messages | Self::CountTokens => ErrorStyle::Anthropic,
            _ => ErrorStyle::OpenAi,
        }
    }

    /// Whether prompts of such requests are looked up in the engine's prefix cache, and can be derived here.
    pub fn has_prompt(self) -> bool {
        matches!(
            self,
            Self::Chat
                | Self::Completions
                | Self::Messages
                | Self::Responses
                | Self::Embeddings
                | Self::Generate
        )
    }

    /// Whether the engine runs its model for such a request. Tokenizing costs it next to nothing.
    pub fn runs_model(self) -> bool {
        !matches!(self, Self::Tokenize | Self::CountTokens)
    }
}

/// Undoes percent escapes; one that is none stays.
fn unescape(path: &str) -> Cow<'_, [u8]> {
    let bytes = path.as_bytes();
    if !bytes.contains(&b'%') {
        return Cow::Borrowed(bytes);
    }
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        let digit = |at: usize| {
            let digit = char::from(*after.get(at)?).to_digit(16)?;
            u8::try_from(digit).ok()
        };
        if first == b'%'
            && let (Some(high), Some(low)) = (digit(0), digit(1))
        {
            plain.push(high * 16 + low);
            rest = after.get(2..).unwrap_or_default();
        } else {
            plain.push(first);
            rest = after;
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_does_not_count() {
        assert_eq!(
            Api::from_path("/v1/messages?beta=true"),
            Some(Api::Messages)
        );
        assert_eq!(Api::from_path("/v1/chat/completions"), Some(Api::Chat));
        assert_eq!(Api::from_path("/v1/completions?"), Some(Api::Completions));
        assert_eq!(Api::from_path("/score#x"), Some(Api::Score));
        assert_eq!(Api::from_path("/?/v1/completions"), None);
    }

    #[test]
    fn other_spellings_are_other_paths() {
        for path in [
            "",
            "/",
            "/v1/models",
            "/v1/chat/completions/",
            "/v1/chat/completions/render",
            "/v1/completions/render",
            "/v1//completions",
            "//v1/completions",
            "/V1/completions",
            "/openai/v1/completions",
            "v1/completions",
            "/v1/responses/resp_1",
            "/v1/responses/resp_1/cancel",
        ] {
            assert_eq!(Api::from_path(path), None, "{path}");
        }
        assert_eq!(Api::from_path(&"/v1/completions%".repeat(100)), None);
    }

    #[test]
    fn escapes_are_undone_once() {
        assert_eq!(
            Api::from_path("/v1/%63hat%2Fcompletion%73"),
            Some(Api::Chat)
        );
        assert_eq!(Api::from_path("/v1/%2563hat/completions"), None);
        assert_eq!(Api::from_path("/score%"), None);
        assert_eq!(Api::from_path("/score%3"), None);
        assert_eq!(Api::from_path("/%zzscore"), None);
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<&str> = Api::ALL.iter().map(|api| api.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Api::ALL.len());
    }
}
