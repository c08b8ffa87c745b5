//! Feeds bytes to the check of the same name.
#![no_main]

#[path = "../checks/event.rs"]
mod event;

libfuzzer_sys::fuzz_target!(|data: &[u8]| event::check(data));
