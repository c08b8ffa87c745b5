//! How long an engine takes to get at a request's adapter.
//!
//! ```text
//!   adapter(e) = 0                                  loaded there, or the base model is wanted
//!              = load_ms / 2                        about to be loaded: that is under way
//!              = load_ms                            not loaded
//!              + output_ms / max_adapters           besides, where all places are taken: one is free when all requests of some adapter have ended
//! ```
//!
//! Engines tell which adapters their running and waiting requests have. Of one that does not tell the adapter counts as not loaded; where none
//! tells, nothing is added.

use super::{Contender, Field};

/// Time to load an adapter when the policy has none. One of rank 16 for all layers of Llama 3.1 8B is 84 MB in 16 bits: 32 ms from storage
/// at 2.6 GB/s, 6 ms from host memory at 13 GB/s, and then it is put in its place.
pub const DEFAULT_ADAPTER_LOAD_MS: f64 = 50.0;

/// Whether any engine tells of its adapters, where the request wants one.
pub(super) fn is_known(field: &Field<'_>) -> bool {
    let tells = |contender: &Contender<'_>| contender.endpoint().loaded_adapters.is_known();
    field.need.adapter.is_some() && field.contenders.iter().any(tells)
}

/// Time until the adapter is there; `load_ms` to load one, `output_ms` that a request takes to be answered.
pub(super) fn ms(adapter: &str, contender: &Contender<'_>, load_ms: f64, output_ms: f64) -> f64 {
    let adapters = &contender.endpoint().loaded_adapters;
    let is_among = |names: &[String]| names.iter().any(|name| name == adapter);
    if is_among(&adapters.running) {
        return 0.0;
    }
    let share = if is_among(&adapters.waiting) {
        0.5
    } else {
        1.0
    };
    let is_taken = adapters.max > 0 && adapters.running.len() >= adapters.max as usize;
    let place_ms = if is_taken {
        output_ms / f64::from(adapters.max)
    } else {
        0.0
    };
    share * load_ms + place_ms
}
