//! What a calibration changes.

use std::net::SocketAddr;

use prefixway_core::index::SourceId;

use super::Ingest;
use crate::calibration::{Calibrated, EngineReport, EngineState};

impl Ingest {
    /// Takes a model's calibration: publishes the profile that its engines follow, or the outline where they follow none.
    ///
    /// Events are indexed under the profile's revision. Where that changes, or where an engine turns out to be an odd one, its events are
    /// replayed and indexed anew.
    pub(super) fn calibrated(&mut self, calibrated: Calibrated) {
        let Calibrated {
            model: number,
            verdict,
            profile,
            assumes,
            engines,
        } = calibrated;
        let Some(model) = self.models.get_mut(number) else {
            return;
        };
        let is_news = *model.verdict() != verdict;
        let is_respelled = model.calibrate(verdict, profile.as_ref(), assumes, &mut self.index);
        let (id, calibration) = (model.settings_id(), model.verdict().name());
        if is_news || is_respelled {
            if let Some(reason) = model.approximate_reason() {
                tracing::warn!(
                    model = id,
                    calibration,
                    reason,
                    "engines don't follow the model's files: the model is routed by decisions alone"
                );
            } else {
                tracing::info!(
                    model = id,
                    calibration,
                    state = model.state().0,
                    assumes,
                    "model calibrated"
                );
            }
        }
        self.is_policy_changed |= is_news || is_respelled;
        for source in self.take_engines(number, &engines, is_respelled) {
            self.start_over(source);
        }
    }

    /// Takes what was found of a model's engines; gives the sources that have to be indexed anew.
    fn take_engines(
        &mut self,
        model: usize,
        engines: &[(SocketAddr, EngineReport, bool)],
        is_respelled: bool,
    ) -> Vec<SourceId> {
        let mut moved = Vec::new();
        for endpoint in &mut self.endpoints.list {
            if endpoint.settings.model != model {
                continue;
            }
            let found = engines
                .iter()
                .find(|(address, _, _)| *address == endpoint.settings.address);
            let mut is_moved = is_respelled;
            if let Some((address, report, is_odd)) = found {
                if endpoint.is_odd != *is_odd {
                    log_odd(*address, report, *is_odd);
                    endpoint.is_odd = *is_odd;
                    is_moved = true;
                }
                endpoint.engine = Some(report.clone());
            }
            if is_moved {
                moved.push(endpoint.source);
            }
        }
        moved
    }

    /// Has a source's events indexed anew.
    pub(super) fn start_over(&mut self, source: SourceId) {
        let Some(endpoint) = self.endpoints.by_source(source) else {
            return;
        };
        let Some(model) = self.models.get(endpoint.settings.model) else {
            return;
        };
        let model = if endpoint.is_odd {
            model.twin()
        } else {
            model.id
        };
        self.index.add_source(source, model, endpoint.holders);
        self.replay_all(source);
        self.endpoints.set_changed();
    }
}

fn log_odd(endpoint: SocketAddr, report: &EngineReport, is_odd: bool) {
    if !is_odd {
        tracing::info!(%endpoint, "engine spells prompts as its model again");
        return;
    }
    let reason = match &report.state {
        EngineState::Differs(why) => why,
        _ => "it follows another reading of the model's files",
    };
    tracing::warn!(
        %endpoint,
        reason,
        "engine spells prompts otherwise than its model: it is known from decisions alone"
    );
}
