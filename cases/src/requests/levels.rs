//! Where cases run: the logic alone, the built filter in a host emulator, and real Envoy.

#[cfg(feature = "envoy")]
pub(crate) mod envoy;
mod native;
#[cfg(feature = "wasm")]
mod wasm;

use super::deployment::Family;
use super::expect::Seeded;
use super::request::Request;
use super::seen::Seen;
use super::setup::Setup;
use crate::error::CaseError;

pub(crate) use native::Native;

/// A place where requests are sent.
pub(crate) trait Level {
    /// Sends one request to a fresh gateway in these surroundings, and sees what becomes of it.
    ///
    /// # Errors
    /// The level itself failed: that is a failure of the case too.
    fn send(
        &mut self,
        setup: &Setup,
        request: &Request,
        seeded: Option<&Seeded>,
    ) -> Result<Seen, CaseError>;
}

/// A level, or why there is none.
pub(crate) type Available = Result<Box<dyn Level>, String>;

/// All levels but the native one, for a family.
pub(crate) fn outer(family: &Family) -> Vec<(&'static str, Available)> {
    vec![("wasm", wasm_level(family)), ("envoy", envoy_level(family))]
}

#[cfg(feature = "wasm")]
fn wasm_level(family: &Family) -> Available {
    Ok(Box::new(wasm::Wasm::new(family.clone())?))
}

#[cfg(not(feature = "wasm"))]
fn wasm_level(_family: &Family) -> Available {
    Err("built without the feature `wasm`".to_owned())
}

#[cfg(feature = "envoy")]
fn envoy_level(family: &Family) -> Available {
    Ok(Box::new(envoy::RealEnvoy::new(family.clone())?))
}

#[cfg(not(feature = "envoy"))]
fn envoy_level(_family: &Family) -> Available {
    Err("built without the feature `envoy`".to_owned())
}
