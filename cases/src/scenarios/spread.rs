//! Where requests go when many come: bursts, and pods of unknown load.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
#[cfg(feature = "envoy")]
use serde_json::json;

use super::pods::{Arrivals, Pod};
use super::profile::Profile;
#[cfg(feature = "envoy")]
use super::real::{Parts, Plan, Planned, Stand, block_on, words};
use super::simulated::{Play, SEEDS};
use super::world::{Setup, World, prompt};
use super::{Notes, Scenario};
use crate::error::CaseError;

/// Age past which figures are stale where a case has such.
#[cfg(feature = "envoy")]
const STALE: &str = "1s";
#[cfg(feature = "envoy")]
const STALE_TIME: Duration = Duration::from_secs(1);
/// Prompt of cases that name none.
const USUAL_PROMPT_TOKENS: u32 = 512;

/// A burst on pods that are all alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Burst {
    #[serde(skip)]
    profile: Profile,
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
    fn profiles(&self) -> &'static [Profile] {
        &Profile::ALL
    }

    fn set_profile(&mut self, profile: Profile) {
        self.profile = profile;
    }

    fn simulated(&self) -> Option<Result<Notes, CaseError>> {
        Some(self.simulate())
    }

    fn wasm(&self) -> Result<Notes, CaseError> {
        self.arrivals.check()?;
        let pods = matched(&self.pods, &self.prefix_tokens_matched);
        let longest = self.prefix_tokens_matched.values().copied().max();
        let prompt = prompt(longest.unwrap_or(USUAL_PROMPT_TOKENS));
        for variant in &self.variants {
            let workers = variant.worker_threads;
            let setup = Setup {
                workers,
                profile: self.profile,
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
            let mut plan = Plan::new(planned(&pods)?, workers);
            plan.policy = self.profile.policy();
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

impl Burst {
    fn simulate(&self) -> Result<Notes, CaseError> {
        self.arrivals.check()?;
        let pods = matched(&self.pods, &self.prefix_tokens_matched);
        let longest = self.prefix_tokens_matched.values().copied().max();
        for variant in &self.variants {
            let play = Play {
                pods: &pods,
                newcomer: None,
                arrivals: self.arrivals.clone(),
                prompt_tokens: longest.unwrap_or(USUAL_PROMPT_TOKENS),
                is_distinct: false,
                routers: variant.worker_threads,
                profile: self.profile,
            };
            for seed in 1..=SEEDS {
                let picks = play.picks(seed)?;
                variant
                    .expect
                    .check(variant.worker_threads, &pods, &picks)?;
            }
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
    #[serde(skip)]
    profile: Profile,
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
    fn profiles(&self) -> &'static [Profile] {
        &Profile::ALL
    }

    fn set_profile(&mut self, profile: Profile) {
        self.profile = profile;
    }

    fn simulated(&self) -> Option<Result<Notes, CaseError>> {
        Some(self.simulate())
    }

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
                    profile: self.profile,
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
            plan.policy = self.profile.policy();
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

impl Unknown {
    fn simulate(&self) -> Result<Notes, CaseError> {
        let mut notes = Notes::new();
        for variant in &self.variants {
            if variant.expect.scrape_errors.is_some() {
                notes.push("scrape_errors: nothing is read".to_owned());
            }
            let Some(arrivals) = &variant.arrivals else {
                continue;
            };
            arrivals.check()?;
            let play = Play {
                pods: &variant.pods,
                newcomer: None,
                arrivals: arrivals.clone(),
                prompt_tokens: USUAL_PROMPT_TOKENS,
                is_distinct: true,
                routers: 1,
                profile: self.profile,
            };
            for seed in 1..=SEEDS {
                variant.expect.check(&variant.pods, &play.picks(seed)?)?;
            }
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
pub(super) fn matched(pods: &[Pod], tokens: &BTreeMap<String, u32>) -> Vec<Pod> {
    let with = |pod: &Pod| pod.holding(tokens.get(&pod.name).copied());
    pods.iter().map(with).collect()
}

/// Sends requests that don't finish, and gives where they went. Prompts differ from their first word on where they are `distinct`.
pub(super) fn burst(
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
