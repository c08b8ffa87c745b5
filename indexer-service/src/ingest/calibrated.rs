//! What a calibration changes.

use prefixway_core::index::SourceId;

use super::Ingest;
use super::feed::FeedInput;
use crate::calibration::{Calibrated, EngineState};

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
        let (state, reason) = model.state();
        let (id, verdict) = (model.settings_id(), model.verdict().name());
        match (is_news || is_respelled, state) {
            (true, "approximate") => tracing::warn!(
                model = id,
                calibration = verdict,
                reason,
                "engines don't follow the model's files: the model is routed by decisions alone"
            ),
            (true, state) => tracing::info!(
                model = id,
                calibration = verdict,
                state,
                assumes,
                "model calibrated"
            ),
            (false, _) => {}
        }
        self.is_policy_changed |= is_news || is_respelled;
        let mut moved = Vec::new();
        for endpoint in &mut self.endpoints.list {
            if endpoint.settings.model != number {
                continue;
            }
            let engine = engines
                .iter()
                .find(|(address, _, _)| *address == endpoint.settings.address);
            let Some((address, report, is_odd)) = engine else {
                if is_respelled {
                    moved.push(endpoint.source);
                }
                continue;
            };
            if endpoint.is_odd != *is_odd {
                endpoint.is_odd = *is_odd;
                if *is_odd {
                    let reason = match &report.state {
                        EngineState::Differs(why) => why,
                        _ => "it follows another reading of the model's files",
                    };
                    tracing::warn!(
                        endpoint = %address,
                        reason,
                        "engine spells prompts otherwise than its model: it is known from decisions alone"
                    );
                } else {
                    tracing::info!(endpoint = %address, "engine spells prompts as its model again");
                }
                moved.push(endpoint.source);
            } else if is_respelled {
                moved.push(endpoint.source);
            }
            endpoint.engine = Some(report.clone());
        }
        for source in moved {
            self.start_over(source);
        }
    }

    /// Has a source's events indexed anew.
    fn start_over(&mut self, source: SourceId) {
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
        self.feed(source, FeedInput::StartOver);
        self.endpoints.set_changed();
    }
}
