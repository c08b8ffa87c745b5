//! A prefix that everybody asks for and one pod holds, and a pod that joins later.

use std::collections::BTreeMap;
#[cfg(feature = "envoy")]
use std::time::Duration;

use serde::Deserialize;

use super::pods::{Arrivals, Pod, number};
use super::profile::Profile;
#[cfg(feature = "envoy")]
use super::real::{Parts, Plan, Planned, Stand, block_on, words};
use super::simulated::{Play, SEEDS};
#[cfg(feature = "envoy")]
use super::spread::planned;
use super::spread::{burst, matched};
use super::world::{Setup, World, prompt};
use super::{Notes, Scenario};
use crate::error::CaseError;

/// Longest time that arrivals are spread over; sooner is within what a case says.
#[cfg(feature = "envoy")]
const REAL_ARRIVALS: Duration = Duration::from_secs(2);
/// One pod holds what everybody asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HotPrefix {
    #[serde(skip)]
    profile: Profile,
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
        let (newcomer, more) = self.then.read()?;
        for workers in [1, 2, 4] {
            let setup = Setup {
                workers,
                profile: self.profile,
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
            let mut plan = Plan::new(pods.clone(), workers);
            plan.policy = self.profile.policy();
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

impl HotPrefix {
    fn simulate(&self) -> Result<Notes, CaseError> {
        self.arrivals.check()?;
        let (newcomer, more) = self.then.read()?;
        let pods = matched(&self.pods, &self.prefix_tokens_matched);
        let first = self.arrivals.count;
        let all = self.arrivals.as_fast(first + more);
        let play = Play {
            pods: &pods,
            newcomer: Some((&newcomer, u64::from(first) * all.gap_us() / 1_000)),
            arrivals: all,
            prompt_tokens: self.prompt_tokens,
            is_distinct: false,
            routers: 1,
            profile: self.profile,
        };
        for seed in 1..=SEEDS {
            let picks = play.picks(seed)?;
            let (first, then) = picks
                .split_at_checked(first as usize)
                .ok_or_else(|| CaseError::not_understood("requests that are not served"))?;
            self.expect.check(first, then, &newcomer.name)?;
        }
        Ok(Notes::new())
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
