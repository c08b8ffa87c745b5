//! Feeds bytes to the check of the same name.
#![no_main]

#[path = "../checks/renderer.rs"]
mod renderer;

libfuzzer_sys::fuzz_target!(|data: &[u8]| renderer::check(data));
