//! Feeds bytes to the check of the same name.
#![no_main]

#[path = "../checks/canonical.rs"]
mod canonical;

libfuzzer_sys::fuzz_target!(|data: &[u8]| canonical::check(data));
