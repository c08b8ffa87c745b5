//! The request paths whose bodies are understood.

/// An inference API of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// `/v1/messages`: model, streaming and load are read, the prompt text is not derived.
    Messages,
    /// `/v1/responses`: model, streaming and load are read, the prompt text is not derived.
    Responses,
}

impl Api {
    /// The API that `path` names; a query string (and a fragment) is ignored. `None`: no known inference call.
    pub fn from_path(path: &str) -> Option<Self> {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completions),
            "/v1/messages" => Some(Self::Messages),
            "/v1/responses" => Some(Self::Responses),
            _ => None,
        }
    }

    /// The API's name as a metric label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Messages => "messages",
            Self::Responses => "responses",
        }
    }
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
        assert_eq!(Api::from_path("/v1/models"), None);
        assert_eq!(Api::from_path("/v1/chat/completions/render"), None);
        assert_eq!(Api::from_path("/?/v1/completions"), None);
    }
}
