//! Scorers: how well an endpoint suits a request, from 0 to 1.
//!
//! Each is named in a policy by its type, with parameters; see [`super::registry`] for the names.

mod affinity;
mod load;
mod prefix;
mod targets;

use core::fmt;

pub(super) use affinity::{
    ContextLength, HeaderLabel, LoraAffinity, SessionAffinity, Topology, of_session, range,
};
pub(super) use load::{ActiveRequests, ByAttribute, FewerIsBetter, LoadAware, TokenLoad};
pub(super) use prefix::{NoHitLru, PrefixCache};
pub(super) use targets::Latency;

use super::Field;

/// Says how well each endpoint suits a request.
pub trait Scorer: fmt::Debug + Send + Sync {
    /// Sets `scores`, one for each of the field's contenders and 0 at first: 1 suits best. What is beyond 0 and 1 is cut off.
    fn score(&self, field: &Field<'_>, scores: &mut [f64]);

    /// Adds the request headers that it asks for, names in lower case.
    fn headers(&self, names: &mut Vec<String>) {
        let _ = names;
    }
}
