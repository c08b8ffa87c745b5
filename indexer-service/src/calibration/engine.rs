//! Talks to one engine.

use std::net::SocketAddr;
use std::time::Duration;

use prefixway_core::text::calibration::{Answer, Probe};
use reqwest::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::board::{EngineState, Facts};

/// Largest answer read.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Most names and adapters kept.
const MAX_NAMES: usize = 1024;

/// A client for engines.
///
/// # Errors
/// It can't be made.
pub(super) fn client(timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .timeout(timeout)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
}

/// What one look brought.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) facts: Facts,
    /// To each probe; `None`: not answered.
    pub(super) answers: Vec<Option<Answer>>,
    /// Why the answers can't be judged.
    pub(super) problem: Option<EngineState>,
}

/// An engine that did not answer as it should.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("no answer: {0}")]
    Request(#[from] reqwest::Error),
    #[error("answer with status {0}")]
    Status(StatusCode),
    #[error("answer is larger than {MAX_ANSWER_BYTES} bytes")]
    TooLarge,
    #[error("answer is not what /tokenize gives")]
    Shape,
}

impl AskError {
    /// Whether the page is just not there, or another one.
    fn is_another_server(&self) -> bool {
        matches!(self, Self::Shape)
            || matches!(self, Self::Status(status) if status.is_client_error())
    }
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Card>,
}

#[derive(Deserialize)]
struct Card {
    id: String,
    parent: Option<String>,
    max_model_len: Option<u64>,
}

#[derive(Deserialize)]
struct Tokens {
    tokens: Vec<u32>,
}

/// One engine.
pub(super) struct Engine<'a> {
    client: &'a reqwest::Client,
    address: SocketAddr,
}

impl<'a> Engine<'a> {
    pub(super) fn new(client: &'a reqwest::Client, address: SocketAddr) -> Self {
        Self { client, address }
    }

    /// Asks for facts, then all probes.
    pub(super) async fn look(&self, probes: &[Probe]) -> Look {
        let mut look = Look::default();
        match self.facts().await {
            Ok(facts) => look.facts = facts,
            Err(error) => {
                look.problem = Some(EngineState::Unreachable(error.to_string()));
                return look;
            }
        }
        for probe in probes {
            match self.ask(&look.facts, probe).await {
                Ok(answer) => look.answers.push(Some(answer)),
                Err(AskError::Status(
                    status @ (StatusCode::NOT_FOUND
                    | StatusCode::METHOD_NOT_ALLOWED
                    | StatusCode::UNAUTHORIZED
                    | StatusCode::FORBIDDEN),
                )) => {
                    let why = format!("/tokenize answers with status {status}");
                    look.problem = Some(EngineState::Unavailable(why));
                    return look;
                }
                // A fault over this one probe says nothing about the others.
                Err(AskError::Status(StatusCode::INTERNAL_SERVER_ERROR)) => look.answers.push(None),
                Err(error) => {
                    look.problem = Some(EngineState::Unreachable(error.to_string()));
                    return look;
                }
            }
        }
        look
    }

    /// What the engine says of itself; it is reached if it answers at all.
    async fn facts(&self) -> Result<Facts, AskError> {
        let mut facts = Facts::default();
        match self.get::<Version>("/version").await {
            Ok(found) => facts.version = found.version,
            Err(error) if error.is_another_server() => {}
            Err(error) => return Err(error),
        }
        match self.get::<Models>("/v1/models").await {
            Ok(models) => {
                for card in models.data.into_iter().take(MAX_NAMES) {
                    if card.parent.is_some() {
                        facts.adapters.push(card.id);
                    } else {
                        facts.max_model_len = facts.max_model_len.or(card.max_model_len);
                        facts.served_names.push(card.id);
                    }
                }
            }
            Err(error) if error.is_another_server() => {}
            Err(error) => return Err(error),
        }
        Ok(facts)
    }

    async fn ask(&self, facts: &Facts, probe: &Probe) -> Result<Answer, AskError> {
        let body = match facts.served_names.first() {
            Some(name) => probe.body_for(name),
            None => probe.body(),
        };
        let request = self
            .client
            .post(format!("http://{}/tokenize", self.address))
            .header("content-type", "application/json")
            .body(body);
        match read::<Tokens>(request).await {
            Ok(found) => Ok(Answer::Tokens(found.tokens)),
            Err(AskError::Status(StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY)) => {
                Ok(Answer::Refused)
            }
            Err(error) => Err(error),
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AskError> {
        read(self.client.get(format!("http://{}{path}", self.address))).await
    }
}

async fn read<T: DeserializeOwned>(request: reqwest::RequestBuilder) -> Result<T, AskError> {
    let mut answer = request.send().await.map_err(reqwest::Error::without_url)?;
    if !answer.status().is_success() {
        return Err(AskError::Status(answer.status()));
    }
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
        if body.len() + part.len() > MAX_ANSWER_BYTES {
            return Err(AskError::TooLarge);
        }
        body.extend_from_slice(&part);
    }
    serde_json::from_slice(&body).map_err(|_| AskError::Shape)
}
