//! The whole path in real Envoy with two workers. Needs the built filter (`make wasm`) and an Envoy (`scripts/envoy.sh`).

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test's helpers fail by panicking, as the tests do"
)]

mod closed_loop;
mod collisions;
mod configuration;
mod decisions;
mod documentation;
mod failure;
mod istio;
mod modes;
mod profiles;
mod routing_headers;
mod shards;
mod steering;
mod token_ids;
mod waiting;
mod wrong_statements;

/// The repository's root.
fn repository() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// About 2 kB of text that differs from every other number's from its first bytes on.
fn system_prompt(number: usize) -> String {
    let line = format!(
        "{number}: rule {number} of the house says that guest {number} pays {number} coins. "
    );
    line.repeat(30)
}
