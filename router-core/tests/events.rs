//! Events from files: the wire samples of many engine releases, the collision pairs and the captures. The event cases run in `cases/`.
//!
//! Files are found in `$PREFIXWAY_FIXTURES` and `$PREFIXWAY_CASES`, by default in `../shared` of the workspace; a test whose files are
//! absent says so and passes. The captures in `tests/fixtures` are always there.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests stop at the first thing that is not as it should be, and say what they skipped"
)]

#[path = "events/capture.rs"]
mod capture;
#[path = "events/collisions.rs"]
mod collisions;
#[path = "events/wire.rs"]
mod wire;

use std::path::PathBuf;

/// A folder named by a variable, or its default beside the workspace; `None`, with a message, when it is absent.
fn folder(variable: &str, default: &str) -> Option<PathBuf> {
    let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let path = std::env::var_os(variable)
        .map_or_else(|| PathBuf::from(workspace).join(default), PathBuf::from);
    if path.is_dir() {
        return Some(path);
    }
    println!(
        "skipped: {} is not a folder; set {variable} to run this test",
        path.display()
    );
    None
}

fn fixtures() -> Option<PathBuf> {
    folder("PREFIXWAY_FIXTURES", "../shared/fixtures/vllm")
}

fn cases() -> Option<PathBuf> {
    folder("PREFIXWAY_CASES", "../shared/cases")
}

/// Bytes of standard base64.
fn base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'=').collect();
    digits
        .chunks(4)
        .flat_map(|group| {
            let bits = group
                .iter()
                .fold(0, |bits, &digit| bits << 6 | value(digit))
                << (6 * (4 - group.len()));
            bits.to_be_bytes()[1..group.len()].to_vec()
        })
        .collect()
}

#[test]
fn base64_is_read() {
    assert_eq!(base64("aGVsbG8="), b"hello");
    assert_eq!(base64("AP+A"), [0, 255, 128]);
    assert_eq!(base64("/w=="), [255]);
}
