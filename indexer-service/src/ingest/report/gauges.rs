//! A report as metrics.

use prefixway_core::trust::Standing;

use super::{EndpointReport, ModelReport, Report};
use crate::ingest::endpoints::{STATES, label};
use crate::ingest::knowledge::Knowledge;
use crate::ingest::models;
use crate::metrics::{EndpointLabel, EndpointState, Metrics, ModelLabel, ModelState, StateLabel};

impl Report {
    /// Writes what is a state, not an event, into the metric families.
    pub fn write_gauges(&self, metrics: &Metrics) {
        metrics.index_rungs.set(size(self.index.rungs));
        metrics.index_blocks.set(size(self.index.blocks));
        metrics.index_bytes.set(size(self.index.bytes));
        metrics.index_age.set(self.index.age_ms as f64 / 1000.0);
        metrics
            .snapshot_version
            .set(i64::try_from(self.index.version).unwrap_or(i64::MAX));
        for (state, vms) in self.copies.states() {
            let label = StateLabel { state };
            metrics.gateway_vms.get_or_create_owned(&label).set(vms);
        }
        for model in &self.models {
            model.write_gauges(metrics);
        }
        for endpoint in &self.endpoints {
            endpoint.write_gauges(metrics);
        }
    }
}

impl ModelReport {
    fn write_gauges(&self, metrics: &Metrics) {
        for state in models::STATES {
            let label = ModelState {
                model: self.id.clone(),
                state,
            };
            metrics
                .model_state
                .get_or_create_owned(&label)
                .set(i64::from(state == self.state));
        }
        let label = ModelLabel {
            model: self.id.clone(),
        };
        metrics
            .odd_endpoints
            .get_or_create_owned(&label)
            .set(size(self.odd_endpoints.len()));
        for (&state, &endpoints) in &self.endpoints {
            let label = ModelState {
                model: self.id.clone(),
                state,
            };
            metrics
                .model_knowledge
                .get_or_create_owned(&label)
                .set(size(endpoints));
        }
    }
}

impl EndpointReport {
    fn write_gauges(&self, metrics: &Metrics) {
        let name = label(&self.address, self.rank);
        let states = STATES.map(|state| (&metrics.source_state, state, self.state));
        let knowledge = Knowledge::ALL.map(|known| {
            (
                &metrics.endpoint_knowledge,
                known.as_str(),
                self.knowledge.as_str(),
            )
        });
        let trust = Standing::ALL
            .map(|standing| (&metrics.endpoint_trust, standing.as_str(), self.trust.state));
        for (family, state, present) in states.into_iter().chain(knowledge).chain(trust) {
            let label = EndpointState {
                endpoint: name.clone(),
                state,
            };
            family
                .get_or_create_owned(&label)
                .set(i64::from(state == present));
        }
        let label = EndpointLabel { endpoint: name };
        match self.trust.precision {
            Some(precision) => {
                metrics.precision.get_or_create_owned(&label).set(precision);
            }
            // What was said before no longer counts.
            None => {
                metrics.precision.remove(&label);
            }
        }
        let decisions = self.decisions.as_ref();
        metrics.approximate_tokens.get_or_create_owned(&label).set(
            decisions.map_or(0, |decisions| {
                i64::try_from(decisions.used_tokens).unwrap_or(i64::MAX)
            }),
        );
    }
}

fn size(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
