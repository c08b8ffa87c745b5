//! An engine: first come, first served, one prefill at a time, up to `slots` sequences that decode.
//!
//! ```text
//!  queue ─► prefill: 10 ms + uncached / rate ─► first token 30 ms later ─► decode: fixed time for each token ─► its blocks are free
//!             │ blocks are taken, and old ones evicted, when it begins; every 2,048 tokens a batch of stored blocks is announced
//! ```

use std::collections::VecDeque;

use crate::block_pool::{BlockPool, Private};
use crate::workload::{Workload, shared_blocks};

/// Fixed time of a prefill.
pub const PREFILL_OVERHEAD_US: u64 = 10_000;
/// From the end of the prefill to the first token at the client.
pub const FIRST_TOKEN_US: u64 = 30_000;
/// Tokens of a prefill after which blocks are announced.
pub const CHUNK_TOKENS: u32 = 2_048;

/// Endpoints of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointClass {
    /// Its name, the accelerator class.
    pub name: String,
    /// How many there are.
    pub count: u32,
    /// Prefill rate.
    pub prefill_tokens_per_s: f64,
    /// Time for each token of an answer.
    pub decode_ms_per_token: f64,
    /// Most sequences at once.
    pub slots: u32,
    /// Tokens that its cache holds.
    pub cache_tokens: u32,
    /// When it joins, in microseconds of simulated time.
    pub joins_us: u64,
}

impl Default for EndpointClass {
    fn default() -> Self {
        Self {
            name: "engine".to_owned(),
            count: 8,
            prefill_tokens_per_s: 8_000.0,
            decode_ms_per_token: 30.0,
            slots: 64,
            cache_tokens: 1_000_000,
            joins_us: 0,
        }
    }
}

/// Why a class can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("class {0:?} is not of the form COUNTxNAME:RATE[:MS_PER_TOKEN[:SLOTS[:CACHE_TOKENS]]]")]
pub struct ClassError(String);

impl EndpointClass {
    /// Reads `4xfast:8000`, `2xcpu:800:120:8:200000`: count, name, prefill tokens/s, decode ms per token, slots, tokens of cache. What is left
    /// out is as in `default`.
    ///
    /// # Errors
    /// [`ClassError`].
    pub fn read(text: &str, default: &Self) -> Result<Self, ClassError> {
        Self::parts(text, default).ok_or_else(|| ClassError(text.to_owned()))
    }

    fn parts(text: &str, default: &Self) -> Option<Self> {
        let (count, rest) = text.split_once('x')?;
        let mut fields = rest.split(':');
        let mut class = Self {
            count: count.trim().parse().ok()?,
            name: fields.next().filter(|name| !name.is_empty())?.to_owned(),
            prefill_tokens_per_s: fields.next()?.parse().ok()?,
            ..default.clone()
        };
        if let Some(field) = fields.next() {
            class.decode_ms_per_token = field.parse().ok()?;
        }
        if let Some(field) = fields.next() {
            class.slots = field.parse().ok()?;
        }
        if let Some(field) = fields.next() {
            class.cache_tokens = field.parse().ok()?;
        }
        fields.next().is_none().then_some(class)
    }

    /// Time of a prefill of so many tokens.
    pub fn prefill_us(&self, tokens: u32) -> u64 {
        PREFILL_OVERHEAD_US + self.tokens_us(f64::from(tokens))
    }

    fn tokens_us(&self, tokens: f64) -> u64 {
        (tokens * 1e6 / self.prefill_tokens_per_s).round() as u64
    }
}

/// What an engine announces; all of one engine in the order of `due_us`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockEvent {
    pub(crate) due_us: u64,
    pub(crate) change: BlockChange,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockChange {
    /// Blocks of a stretch of all chains are stored.
    Stored { from: u32, to: u32 },
    /// A block is removed.
    Removed(u32),
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    request: u32,
    /// Tokens that it will have to compute, where somebody asked.
    uncached: u32,
}

#[derive(Clone, Copy, Debug)]
struct Prefill {
    request: u32,
    ends_us: u64,
}

/// A prefill that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) request: u32,
    pub(crate) cached_tokens: u32,
    pub(crate) ends_us: u64,
}

/// One engine.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) class: EndpointClass,
    pool: BlockPool,
    block_tokens: u32,
    queue: VecDeque<Queued>,
    prefill: Option<Prefill>,
    running: u32,
    pub(crate) events: VecDeque<BlockEvent>,
    pub(crate) prefilled_tokens: u64,
}

impl Engine {
    pub(crate) fn new(class: EndpointClass, block_tokens: u32, nodes: usize) -> Self {
        let capacity = (class.cache_tokens / block_tokens.max(1)).max(1);
        Self {
            class,
            pool: BlockPool::new(capacity, nodes),
            block_tokens,
            queue: VecDeque::new(),
            prefill: None,
            running: 0,
            events: VecDeque::new(),
            prefilled_tokens: 0,
        }
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.queue.len() as u32
    }

    /// Sequences in prefill or decoding.
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// Share of the cache in use by running requests.
    pub(crate) fn kv_usage_ratio(&self) -> f64 {
        f64::from(self.pool.used()) / f64::from(self.pool.capacity())
    }

    /// Blocks in the cache before anything happens.
    pub(crate) fn preload(&mut self, chain: &[u32]) {
        self.pool.touch(chain);
    }

    /// Tokens of a prompt that it will not have to compute when its turn comes: those in the cache, and those of requests before it.
    pub(crate) fn foreseen_tokens(&self, request: u32, work: &Workload) -> u32 {
        let chain = self.kept(request, work);
        let ahead = self.queue.iter().map(|queued| queued.request);
        let held = ahead
            .map(|other| shared_blocks(chain, work.chain(other)))
            .fold(self.pool.depth(chain), usize::max);
        self.usable(held, request, work)
    }

    /// Time until all that is before a new request is prefilled.
    pub(crate) fn work_us(&self, now_us: u64) -> u64 {
        let rest = self
            .prefill
            .map_or(0, |prefill| prefill.ends_us.saturating_sub(now_us));
        let queue = self.queue.iter();
        rest + queue
            .map(|queued| self.class.prefill_us(queued.uncached))
            .sum::<u64>()
    }

    pub(crate) fn enqueue(&mut self, request: u32, uncached: u32) {
        self.queue.push_back(Queued { request, uncached });
    }

    /// Begins the next prefill, if there is one and everything for it.
    pub(crate) fn start(
        &mut self,
        now_us: u64,
        work: &Workload,
        private: &mut [Private],
    ) -> Option<Started> {
        if self.prefill.is_some() || self.running >= self.class.slots {
            return None;
        }
        let request = self.queue.front()?.request;
        let chain = self.kept(request, work);
        let own = self.own_blocks(request, chain, work);
        if !self.pool.fits(chain, own) {
            return None;
        }
        self.queue.pop_front();
        let held = self.pool.depth(chain);
        let events = &mut self.events;
        private[request as usize] = self.pool.acquire(chain, own, |node| {
            events.push_back(BlockEvent {
                due_us: now_us,
                change: BlockChange::Removed(node),
            });
        });
        let cached_tokens = self.usable(held, request, work);
        let uncached = work.arrivals[request as usize].prompt_tokens - cached_tokens;
        self.announce(now_us, request, held, cached_tokens, chain.len(), work);
        let ends_us = now_us + self.class.prefill_us(uncached);
        self.prefill = Some(Prefill { request, ends_us });
        self.running += 1;
        self.prefilled_tokens += u64::from(uncached);
        Some(Started {
            request,
            cached_tokens,
            ends_us,
        })
    }

    /// The prefill has ended. Gives its request.
    pub(crate) fn end_prefill(&mut self) -> Option<u32> {
        self.prefill.take().map(|prefill| prefill.request)
    }

    /// A request has its whole answer.
    pub(crate) fn finish(&mut self, request: u32, work: &Workload, private: Private) {
        let chain = self.kept(request, work);
        self.pool.release(chain, private);
        self.running -= 1;
    }

    /// What of a prompt the cache can ever hold.
    fn kept<'w>(&self, request: u32, work: &'w Workload) -> &'w [u32] {
        let chain = work.chain(request);
        &chain[..chain.len().min(self.pool.capacity() as usize)]
    }

    /// Blocks for what no other request can use: a partial last block and the answer. A request that is too long for the cache takes what there is.
    fn own_blocks(&self, request: u32, chain: &[u32], work: &Workload) -> u32 {
        let of = work.arrivals[request as usize];
        let all = (of.prompt_tokens + of.output_tokens).div_ceil(self.block_tokens);
        let room = self.pool.capacity() - chain.len() as u32;
        all.saturating_sub(chain.len() as u32).min(room)
    }

    /// At least the last token of a prompt is computed, and hits are whole blocks.
    fn usable(&self, held: usize, request: u32, work: &Workload) -> u32 {
        let prompt_tokens = work.arrivals[request as usize].prompt_tokens;
        let most = prompt_tokens.saturating_sub(1) / self.block_tokens;
        (held as u32).min(most) * self.block_tokens
    }

    /// Announces new blocks chunk by chunk.
    fn announce(
        &mut self,
        now_us: u64,
        request: u32,
        held: usize,
        cached_tokens: u32,
        blocks: usize,
        work: &Workload,
    ) {
        let chain_start = work.chain_start(request);
        let mut from = held as u32;
        let mut computed = 0;
        while from < blocks as u32 {
            computed += CHUNK_TOKENS;
            let to = ((cached_tokens + computed) / self.block_tokens).min(blocks as u32);
            let last = ((to * self.block_tokens).saturating_sub(cached_tokens)).min(computed);
            if to > from {
                self.events.push_back(BlockEvent {
                    due_us: now_us + self.class.prefill_us(last),
                    change: BlockChange::Stored {
                        from: chain_start + from,
                        to: chain_start + to,
                    },
                });
                from = to;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read() {
        let default = EndpointClass::default();
        let of = |text: &str| EndpointClass::read(text, &default);
        let fast = of("4xfast:8000").unwrap();
        assert_eq!(
            (fast.count, fast.name.as_str(), fast.slots),
            (4, "fast", 64)
        );
        let cpu = of("2xcpu-amx:800.5:120:8:200000").unwrap();
        let expected = EndpointClass {
            name: "cpu-amx".to_owned(),
            count: 2,
            prefill_tokens_per_s: 800.5,
            decode_ms_per_token: 120.0,
            slots: 8,
            cache_tokens: 200_000,
            joins_us: 0,
        };
        assert_eq!(cpu, expected);
        for text in [
            "",
            "fast:1",
            "4x:1",
            "4xfast",
            "4xfast:",
            "-1xfast:1",
            "4xfast:1:2:3:4:5",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
