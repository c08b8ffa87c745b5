//! What the route of a request says: a mode, a failure mode, and a name that the policy may have a mode for.
//!
//! Envoy has no configuration of a wasm filter by route, but the filter can read the route's metadata:
//!
//! ```yaml
//! - match: {prefix: "/v1"}
//!   name: chat
//!   metadata: {filter_metadata: {prefixway: {mode: shadow, failure_mode: closed}}}
//! ```

use prefixway_core::admission::FailureMode;
use prefixway_core::mode::Mode;

use crate::host;

/// Mode in the route's metadata.
const MODE: [&str; 5] = [
    "xds",
    "route_metadata",
    "filter_metadata",
    "prefixway",
    "mode",
];
/// Failure mode in the route's metadata.
const FAILURE_MODE: [&str; 5] = [
    "xds",
    "route_metadata",
    "filter_metadata",
    "prefixway",
    "failure_mode",
];
/// Name of the route.
const NAME: [&str; 2] = ["xds", "route_name"];

/// What a route says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteSays {
    /// What it allows; a word that is no mode means shadow.
    pub(crate) mode: Mode,
    /// Its name, where that is asked for and it has one.
    pub(crate) name: Option<String>,
}

/// Reads what the route of the present request says.
pub(super) fn read(wants_name: bool) -> RouteSays {
    RouteSays {
        mode: text(&MODE).map_or(Mode::On, |name| mode(&name)),
        name: wants_name.then(|| text(&NAME)).flatten(),
    }
}

/// What the route of the present request says of requests that nothing is known for, as far as it says something that has a meaning.
pub(crate) fn failure_mode() -> Option<FailureMode> {
    FailureMode::from_name(&text(&FAILURE_MODE)?)
}

/// Another error than "there is none" leaves the request as it would be without metadata.
fn text(path: &[&str]) -> Option<String> {
    let bytes = host::property(path).ok().flatten()?;
    String::from_utf8(bytes)
        .ok()
        .filter(|text| !text.is_empty())
}

/// A route names no percentage: of what it allows, the policy decides which share.
fn mode(name: &str) -> Mode {
    const ALL: u32 = 100;
    Mode::from_name(name, ALL).unwrap_or(Mode::Shadow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_mode_does_not_steer() {
        assert_eq!(mode("on"), Mode::On);
        assert_eq!(mode("off"), Mode::Off);
        assert_eq!(mode("split"), Mode::Split { percent: 100 });
        assert_eq!(mode("On"), Mode::Shadow);
        assert_eq!(read(true), RouteSays::default(), "without a host");
        assert_eq!(failure_mode(), None, "without a host");
    }
}
