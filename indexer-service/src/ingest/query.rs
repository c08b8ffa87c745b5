//! Questions of people and other systems.
//!
//! They wait in a queue of their own, which is short: when it is full, who asks is told so. One is answered after each turn of events, and
//! each takes little; a search through the whole index goes on by slices.

use std::sync::Arc;

use prefixway_core::hash::Seed;
use prefixway_core::index::{SharedPrefix, SharedScan};
use prefixway_core::proto;
use prefixway_core::snapshot::{Credit, Endpoints, PromptHashes, matched};
use prefixway_core::text::TokenBytes;
use tokio::sync::{mpsc, oneshot};

use super::models::Model;
use super::{Ingest, Knowledge};

/// Questions that may wait.
pub(super) const QUERY_QUEUE: usize = 32;
/// Rungs that are looked at in one turn: some hundred microseconds.
const SLICE_RUNGS: u32 = 8_192;

/// A question, and where the answer goes.
#[derive(Debug)]
pub enum Query {
    /// What a request's `model` means.
    Model {
        /// The name; `None`: the request has none.
        name: Option<String>,
        /// The model; `None`: none is meant.
        reply: oneshot::Sender<Option<ModelView>>,
    },
    /// What each endpoint of a model holds of a prompt.
    Prefix {
        /// Number of the model.
        model: usize,
        /// Hashes of the prompt.
        prompt: PromptHashes,
        /// The answer.
        reply: oneshot::Sender<PrefixView>,
    },
    /// The prefixes that are shared most.
    Shared {
        /// The search.
        scan: SharedScan,
        /// The answer; `None`: another search is under way.
        reply: oneshot::Sender<Option<Vec<SharedView>>>,
    },
}

/// A model as far as its prompts are concerned.
#[derive(Clone, Debug)]
pub struct ModelView {
    /// Its number.
    pub number: usize,
    /// As gateways see it.
    pub profile: Arc<proto::ModelProfile>,
    /// The adapter that the name means.
    pub adapter: Option<String>,
    /// Bytes of its tokens, where they spell its prompts.
    pub vocabulary: Option<TokenBytes>,
    /// The deployment's seed.
    pub seed: Seed,
    /// Engines' local time minus UTC.
    pub utc_offset_s: i32,
    /// Bytes of a prompt that are hashed.
    pub max_prompt_bytes: usize,
}

/// What is held of a prompt.
#[derive(Clone, Debug)]
pub struct PrefixView {
    /// Version of the published table that was looked at.
    pub version: u64,
    /// Bytes up to the deepest rung that anybody holds.
    pub matched_bytes: u64,
    /// Tokens up to there.
    pub matched_tokens: u32,
    /// The model's endpoints, in order of the settings.
    pub endpoints: Vec<HolderView>,
}

/// What an endpoint holds of a prompt.
#[derive(Clone, Debug)]
pub struct HolderView {
    /// `ip:port`.
    pub address: String,
    /// Data-parallel rank.
    pub rank: Option<u32>,
    /// Tokens per block; 0 = not known.
    pub block_size: u32,
    /// By what that is known.
    pub knowledge: Knowledge,
    /// What it holds.
    pub credit: Credit,
}

/// A prefix that several endpoints hold.
#[derive(Clone, Debug)]
pub struct SharedView {
    /// Where it ends.
    pub prefix: SharedPrefix,
    /// Endpoints that hold it, as `address` or `address#rank`.
    pub endpoints: Vec<String>,
    /// Ids of their models.
    pub models: Vec<String>,
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// Too many wait.
    #[error("too many questions wait")]
    Full,
    /// The owner of the index has stopped.
    #[error("the index has stopped")]
    Stopped,
}

/// Asks the owner of the index; clones ask the same one.
#[derive(Clone, Debug)]
pub struct Asker(mpsc::Sender<Query>);

/// A queue of questions.
pub(super) fn channel() -> (Asker, mpsc::Receiver<Query>) {
    let (sender, receiver) = mpsc::channel(QUERY_QUEUE);
    (Asker(sender), receiver)
}

impl Asker {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// Too many questions wait, or there is nobody to answer.
    pub async fn ask<T>(
        &self,
        query: impl FnOnce(oneshot::Sender<T>) -> Query,
    ) -> Result<T, Unanswered> {
        let (reply, answer) = oneshot::channel();
        self.0.try_send(query(reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Unanswered::Full,
            mpsc::error::TrySendError::Closed(_) => Unanswered::Stopped,
        })?;
        answer.await.map_err(|_| Unanswered::Stopped)
    }
}

/// A search that goes on, and where its result goes.
type Searching = (SharedScan, oneshot::Sender<Option<Vec<SharedView>>>);

/// What questions need.
#[derive(Debug)]
pub(super) struct Queries {
    pub(super) queue: mpsc::Receiver<Query>,
    search: Option<Searching>,
    /// Endpoints as gateways see them, by their revision.
    endpoints: Option<(u64, Endpoints)>,
}

impl Queries {
    pub(super) fn new(queue: mpsc::Receiver<Query>) -> Self {
        Self {
            queue,
            search: None,
            endpoints: None,
        }
    }

    pub(super) fn is_searching(&self) -> bool {
        self.search.is_some()
    }
}

impl Ingest {
    /// Answers the question that waits longest, and goes on with a search: what comes between turns of events.
    pub(super) fn answer_next(&mut self) {
        if let Ok(query) = self.queries.queue.try_recv() {
            self.answer(query);
        }
        self.search();
    }

    /// Answers a question. Where nobody waits for the answer any more, there is nothing to do.
    pub(super) fn answer(&mut self, query: Query) {
        match query {
            Query::Model { name, reply } => {
                let _ = reply.send(self.model_view(name.as_deref()));
            }
            Query::Prefix {
                model,
                prompt,
                reply,
            } => {
                let _ = reply.send(self.prefix_view(model, &prompt));
            }
            Query::Shared { scan, reply } => {
                if self.queries.is_searching() {
                    let _ = reply.send(None);
                } else {
                    self.queries.search = Some((scan, reply));
                }
            }
        }
    }

    /// Goes on with a search by a slice.
    pub(super) fn search(&mut self) {
        let Some((mut scan, reply)) = self.queries.search.take() else {
            return;
        };
        if reply.is_closed() {
            return;
        }
        if !self.index.scan_shared(&mut scan, SLICE_RUNGS) {
            self.queries.search = Some((scan, reply));
            return;
        }
        let _ = reply.send(Some(self.shared_views(&scan)));
    }

    fn model_view(&self, name: Option<&str>) -> Option<ModelView> {
        let default = || {
            let default = self.config.policy.default_model.as_ref();
            match (default, self.models.as_slice()) {
                (Some(default), models) => models
                    .iter()
                    .position(|model| model.settings_id() == default),
                (None, [_]) => Some(0),
                (None, _) => None,
            }
        };
        let (number, adapter) = match name {
            None => (default()?, None),
            Some(name) => {
                let find = |is_it: &dyn Fn(&Model) -> bool| self.models.iter().position(is_it);
                match find(&|model| model.is_named(name)) {
                    Some(number) => (number, None),
                    None => (
                        find(&|model| model.has_adapter(name))?,
                        Some(name.to_owned()),
                    ),
                }
            }
        };
        let model = self.models.get(number)?;
        let profile = model.message();
        Some(ModelView {
            number,
            utc_offset_s: profile
                .utc_offset_s
                .unwrap_or(self.config.policy.utc_offset_s),
            profile: Arc::new(profile),
            adapter,
            vocabulary: model.spelling_vocabulary().cloned(),
            seed: self.seed,
            max_prompt_bytes: self.config.policy.max_prompt_bytes as usize,
        })
    }

    fn prefix_view(&mut self, model: usize, prompt: &PromptHashes) -> PrefixView {
        let revision = self.endpoints.revision();
        let message = || Endpoints::from_message(&self.endpoints.message(&self.config, &[]));
        let (_, endpoints) = match self.queries.endpoints.take() {
            Some(current) if current.0 == revision => self.queries.endpoints.insert(current),
            _ => self.queries.endpoints.insert((revision, message())),
        };
        let (table, sets) = (self.publisher.table(), self.publisher.sets());
        let found = matched(table, sets, endpoints, &(), &prompt.rungs);
        // The message names all endpoints in order of the settings.
        let endpoints = self.endpoints.list.iter().zip(found.credits);
        PrefixView {
            version: self.publisher.version(),
            matched_bytes: found.bytes,
            matched_tokens: found.tokens,
            endpoints: endpoints
                .filter(|(endpoint, _)| endpoint.settings.model == model)
                .map(|(endpoint, credit)| HolderView {
                    address: endpoint.settings.address.to_string(),
                    rank: endpoint.settings.rank,
                    block_size: endpoint.block_size,
                    knowledge: endpoint.knowledge,
                    credit,
                })
                .collect(),
        }
    }

    fn shared_views(&self, scan: &SharedScan) -> Vec<SharedView> {
        self.index
            .shared(scan)
            .into_iter()
            .map(|prefix| {
                let holds = |endpoint: &&super::endpoints::Endpoint| {
                    let mut holders = endpoint.holders.iter();
                    holders.any(|holder| prefix.holders.binary_search(holder).is_ok())
                };
                let holding: Vec<_> = self.endpoints.list.iter().filter(holds).collect();
                let mut models: Vec<String> = holding
                    .iter()
                    .filter_map(|endpoint| self.models.get(endpoint.settings.model))
                    .map(|model| model.settings_id().to_owned())
                    .collect();
                models.sort_unstable();
                models.dedup();
                SharedView {
                    endpoints: holding
                        .iter()
                        .map(|endpoint| endpoint.label.endpoint.clone())
                        .collect(),
                    models,
                    prefix,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_and_a_stopped_owner_are_told() {
        let (asker, queue) = channel();
        let ask = || asker.ask(|reply| Query::Model { name: None, reply });
        let mut waiting = Vec::new();
        for _ in 0..QUERY_QUEUE {
            let asker = asker.clone();
            waiting.push(tokio::spawn(async move {
                asker
                    .ask(|reply| Query::Model { name: None, reply })
                    .await
                    .map(drop)
            }));
            tokio::task::yield_now().await;
        }
        assert_eq!(ask().await.unwrap_err(), Unanswered::Full);
        drop(queue);
        for question in waiting {
            assert_eq!(question.await.unwrap(), Err(Unanswered::Stopped));
        }
        assert_eq!(ask().await.unwrap_err(), Unanswered::Stopped);
    }
}
