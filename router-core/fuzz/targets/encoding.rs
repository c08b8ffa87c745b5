//! Feeds bytes to the check of the same name.
#![no_main]

#[path = "../checks/encoding.rs"]
mod encoding;

libfuzzer_sys::fuzz_target!(|data: &[u8]| encoding::check(data));
