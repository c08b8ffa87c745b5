//! Every input that fuzzing kept, through the checks of the fuzz targets.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "these are tests: failing loudly is their purpose"
)]

#[path = "../fuzz/checks/canonical.rs"]
mod canonical;
#[path = "../fuzz/checks/encoding.rs"]
mod encoding;
#[path = "../fuzz/checks/event.rs"]
mod event;
#[path = "../fuzz/checks/renderer.rs"]
mod renderer;
#[path = "../fuzz/checks/replica.rs"]
mod replica;
#[path = "../fuzz/checks/request.rs"]
mod request;

use std::fs;
use std::path::Path;

/// Runs a check on the inputs kept for it, and on those that failed where there are any.
fn check_all(target: &str, check: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let mut kept = 0;
    for folder in ["corpus", "crashes"] {
        let folder = fuzz.join(folder).join(target);
        if folder.ends_with(Path::new("crashes").join(target)) && !folder.exists() {
            continue;
        }
        for entry in fs::read_dir(&folder).unwrap() {
            check(&fs::read(entry.unwrap().path()).unwrap());
            kept += 1;
        }
    }
    assert!(kept > 20, "{target} has a corpus of {kept}");
}

#[test]
fn requests_are_read_as_before() {
    check_all("request", request::check);
}

#[test]
fn chats_are_rendered_as_before() {
    check_all("renderer", renderer::check);
}

#[test]
fn texts_become_canonical_as_before() {
    check_all("canonical", canonical::check);
}

#[test]
fn coded_bodies_are_read_as_before() {
    check_all("encoding", encoding::check);
}

#[test]
fn messages_of_engines_are_read_as_before() {
    check_all("event", event::check);
}

#[test]
fn messages_of_indexers_are_taken_as_before() {
    check_all("replica", replica::check);
}
