//! Memory that the text path takes: counted, so that it says the same on every machine.

#![expect(
    clippy::unwrap_used,
    reason = "tests stop at the first thing that is not as it should be"
)]

use std::path::Path;

use prefixway_bench_text::bodies::{Kind, chat, image};
use prefixway_bench_text::counting::Counts;
use prefixway_bench_text::subject::{Phase, Subject};
use prefixway_core::text::{ModelFiles, PromptProfile};

/// Counts what the whole way from a body to its rungs allocates.
fn counted(capture: &str, body: Vec<u8>) -> Counts {
    let model = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../router-core/tests/fixtures/vllm")
        .join(capture)
        .join("model");
    let read = |file: &str| std::fs::read_to_string(model.join(file)).unwrap();
    let profile = PromptProfile::from_model_files(&ModelFiles {
        tokenizer_json: &read("tokenizer.json"),
        tokenizer_config_json: &read("tokenizer_config.json"),
        chat_template: Some(&read("chat_template.jinja")),
    });
    let profile = serde_json::to_vec(&profile.unwrap()).unwrap();
    Subject::try_new(&profile, body)
        .unwrap()
        .count(Phase::Total)
}

#[test]
fn twenty_messages_take_few_allocations() {
    let body = chat(Kind::Prose, 32 << 10, 20);
    let size = body.len() as u64;
    for (capture, calls) in [("tinybpe", 120), ("llama3_1", 180)] {
        let counts = counted(capture, body.clone());
        assert!(counts.calls <= calls, "{capture}: {counts:?}");
        assert!(counts.bytes <= 7 * size, "{capture}: {counts:?}");
        assert!(counts.peak <= 5 * size, "{capture}: {counts:?}");
    }
}

#[test]
fn allocations_grow_with_the_messages_and_not_with_their_length() {
    for capture in ["tinybpe", "llama3_1"] {
        let short = counted(capture, chat(Kind::Prose, 32 << 10, 20));
        let long = counted(capture, chat(Kind::Prose, 320 << 10, 20));
        let more = counted(capture, chat(Kind::Prose, 320 << 10, 200));
        // A longer text has a few more rungs, which are kept in a list that grows.
        assert!(
            long.calls <= short.calls + 12,
            "{capture}: {short:?} {long:?}"
        );
        assert!(
            more.calls <= 11 * short.calls,
            "{capture}: {short:?} {more:?}"
        );
    }
}

#[test]
fn an_inline_image_is_read_but_not_copied() {
    const IMAGE: usize = 6 << 20;
    for capture in ["tinybpe", "llama3_1"] {
        let counts = counted(capture, image(IMAGE));
        assert!(counts.peak <= 64 << 10, "{capture}: {counts:?}");
    }
}

#[test]
fn an_inline_image_with_escapes_takes_memory_in_proportion() {
    // Some clients write `\/` for each slash.
    let escaped = |bytes| {
        let body = String::from_utf8(image(bytes)).unwrap();
        body.replace('B', r"\/").into_bytes()
    };
    let half = counted("tinybpe", escaped(3 << 20));
    let body = escaped(6 << 20);
    let size = body.len() as u64;
    let whole = counted("tinybpe", body);
    assert!(whole.peak <= 4 * size, "{whole:?}");
    assert!(whole.calls <= half.calls + 8, "{half:?} {whole:?}");
}
