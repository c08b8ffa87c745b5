//! How endpoints are chosen, by the policy, and what of the past that needs.

use super::{RoutingView, Wanted};
use crate::{
    proto,
    schedule::{Profiles, ScheduleError},
    snapshot::EndpointKey,
};

/// Endpoints whose last cold request is remembered; past it all are forgotten.
const MAX_LAST_COLD: usize = 65_536;

impl RoutingView {
    /// How endpoints are chosen.
    pub fn schedule(&self) -> &Profiles {
        &self.profiles
    }

    /// Why the policy's profiles are not used, if they are not; those of the last good policy are then.
    pub fn profile_error(&self) -> Option<&ScheduleError> {
        self.profile_error.as_ref()
    }

    /// What of requests' headers matters to the first policy and the profiles in use.
    pub fn wanted(&self) -> Wanted {
        let policy = self.policies().next();
        policy.map_or_else(Wanted::default, |policy| {
            Wanted::new(policy, &self.profiles)
        })
    }

    /// Makes the profiles of the first policy.
    pub(super) fn compile_profiles(&mut self) {
        let Some(policy) = self
            .members
            .iter()
            .find_map(|member| member.info().policy.as_ref())
        else {
            return;
        };
        match self.registry.profiles(policy) {
            Ok(profiles) => {
                self.profiles = profiles;
                self.profile_error = None;
            }
            Err(error) => self.profile_error = Some(error),
        }
    }

    /// Notes that an endpoint was given a request of which nobody held anything.
    pub(super) fn note_cold(&mut self, routed: &proto::Routed, endpoint: EndpointKey, at_ms: u64) {
        if !routed.is_cold {
            return;
        }
        if self.last_cold.len() >= MAX_LAST_COLD {
            self.last_cold.clear();
        }
        self.last_cold.insert(endpoint, at_ms);
    }
}
