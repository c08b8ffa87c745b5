//! Events in, predictions out, through everything that is published.

use std::collections::BTreeMap;

use prefixway_core::endpoint::{HolderId, Tier};
use prefixway_core::hash::{ChunkHash, Scope, Seed, Space};
use prefixway_core::index::{Index, IndexConfig, ModelId, SourceId};
use prefixway_core::proto;
use prefixway_core::sequence::{Action, Input, SequenceTracker};
use prefixway_core::snapshot::{
    Endpoints, PromptHashes, Publisher, PublisherConfig, Replica, ReplicaError, probe::matched_in,
};
use prefixway_core::text::Prompt;

use super::ReplayError;
use super::capture::{Batch, Capture, SeqBefore};
use super::model::Model;

const SEED: Seed = Seed(0x7072_6566_6978_7761);
const PROFILE: &str = "replay";
const MODEL: ModelId = ModelId(0);
const MAX_TABLE_BYTES: usize = 1 << 30;
/// Every so many rounds of changes a new gateway subscribes, so that bases are read as well as deltas.
const ROUNDS_PER_SUBSCRIPTION: u32 = 16;
/// Bytes of a token id.
const TOKEN_BYTES: usize = 4;
/// Holder ids of a rank: one for each tier.
const HOLDERS: u32 = 3;

struct Rank<'c> {
    batches: std::iter::Peekable<std::slice::Iter<'c, Batch>>,
    tracker: SequenceTracker<&'c [u8]>,
    holders: [HolderId; 3],
}

/// The indexer and one gateway, in one thread.
pub(super) struct PublishedPath<'c> {
    index: Index,
    ranks: BTreeMap<u32, Rank<'c>>,
    next_holder: u32,
    publisher: Publisher,
    replica: Replica,
    rounds: u32,
    endpoints: Endpoints,
    block_size: u32,
    revision: u64,
    decode_errors: u64,
}

/// A prompt to predict.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<'q> {
    pub(super) adapter: &'q str,
    pub(super) salt: &'q str,
    pub(super) prompt: &'q Prompt,
    /// Rank that the request names; otherwise the best one counts.
    pub(super) rank: Option<u32>,
    /// The engine's own token ids, to tell causes of errors apart.
    pub(super) token_ids: &'q [u32],
}

impl<'c> PublishedPath<'c> {
    pub(super) fn try_new(
        model: Option<&Model>,
        capture: &'c Capture,
    ) -> Result<Self, ReplayError> {
        let mut index = Index::new(IndexConfig {
            seed: SEED,
            max_bytes: usize::MAX,
        })
        .with_token_space();
        let revision = model.map_or(0, |model| model.revision);
        let vocabulary = model.map(|model| model.tokens.clone());
        index.add_model(MODEL, PROFILE, revision, vocabulary);
        let config = PublisherConfig {
            epoch: 1,
            seed: SEED,
            shard: "replay".to_owned(),
            ring_deltas: 64,
            max_bytes: MAX_TABLE_BYTES,
            thinning: prefixway_core::snapshot::Thinning::NONE,
        };
        let mut path = Self {
            index,
            ranks: BTreeMap::new(),
            next_holder: 0,
            publisher: Publisher::try_new(config)?,
            replica: Replica::new(MAX_TABLE_BYTES, None),
            rounds: 0,
            endpoints: Endpoints::default(),
            block_size: capture.block_size(),
            revision,
            decode_errors: capture.frame_errors,
        };
        for (&rank, batches) in &capture.batches {
            let mut tracker = SequenceTracker::new(0);
            tracker.step(Input::Connected { can_replay: false });
            let holders = path.fresh_holders();
            path.index.add_source(SourceId(rank), MODEL, holders);
            path.ranks.insert(
                rank,
                Rank {
                    batches: batches.iter().peekable(),
                    tracker,
                    holders,
                },
            );
        }
        path.announce_endpoints();
        path.subscribe()?;
        Ok(path)
    }

    fn fresh_holders(&mut self) -> [HolderId; 3] {
        let first = self.next_holder;
        self.next_holder += HOLDERS;
        [first, first + 1, first + 2].map(HolderId)
    }

    /// Applies the batches up to each rank's sequence number and publishes what they changed.
    pub(super) fn apply_until(&mut self, seq_before: &SeqBefore) -> Result<(), ReplayError> {
        let ranks: Vec<u32> = self.ranks.keys().copied().collect();
        for rank in ranks {
            let limit = u64::try_from(seq_before.of(rank));
            while let Some(batch) = self.ranks.get_mut(&rank).and_then(|of_rank| {
                of_rank
                    .batches
                    .next_if(|batch| limit.is_ok_and(|limit| batch.seq <= limit))
            }) {
                self.apply(rank, batch);
            }
        }
        self.publish()
    }

    fn apply(&mut self, rank: u32, batch: &'c Batch) {
        let Some(of_rank) = self.ranks.get_mut(&rank) else {
            return;
        };
        for action in of_rank.tracker.step(Input::Live {
            seq: batch.seq,
            batch: &batch.payload,
        }) {
            match action {
                Action::Apply { batch, .. } => {
                    let outcome = self.index.apply(SourceId(rank), batch);
                    self.decode_errors += u64::from(outcome.info.decode_errors());
                }
                Action::Reset => {
                    let holders = self.fresh_holders();
                    self.index.reset_source(SourceId(rank), holders);
                    if let Some(of_rank) = self.ranks.get_mut(&rank) {
                        of_rank.holders = holders;
                    }
                    self.announce_endpoints();
                }
                Action::Replay { .. } => {}
            }
        }
    }

    fn publish(&mut self) -> Result<(), ReplayError> {
        let changes = self.index.take_changes();
        if changes.is_empty() {
            return Ok(());
        }
        let deltas = self.publisher.apply(&changes)?;
        self.rounds += 1;
        if self.rounds.is_multiple_of(ROUNDS_PER_SUBSCRIPTION) {
            self.replica = Replica::new(MAX_TABLE_BYTES, None);
            self.subscribe()?;
            return Ok(());
        }
        for delta in deltas {
            self.replica.feed(proto::Down {
                kind: Some(proto::down::Kind::Delta(delta)),
            })?;
        }
        Ok(())
    }

    fn subscribe(&mut self) -> Result<(), ReplicaError> {
        let subscribe = self.replica.subscribe(&[], "replay");
        let start = self
            .publisher
            .start(subscribe.have_epoch, subscribe.have_version);
        for message in std::iter::once(start.hello).chain(start.body) {
            self.replica.feed(message)?;
        }
        Ok(())
    }

    fn announce_endpoints(&mut self) {
        let endpoints = self.ranks.iter().map(|(&rank, of_rank)| proto::Endpoint {
            id: rank,
            address: format!("rank-{rank}"),
            rank: Some(rank),
            healthy: true,
            block_size: self.block_size,
            holders: of_rank
                .holders
                .iter()
                .zip(Tier::ALL)
                .map(|(holder, tier)| proto::Holder {
                    id: holder.0,
                    tier: tier.as_str().to_owned(),
                })
                .collect(),
            ..proto::Endpoint::default()
        });
        self.endpoints = Endpoints::from_message(&proto::Endpoints {
            revision: 0,
            endpoints: endpoints.collect(),
        });
    }

    /// Cached tokens as a gateway predicts them.
    pub(super) fn predict(&self, query: &Query<'_>) -> u32 {
        let hash = match query.prompt.space {
            Space::Text => PromptHashes::new,
            Space::Token => PromptHashes::of_token_ids,
        };
        let hashes = hash(self.scope(query), &query.prompt.text, SEED, usize::MAX);
        let found = matched_in(self.replica.snapshot(), &self.endpoints, &(), &hashes.rungs);
        let of_rank = |rank: Option<u32>| query.rank.is_none() || query.rank == rank;
        self.endpoints
            .list()
            .iter()
            .zip(found.credits)
            .filter(|(endpoint, _)| of_rank(endpoint.rank))
            .map(|(_, credit)| credit.tokens())
            .max()
            .unwrap_or(0)
    }

    /// Cached tokens by the exact index, without rungs.
    pub(super) fn exact(&self, query: &Query<'_>) -> u32 {
        let text = match query.prompt.space {
            Space::Text => query.prompt.text.as_slice(),
            // The last token is always computed.
            Space::Token => {
                let text = &query.prompt.text;
                text.get(..text.len().saturating_sub(TOKEN_BYTES))
                    .unwrap_or_default()
            }
        };
        self.best(query, &self.index.exact_credit(self.scope(query), text))
    }

    /// Cached tokens by the engine's own token ids.
    pub(super) fn by_token_ids(&self, query: &Query<'_>) -> u32 {
        let scope = self.scope_in(Space::Token, query);
        let block_size = self.block_size as usize;
        self.best(
            query,
            &self
                .index
                .exact_tokens(scope, query.token_ids, block_size, |_| Vec::new()),
        )
    }

    fn best(&self, query: &Query<'_>, credit: &BTreeMap<HolderId, u32>) -> u32 {
        self.ranks
            .iter()
            .filter(|&(&rank, _)| query.rank.is_none_or(|named| named == rank))
            .flat_map(|(_, of_rank)| of_rank.holders)
            .filter_map(|holder| credit.get(&holder).copied())
            .max()
            .unwrap_or(0)
    }

    fn scope(&self, query: &Query<'_>) -> ChunkHash {
        self.scope_in(query.prompt.space, query)
    }

    fn scope_in(&self, space: Space, query: &Query<'_>) -> ChunkHash {
        let scope = Scope {
            space,
            profile: PROFILE,
            revision: self.revision,
            adapter: query.adapter,
            salt: query.salt,
        };
        scope.hash(SEED)
    }

    /// Messages, batches and events that could not be read so far.
    pub(super) fn decode_errors(&self) -> u64 {
        self.decode_errors
    }
}
