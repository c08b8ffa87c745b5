//! What the route of a request says: a mode, and a name that the policy may have a mode for.
//!
//! Envoy has no configuration of a wasm filter by route, but the filter can read the route's metadata:
//!
//! ```yaml
//! - match: {prefix: "/v1"}
//!   name: chat
//!   metadata: {filter_metadata: {prefixway: {mode: shadow}}}
//! ```

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
    // Another error than "there is none" leaves the request as it would be without metadata.
    let text = |path: &[&str]| {
        let bytes = host::property(path).ok().flatten()?;
        String::from_utf8(bytes)
            .ok()
            .filter(|text| !text.is_empty())
    };
    RouteSays {
        mode: text(&MODE).map_or(Mode::On, |name| mode(&name)),
        name: wants_name.then(|| text(&NAME)).flatten(),
    }
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
    }
}
