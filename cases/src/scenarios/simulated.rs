//! The scheduler alone, on simulated engines: pods are as a case says, and no request ever ends.

use prefixway_core::load::Figures;
use prefixway_simulator::engine::EndpointClass;
use prefixway_simulator::policy::Policy;
use prefixway_simulator::simulation::{Setup, Start, run_from};
use prefixway_simulator::trace::Trace;
use prefixway_simulator::workload::Workload;

use super::pods::{Arrivals, Pod};
use super::profile::Profile;
use super::world::MAX_WAITING;
use crate::error::CaseError;

/// Runs of a case, each with other chances.
pub(super) const SEEDS: u64 = 5;
/// Tokens of a block.
const BLOCK: u32 = 16;
/// Blocks that two prompts never share are numbered so far apart.
const APART: u64 = 100_000;

/// Requests and pods of a run.
#[derive(Clone, Debug)]
pub(super) struct Play<'a> {
    pub(super) pods: &'a [Pod],
    /// A pod that joins, and after how many ms.
    pub(super) newcomer: Option<(&'a Pod, u64)>,
    pub(super) arrivals: Arrivals,
    /// Tokens of each prompt.
    pub(super) prompt_tokens: u32,
    /// Whether prompts have nothing in common.
    pub(super) is_distinct: bool,
    /// Routers that account for their own requests, and tell one another.
    pub(super) routers: usize,
    pub(super) profile: Profile,
}

impl Play<'_> {
    /// Names of the pods that requests go to, in the order of their arrival.
    ///
    /// # Errors
    /// The case can't be simulated.
    pub(super) fn picks(&self, seed: u64) -> Result<Vec<String>, CaseError> {
        let work = Workload::new(&self.trace()?, BLOCK, seed);
        let name = self.profile.simulated();
        let policy: Policy = name
            .parse()
            .map_err(|_| CaseError::not_understood(format!("policy {name}")))?;
        let start = self.start()?;
        let run = run_from(&work, &self.setup(), policy, 1.0, &start);
        let newcomer = self.newcomer.map(|(pod, _)| pod);
        let pods: Vec<&Pod> = self.pods.iter().chain(newcomer).collect();
        let name = |endpoint: u32| pods.get(endpoint as usize).map(|pod| pod.name.clone());
        let served = run.served.iter().filter_map(|of| name(of.endpoint));
        Ok(served.collect())
    }

    fn trace(&self) -> Result<Trace, CaseError> {
        let tokens = self.prompt_tokens;
        let line = |request: u32| {
            let own = if self.is_distinct {
                APART * (1 + u64::from(request))
            } else {
                0
            };
            let ids: Vec<u64> = (0..u64::from(tokens.div_ceil(BLOCK)))
                .map(|block| own + block)
                .collect();
            let at_ms = u64::from(request) * self.arrivals.gap_us() / 1_000;
            format!(
                r#"{{"timestamp": {at_ms}, "input_length": {tokens}, "output_length": 2, "hash_ids": {ids:?}}}"#
            )
        };
        let lines: Vec<String> = (0..self.arrivals.count).map(line).collect();
        Trace::from_text("case", &lines.join("\n"))
            .map_err(|error| CaseError::not_understood(format!("a trace: {error}")))
    }

    fn setup(&self) -> Setup {
        let pods = |count: usize, joins_ms: u64| EndpointClass {
            count: u32::try_from(count).unwrap_or(u32::MAX),
            // Two tokens take a day, and nobody waits for a slot.
            decode_ms_per_token: 86_400_000.0,
            slots: 10_000,
            joins_us: joins_ms * 1_000,
            ..EndpointClass::default()
        };
        let joins = self.newcomer.map(|(_, joins_ms)| pods(1, joins_ms));
        Setup {
            classes: [pods(self.pods.len(), 0)]
                .into_iter()
                .chain(joins)
                .collect(),
            replicas: u32::try_from(self.routers).unwrap_or(1),
            ..Setup::default()
        }
    }

    fn start(&self) -> Result<Start, CaseError> {
        let newcomer = self.newcomer.map(|(pod, _)| pod);
        let pods = || self.pods.iter().chain(newcomer);
        let held = pods().map(|pod| pod.prefix_tokens_matched.unwrap_or(0) / BLOCK);
        let figures = pods().map(|pod| {
            let said = pod.figures(MAX_WAITING)?;
            Ok(said.map(|said| Figures {
                running: said.running,
                waiting: said.waiting,
                kv_usage_ratio: said.kv_used,
                // No router has sent them.
                others: said.running + said.waiting,
                age_ms: said.age_ms.into(),
            }))
        });
        Ok(Start {
            held_blocks: held.collect(),
            frozen_figures: figures.collect::<Result<_, CaseError>>()?,
        })
    }
}
