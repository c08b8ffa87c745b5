//! Feeds bytes to the check of the same name.
#![no_main]

#[path = "../checks/replica.rs"]
mod replica;

libfuzzer_sys::fuzz_target!(|data: &[u8]| replica::check(data));
