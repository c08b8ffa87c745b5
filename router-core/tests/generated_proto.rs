//! Generated code is checked in; this test makes it anew and fails on a difference.
//!
//! `UPDATE_GENERATED=1 cargo test -p prefixway-core --test generated_proto` rewrites it.

#![expect(clippy::unwrap_used, reason = "a test says what failed by panicking")]

use std::{fs, path::Path};

const PROTO: &str = "prefixway/v1/snapshot.proto";
const GENERATED: &str = "prefixway.v1.rs";

fn compare_or_update(made: &str, checked_in: &Path) {
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::create_dir_all(checked_in.parent().unwrap()).unwrap();
        fs::write(checked_in, made).unwrap();
    } else {
        let old = fs::read_to_string(checked_in).unwrap_or_default();
        assert!(
            old == made,
            "{} is stale: run with UPDATE_GENERATED=1",
            checked_in.display()
        );
    }
}

fn generate(builder: tonic_prost_build::Builder) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut compiler = protox::Compiler::new([&root]).unwrap();
    compiler
        .include_source_info(true)
        .include_imports(true)
        .open_file(PROTO)
        .unwrap();
    let out = tempfile::tempdir().unwrap();
    builder
        .emit_rerun_if_changed(false)
        .out_dir(out.path())
        .compile_fds(compiler.file_descriptor_set())
        .unwrap();
    fs::read_to_string(out.path().join(GENERATED)).unwrap()
}

#[test]
fn messages_are_up_to_date() {
    let made = generate(
        tonic_prost_build::configure()
            .build_client(false)
            .build_server(false)
            // Far larger than all others, and rare.
            .boxed(".prefixway.v1.Up.kind.sampled")
            .boxed(".prefixway.v1.Policy.scheduling")
            .boxed(".prefixway.v1.Down.kind.policy")
            // Equal messages have equal bytes.
            .btree_map(".")
            .bytes("."),
    );
    compare_or_update(
        &made,
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src/proto/generated")
            .join(GENERATED),
    );
}

#[test]
fn service_stubs_are_up_to_date() {
    let made = generate(
        tonic_prost_build::configure().extern_path(".prefixway.v1", "::prefixway_core::proto"),
    );
    let checked_in = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../indexer-service/src/generated")
        .join(GENERATED);
    compare_or_update(&made, &checked_in);
}
