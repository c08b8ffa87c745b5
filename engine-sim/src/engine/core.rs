//! The scheduler loop: schedules a step, waits as long as the step takes, hands out tokens and events.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::{Fault, Shared};
use crate::events::encode::encode_batch;
use crate::events::{EventBatch, KvEvent};
use crate::scheduler::{Scheduler, Step, Token};
use crate::sequence::{Request, RequestId};

/// How far the simulated clock may lag behind the real one before the engine stops catching up.
const MAX_LAG: Duration = Duration::from_millis(50);

/// What the loop is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Run a request and report its tokens.
    Submit(Request, mpsc::Sender<TokenUpdate>),
    /// Drop the prefix cache; answers whether it was possible.
    ResetPrefixCache(oneshot::Sender<bool>),
    /// Drop all requests and the cache, silently.
    Forget(oneshot::Sender<()>),
    /// End.
    Stop,
}

/// A token of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenUpdate {
    pub(crate) is_last: bool,
    /// Prompt tokens that were found in the cache.
    pub(crate) cached_tokens: usize,
}

struct Live {
    updates: mpsc::Sender<TokenUpdate>,
    submitted: Instant,
    admitted: Instant,
    last_token: Option<Instant>,
    cached_tokens: usize,
}

struct Core {
    shared: Arc<Shared>,
    scheduler: Scheduler,
    live: HashMap<RequestId, Live>,
    fault: watch::Receiver<Fault>,
}

/// Runs the loop until told to stop.
pub(super) async fn run(shared: Arc<Shared>, mut inbox: mpsc::Receiver<Command>) {
    let mut core = Core {
        scheduler: Scheduler::new(shared.config.scheduler()),
        live: HashMap::new(),
        fault: shared.fault.subscribe(),
        shared,
    };
    let mut clock = Instant::now();
    loop {
        core.abort_abandoned();
        let Some(step) = core.scheduler.schedule() else {
            core.report();
            let Some(command) = inbox.recv().await else {
                return;
            };
            if core.handle(command).is_break() {
                return;
            }
            clock = Instant::now();
            continue;
        };
        core.note_step(&step);
        core.report();
        clock = clock.max(Instant::now() - MAX_LAG) + core.shared.config.timing.duration(&step);
        if core.wait(&mut inbox, clock).await.is_break() {
            return;
        }
        let outcome = core.scheduler.finish_step(&step);
        core.publish(outcome.events);
        for token in outcome.tokens {
            core.deliver(token);
        }
    }
}

impl Core {
    /// Waits for the end of a step, and while the engine hangs; commands are handled meanwhile.
    async fn wait(
        &mut self,
        inbox: &mut mpsc::Receiver<Command>,
        until: Instant,
    ) -> ControlFlow<()> {
        let mut fault = self.fault.clone();
        let step_end = async move {
            sleep_until(until).await;
            // An error means that the engine is gone; the loop ends with its inbox.
            let _ = fault.wait_for(|fault| *fault != Fault::Hang).await;
        };
        tokio::pin!(step_end);
        loop {
            tokio::select! {
                () = &mut step_end => return ControlFlow::Continue(()),
                command = inbox.recv() => match command {
                    Some(command) => self.handle(command)?,
                    None => return ControlFlow::Break(()),
                },
            }
        }
    }

    fn handle(&mut self, command: Command) -> ControlFlow<()> {
        match command {
            Command::Submit(request, updates) => {
                let now = Instant::now();
                let live = Live {
                    updates,
                    submitted: now,
                    admitted: now,
                    last_token: None,
                    cached_tokens: 0,
                };
                self.live.insert(request.id, live);
                self.scheduler.submit(request);
            }
            Command::ResetPrefixCache(answer) => {
                // An error means that the client is gone.
                let _ = answer.send(self.scheduler.reset_prefix_cache());
            }
            Command::Forget(done) => {
                self.live.clear();
                self.scheduler = Scheduler::new(self.shared.config.scheduler());
                let _ = done.send(());
            }
            Command::Stop => return ControlFlow::Break(()),
        }
        self.report();
        ControlFlow::Continue(())
    }

    fn abort_abandoned(&mut self) {
        let scheduler = &mut self.scheduler;
        self.live.retain(|&id, live| {
            let is_wanted = !live.updates.is_closed();
            if !is_wanted {
                scheduler.abort(id);
            }
            is_wanted
        });
    }

    fn note_step(&mut self, step: &Step) {
        let now = Instant::now();
        let mut metrics = self.shared.metrics();
        metrics.preemptions += step.preempted as u64;
        for admission in step
            .admitted
            .iter()
            .filter(|admission| !admission.is_resumed)
        {
            if let Some(live) = self.live.get_mut(&admission.id) {
                live.admitted = now;
                live.cached_tokens = admission.hit_tokens;
                metrics.admitted(admission, now - live.submitted);
            }
        }
    }

    fn report(&self) {
        let mut metrics = self.shared.metrics();
        metrics.scheduler = self.scheduler.stats();
        if self.shared.labels.max_adapters > 0 {
            let (running, waiting) = self.scheduler.adapters();
            let joined = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(",");
            metrics.adapters = [joined(running), joined(waiting)];
        }
    }

    fn publish(&self, events: Vec<KvEvent>) {
        if events.is_empty() {
            return;
        }
        let publisher = self.shared.publisher();
        let Some(publisher) = publisher.as_ref() else {
            return;
        };
        let mut metrics = self.shared.metrics();
        metrics.batches += 1;
        for event in &events {
            match event {
                KvEvent::Stored(stored) => metrics.stored_blocks += stored.hashes.len() as u64,
                KvEvent::Removed(_) => metrics.removed_blocks += 1,
                KvEvent::Cleared => {}
            }
        }
        drop(metrics);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        publisher.publish(encode_batch(&EventBatch {
            timestamp_s: now.as_secs_f64(),
            events,
            rank: 0,
        }));
    }

    fn deliver(&mut self, token: Token) {
        let Some(live) = self.live.get_mut(&token.id) else {
            return;
        };
        let now = Instant::now();
        let mut metrics = self.shared.metrics();
        match live.last_token.replace(now) {
            None => metrics.first_token(now - live.submitted, now - live.admitted),
            Some(before) => metrics.next_token(now - before),
        }
        if token.is_last {
            metrics.finished(now - live.submitted);
        }
        drop(metrics);
        let update = TokenUpdate {
            is_last: token.is_last,
            cached_tokens: live.cached_tokens,
        };
        // The channel has room for all tokens; an error means that the client is gone, which ends the request before the next step.
        let _ = live.updates.try_send(update);
        if token.is_last {
            self.live.remove(&token.id);
        }
    }
}
