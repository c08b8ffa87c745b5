//! Decides what each engine step computes: continuous batching with chunked prefill, first come first served, as vLLM 0.32's V1 scheduler.
//!
//! ```text
//!   submit ─► waiting ──admit: prefix hit, blocks──► running ──last token──► finished
//!                ▲                                      │
//!                └────────── preempt (no blocks) ───────┘
//! ```
//! A step is [`Scheduler::schedule`], then the time it takes, then [`Scheduler::finish_step`]. Blocks are cached when they are scheduled, so
//! equal prompts scheduled in the same step share them; they are *announced* with `finish_step`. No clock and no IO in here.

use std::collections::{BTreeSet, VecDeque};

use crate::events::KvEvent;
use crate::kv_cache::KvCache;
use crate::sequence::{Request, RequestId, Sequence};

/// Limits of a [`Scheduler`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// Tokens per block; at least 1.
    pub block_size: u32,
    /// Blocks in the pool, the null block included; at least 2.
    pub num_blocks: u32,
    /// Requests that may run at once; at least 1.
    pub max_running: usize,
    /// Tokens computed per step at most (prefill chunk and decodes together); at least 1.
    pub chunk_tokens: usize,
}

/// A request that left the waiting queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// The request.
    pub id: RequestId,
    /// Prompt tokens.
    pub prompt_tokens: usize,
    /// Prompt tokens found in the cache.
    pub hit_tokens: usize,
    /// Whether it ran before and had been preempted.
    pub is_resumed: bool,
}

/// What one step computes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    pub(crate) work: Vec<(RequestId, usize)>,
    /// Prompt tokens to compute (and output tokens again, after a preemption).
    pub prefill_tokens: usize,
    /// Requests that compute one output token.
    pub decoding: usize,
    /// Requests admitted in this step.
    pub admitted: Vec<Admission>,
    /// Requests thrown back to the waiting queue.
    pub preempted: usize,
}

/// A generated token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The request.
    pub id: RequestId,
    /// The token's id.
    pub token: u32,
    /// Whether it is the request's last one.
    pub is_last: bool,
}

/// What a finished step produced.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepOutcome {
    /// One token per request that got that far.
    pub tokens: Vec<Token>,
    /// Cache changes since the last step; a batch to publish unless empty.
    pub events: Vec<KvEvent>,
}

/// Queue lengths and cache use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SchedulerStats {
    /// Requests that hold blocks.
    pub running: usize,
    /// Requests in the queue.
    pub waiting: usize,
    /// Blocks referenced by running requests.
    pub used_blocks: usize,
    /// Blocks with cached content, referenced or not.
    pub cached_blocks: usize,
    /// Blocks that requests may use.
    pub capacity_blocks: usize,
}

/// Waiting and running requests and the blocks they hold.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    cache: KvCache,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
}

impl Scheduler {
    /// Makes an idle scheduler with an empty cache.
    pub fn new(config: SchedulerConfig) -> Self {
        Self {
            config,
            cache: KvCache::new(config.num_blocks, config.block_size as usize),
            waiting: VecDeque::new(),
            running: Vec::new(),
        }
    }

    /// Queues a request. The caller checked that prompt and output fit into the pool.
    pub fn submit(&mut self, request: Request) {
        self.waiting
            .push_back(Sequence::new(request, self.config.block_size as usize));
    }

    /// Ends a request wherever it is and frees its blocks; unknown ids are ignored.
    pub fn abort(&mut self, id: RequestId) {
        self.waiting.retain(|sequence| sequence.id() != id);
        if let Some(position) = self.running.iter().position(|sequence| sequence.id() == id) {
            let mut sequence = self.running.remove(position);
            self.cache.release(&mut sequence);
        }
    }

    /// Drops the prefix cache; `false` while running requests hold blocks.
    pub fn reset_prefix_cache(&mut self) -> bool {
        self.cache.reset()
    }

    /// Gives queue lengths and cache use.
    pub fn stats(&self) -> SchedulerStats {
        let pool = self.cache.pool();
        SchedulerStats {
            running: self.running.len(),
            waiting: self.waiting.len(),
            used_blocks: pool.capacity() - pool.free_count(),
            cached_blocks: pool.cached_count(),
            capacity_blocks: pool.capacity(),
        }
    }

    /// Gives the adapters of running requests, and those that only waiting ones have.
    pub fn adapters(&self) -> (BTreeSet<&str>, BTreeSet<&str>) {
        let running: BTreeSet<&str> = self.running.iter().filter_map(adapter).collect();
        let mut waiting: BTreeSet<&str> = self.waiting.iter().filter_map(adapter).collect();
        waiting.retain(|name| !running.contains(name));
        (running, waiting)
    }

    /// Chooses the work of the next step and reserves its blocks; `None` when there is nothing to do.
    pub fn schedule(&mut self) -> Option<Step> {
        let mut step = Step::default();
        let mut budget = self.config.chunk_tokens;
        self.continue_running(&mut step, &mut budget);
        if step.preempted == 0 {
            self.admit_waiting(&mut step, &mut budget);
        }
        (!step.work.is_empty()).then_some(step)
    }

    /// Ends a step: reveals tokens, frees finished requests, hands out the events.
    pub fn finish_step(&mut self, step: &Step) -> StepOutcome {
        let mut outcome = StepOutcome::default();
        for &(id, tokens) in &step.work {
            let Some(position) = self.running.iter().position(|sequence| sequence.id() == id)
            else {
                continue; // aborted meanwhile
            };
            let Some(sequence) = self.running.get_mut(position) else {
                continue;
            };
            sequence.computed += tokens;
            if sequence.computed < sequence.tokens.len() {
                continue;
            }
            let token = sequence.reveal();
            let is_last = sequence.is_finished();
            outcome
                .tokens
                .extend(token.map(|token| Token { id, token, is_last }));
            if is_last {
                let mut finished = self.running.remove(position);
                self.cache.release(&mut finished);
            }
        }
        outcome.events = self.cache.take_events();
        outcome
    }

    fn continue_running(&mut self, step: &mut Step, budget: &mut usize) {
        let mut position = 0;
        while let Some(sequence) = self.running.get_mut(position) {
            let tokens = (sequence.tokens.len() - sequence.computed).min(*budget);
            if tokens == 0 {
                break;
            }
            if self.cache.allocate(sequence, &[], tokens) {
                step.add(sequence, tokens);
                *budget -= tokens;
                position += 1;
            } else if let Some(mut victim) = self.running.pop() {
                self.cache.release(&mut victim);
                self.waiting.push_front(victim);
                step.preempted += 1;
            }
        }
    }

    fn admit_waiting(&mut self, step: &mut Step, budget: &mut usize) {
        while *budget > 0 && self.running.len() < self.config.max_running {
            let Some(mut sequence) = self.waiting.pop_front() else {
                break;
            };
            let hit = self.cache.find_hit(&sequence);
            let hit_tokens = hit.len() * self.config.block_size as usize;
            let tokens = (sequence.tokens.len() - hit_tokens).min(*budget);
            if !self.cache.allocate(&mut sequence, &hit, tokens) {
                self.waiting.push_front(sequence);
                break;
            }
            step.admitted.push(Admission {
                id: sequence.id(),
                prompt_tokens: sequence.request.prompt.len(),
                hit_tokens,
                is_resumed: sequence.hit_tokens.is_some(),
            });
            sequence.hit_tokens.get_or_insert(hit_tokens);
            step.add(&sequence, tokens);
            *budget -= tokens;
            self.running.push(sequence);
        }
    }
}

fn adapter(sequence: &Sequence) -> Option<&str> {
    let lora = sequence.request.scope.lora.as_ref()?;
    Some(lora.name.as_str())
}

impl Step {
    fn add(&mut self, sequence: &Sequence, tokens: usize) {
        if sequence.is_decoding() {
            self.decoding += 1;
        } else {
            self.prefill_tokens += tokens;
        }
        self.work.push((sequence.id(), tokens));
    }
}

#[cfg(test)]
mod tests;
