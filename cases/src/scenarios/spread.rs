//! Where requests go when many come: bursts, pods of unknown load, hot prefixes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
#[cfg(feature = "envoy")]
use serde_json::json;

use super::pods::{Arrivals, Pod, number};
#[cfg(feature = "envoy")]
use super::real::{Parts, Plan, Planned, Stand, block_on, words};
use super::world::{Setup, World, prompt};
use super::{Notes, Scenario};
use crate::error::CaseError;

/// Age past which figures are stale where a case has such.
#[cfg(feature = "envoy")]
const STALE: &str = "1s";
#[cfg(feature = "envoy")]
const STALE_TIME: Duration = Duration::from_secs(1);
/// Longest time that arrivals are spread over; sooner is within what a case says.
#[cfg(feature = "envoy")]
const REAL_ARRIVALS: Duration = Duration::from_secs(2);
/// Prompt of cases that name none.
const USUAL_PROMPT_TOKENS: u32 = 512;

/// A burst on pods that are all alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Burst {
    pods: Vec<Pod>,
    prefix_tokens_matched: BTreeMap<String, u32>,
    arrivals: Arrivals,
    variants: Vec<BurstVariant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BurstVariant {
    worker_threads: usize,
    expect: BurstExpect,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BurstExpect {
    max_per_pod: u32,
    min_per_pod: u32,
}

impl Scenario for Burst {
    fn wasm(&self) -> Result<Notes, CaseError> {
        self.arrivals.check()?;
        let pods = matched(&self.pods, &self.prefix_tokens_matched);
        let longest = self.prefix_tokens_matched.values().copied().max();
        let prompt = prompt(longest.unwrap_or(USUAL_PROMPT_TOKENS));
        for variant in &self.variants {
            let workers = variant.worker_threads;
            let setup = Setup {
                workers,
                ..Setup::default()
            };
            let mut world = World::start(&pods, &setup)?;
            let picks = burst(&mut world, &self.arrivals, &prompt, false)?;
            variant.expect.check(workers, &pods, &picks)?;
            world.check()?;
        }
        Ok(Notes::new())
    }

    #[cfg(feature = "envoy")]
    fn envoy(&self, parts: &Parts) -> Result<Notes, CaseError> {
        let pods = matched(&self.pods, &self.prefix_tokens_matched);
        for variant in &self.variants {
            let workers = u32::try_from(variant.worker_threads).unwrap_or(u32::MAX);
            let plan = Plan::new(planned(&pods)?, workers);
            let picks = block_on(async {
                let mut stand = Stand::start(parts, &plan).await?;
                let prompts = vec![stand.prompt.clone(); self.arrivals.count as usize];
                let (picks, _requests) = stand.burst(prompts, self.arrivals.within()).await?;
                stand.check()?;
                Ok(picks)
            })?;
            variant
                .expect
                .check(variant.worker_threads, &pods, &picks)?;
        }
        Ok(Notes::new())
    }
}

impl BurstExpect {
    fn check(&self, workers: usize, pods: &[Pod], picks: &[String]) -> Result<(), CaseError> {
        let counts = counts(pods, picks);
        let range = self.min_per_pod..=self.max_per_pod;
        if counts.values().all(|count| range.contains(count)) {
            return Ok(());
        }
        let wanted = format!("{} to {}", range.start(), range.end());
        let what = format!("requests of each pod with {workers} workers");
        Err(CaseError::mismatch(what, &wanted, &format!("{counts:?}")))
    }
}

/// Pods whose load is unknown or stale.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Unknown {
    variants: Vec<UnknownVariant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnknownVariant {
    pods: Vec<Pod>,
    arrivals: Option<Arrivals>,
    expect: UnknownExpect,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct UnknownExpect {
    ghost_max: Option<u32>,
    stale_max: Option<u32>,
    first_pick_not: Vec<String>,
    scrape_errors: Option<u64>,
}

impl Scenario for Unknown {
    fn wasm(&self) -> Result<Notes, CaseError> {
        let mut notes = Notes::new();
        for variant in &self.variants {
            if variant.expect.scrape_errors.is_some() {
                notes.push("scrape_errors: the indexer reads metrics, not the gateway".to_owned());
            }
            let Some(arrivals) = &variant.arrivals else {
                continue;
            };
            arrivals.check()?;
            for workers in [1, 2, 4] {
                let setup = Setup {
                    workers,
                    ..Setup::default()
                };
                let mut world = World::start(&variant.pods, &setup)?;
                let prompt = prompt(USUAL_PROMPT_TOKENS);
                let picks = burst(&mut world, arrivals, &prompt, true)?;
                variant.expect.check(&variant.pods, &picks)?;
                world.check()?;
            }
        }
        Ok(notes)
    }

    #[cfg(feature = "envoy")]
    fn envoy(&self, parts: &Parts) -> Result<Notes, CaseError> {
        let mut notes = Notes::new();
        for (number, variant) in self.variants.iter().enumerate() {
            let workers = if number % 2 == 0 { 2 } else { 4 };
            let mut plan = Plan::new(planned(&variant.pods)?, workers);
            let stale: Vec<&Pod> = variant.pods.iter().filter(|pod| pod.is_stale()).collect();
            if !stale.is_empty() {
                // Nobody waits a minute: figures are stale sooner, and by as much more.
                plan.scrape =
                    json!({"interval": "50ms", "idle_interval": "50ms", "max_age": STALE});
                notes.push(format!(
                    "figures are stale after {STALE}, and then twice as old"
                ));
            }
            block_on(variant.real(parts, &plan, &stale))??;
        }
        Ok(notes)
    }
}

#[cfg(feature = "envoy")]
impl UnknownVariant {
    async fn real(
        &self,
        parts: &Parts,
        plan: &Plan,
        stale: &[&Pod],
    ) -> anyhow::Result<Result<(), CaseError>> {
        let mut stand = Stand::start(parts, plan).await?;
        for pod in stale {
            stand.pod(&pod.name)?.set_page(None);
        }
        if !stale.is_empty() {
            tokio::time::sleep(2 * STALE_TIME).await;
        }
        if let Some(bound) = self.expect.scrape_errors {
            let failed = stand.failed_scrapes().await?;
            if failed > bound {
                return Ok(Err(CaseError::mismatch("scrape errors", &bound, &failed)));
            }
        }
        if let Some(arrivals) = &self.arrivals {
            let prompts = (0..arrivals.count as usize)
                .map(|number| words(10_000 * (number + 1), USUAL_PROMPT_TOKENS as usize / 2));
            let (picks, _requests) = stand.burst(prompts.collect(), arrivals.within()).await?;
            if let Err(error) = self.expect.check(&self.pods, &picks) {
                return Ok(Err(error));
            }
        }
        stand.check()?;
        Ok(Ok(()))
    }
}

impl UnknownExpect {
    fn check(&self, pods: &[Pod], picks: &[String]) -> Result<(), CaseError> {
        let counts = counts(pods, picks);
        for (name, bound) in [("ghost", self.ghost_max), ("stale", self.stale_max)] {
            let count = counts.get(name).copied().unwrap_or(0);
            if let Some(bound) = bound.filter(|bound| count > *bound) {
                let what = format!("requests of {name}");
                let wanted = format!("at most {bound}");
                return Err(CaseError::mismatch(what, &wanted, &format!("{counts:?}")));
            }
        }
        let first = picks.first().cloned().unwrap_or_default();
        if self.first_pick_not.contains(&first) {
            let wanted = format!("none of {:?}", self.first_pick_not);
            return Err(CaseError::mismatch("first pick", &wanted, &first));
        }
        Ok(())
    }
}

/// One pod holds what everybody asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HotPrefix {
    pods: Vec<Pod>,
    prefix_tokens_matched: BTreeMap<String, u32>,
    prompt_tokens: u32,
    arrivals: Arrivals,
    then: Then,
    expect: HotExpect,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Then {
    scale_up: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HotExpect {
    first_pick: String,
    some_other_pod_used_before: usize,
    max_share: f64,
    #[serde(rename = "p4_share_of_last_100")]
    newcomer_share_of_last_100: f64,
}

impl Then {
    /// The pod that joins, and how many requests come then: `p4 added (empty, idle) and 200 more arrive`.
    fn read(&self) -> Result<(Pod, u32), CaseError> {
        let words: Vec<&str> = self.scale_up.split_whitespace().collect();
        let more = words.iter().position(|word| *word == "more");
        let count = more
            .and_then(|at| words.get(at.checked_sub(1)?))
            .and_then(|word| u32::try_from(number(word)?).ok());
        match (words.first(), words.get(1), count) {
            (Some(name), Some(&"added"), Some(count)) => Ok((Pod::idle(name), count)),
            _ => Err(CaseError::not_understood(format!(
                "scale_up {:?}",
                self.scale_up
            ))),
        }
    }
}

impl Scenario for HotPrefix {
    fn wasm(&self) -> Result<Notes, CaseError> {
        self.arrivals.check()?;
        let (newcomer, more) = self.then.read()?;
        for workers in [1, 2, 4] {
            let setup = Setup {
                workers,
                ..Setup::default()
            };
            let pods = matched(&self.pods, &self.prefix_tokens_matched);
            let mut world = World::start(&pods, &setup)?;
            let prompt = prompt(self.prompt_tokens);
            let first = burst(&mut world, &self.arrivals, &prompt, false)?;
            world.join(&newcomer)?;
            let again = self.arrivals.again(more);
            let then = burst(&mut world, &again, &prompt, false)?;
            self.expect.check(&first, &then, &newcomer.name)?;
            world.check()?;
        }
        Ok(Notes::new())
    }

    #[cfg(feature = "envoy")]
    fn envoy(&self, parts: &Parts) -> Result<Notes, CaseError> {
        let (newcomer, more) = self.then.read()?;
        let mut pods = planned(&matched(&self.pods, &self.prefix_tokens_matched))?;
        let held = pods.iter().map(|pod| pod.tokens).max().unwrap_or(0);
        pods.push(Planned {
            is_healthy: false,
            ..Planned::idle(&newcomer.name)
        });
        let within = self.arrivals.within().min(REAL_ARRIVALS);
        for workers in [2, 4] {
            let plan = Plan::new(pods.clone(), workers);
            let (first, then) = block_on(async {
                let mut stand = Stand::start(parts, &plan).await?;
                stand.until_healthy(&newcomer.name, false).await?;
                // What is held, and then as many tokens more as the case has.
                let whole = stand.prompt.split(' ').count();
                let words_more = whole * (self.prompt_tokens.saturating_sub(held)) as usize
                    / held.max(1) as usize;
                let prompt = format!("{} {}", stand.prompt, words(whole, words_more));
                let prompts = |count: u32| vec![prompt.clone(); count as usize];
                let (first, _open) = stand.burst(prompts(self.arrivals.count), within).await?;
                stand.pod(&newcomer.name)?.set_healthy(true);
                stand.until_healthy(&newcomer.name, true).await?;
                let (then, _more) = stand.burst(prompts(more), within).await?;
                stand.check()?;
                Ok((first, then))
            })?;
            self.expect.check(&first, &then, &newcomer.name)?;
        }
        Ok(vec![format!("{} joins by getting ready", newcomer.name)])
    }
}

impl HotExpect {
    fn check(&self, first: &[String], then: &[String], newcomer: &str) -> Result<(), CaseError> {
        let hot = &self.first_pick;
        let at = first.iter().position(|pod| pod != hot);
        if first.first() != Some(hot) {
            let got = format!("{:?}", first.first());
            return Err(CaseError::mismatch("first pick", hot, &got));
        }
        // Counted from 1, as the file does.
        if at.is_none_or(|at| at + 1 >= self.some_other_pod_used_before) {
            let wanted = format!("before request {}", self.some_other_pod_used_before);
            let got = format!("{:?}", at.map(|at| at + 1));
            return Err(CaseError::mismatch(
                "first request elsewhere",
                &wanted,
                &got,
            ));
        }
        let share = |picks: &[String], pod: &str| {
            let count = picks.iter().filter(|picked| *picked == pod).count();
            count as f64 / picks.len().max(1) as f64
        };
        let hottest = first
            .iter()
            .map(|pod| share(first, pod))
            .fold(0.0, f64::max);
        if hottest > self.max_share {
            let wanted = format!("at most {}", self.max_share);
            return Err(CaseError::mismatch("share of one pod", &wanted, &hottest));
        }
        let last = then
            .get(then.len().saturating_sub(100)..)
            .unwrap_or_default();
        let newcomers = share(last, newcomer);
        if newcomers < self.newcomer_share_of_last_100 {
            let wanted = format!("at least {}", self.newcomer_share_of_last_100);
            let what = format!("share of {newcomer}");
            return Err(CaseError::mismatch(what, &wanted, &newcomers));
        }
        Ok(())
    }
}

/// Pods as they are to be started.
#[cfg(feature = "envoy")]
pub(super) fn planned(pods: &[Pod]) -> Result<Vec<Planned>, CaseError> {
    let plan = |pod: &Pod| {
        let figures = pod.figures(super::world::MAX_WAITING)?;
        Ok(Planned {
            name: pod.name.clone(),
            tokens: pod.prefix_tokens_matched.unwrap_or(0),
            figures: figures.map(|said| (said.running, said.waiting, said.kv_used)),
            is_healthy: pod.is_healthy() || pod.is_going(),
            is_elsewhere: pod.pool.is_some(),
            is_gone: false,
        })
    };
    pods.iter().map(plan).collect()
}

/// Pods with what they hold.
fn matched(pods: &[Pod], tokens: &BTreeMap<String, u32>) -> Vec<Pod> {
    let with = |pod: &Pod| pod.holding(tokens.get(&pod.name).copied());
    pods.iter().map(with).collect()
}

/// Sends requests that don't finish, and gives where they went. Prompts differ from their first word on where they are `distinct`.
fn burst(
    world: &mut World,
    arrivals: &Arrivals,
    prompt: &str,
    distinct: bool,
) -> Result<Vec<String>, CaseError> {
    let mut picks = Vec::new();
    let mut now_us = 0;
    for request in 0..arrivals.count {
        let sent = if distinct {
            world.send(&format!("{request}: {prompt}"))
        } else {
            world.send(prompt)
        };
        picks.push(world.picked(&sent)?);
        // The indexer's word comes every 10 ms, as in the emulator everything does.
        let then_us = now_us + arrivals.gap_us();
        let ticks = then_us / 10_000 - now_us / 10_000;
        world.rig.run(Duration::from_millis(10 * ticks));
        let rest = (then_us - now_us).saturating_sub(10_000 * ticks);
        world.rig.host.advance(Duration::from_micros(rest));
        now_us = then_us;
    }
    Ok(picks)
}

fn counts(pods: &[Pod], picks: &[String]) -> BTreeMap<String, u32> {
    let mut counts: BTreeMap<String, u32> = pods.iter().map(|pod| (pod.name.clone(), 0)).collect();
    for pick in picks {
        *counts.entry(pick.clone()).or_default() += 1;
    }
    counts
}
