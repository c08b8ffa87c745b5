//! From a 32 KiB chat body to chunk hashes.
//!
//! Shape: one system prompt of 2 KiB and 19 turns, prose with a line end each 80 characters (so that strings need unescaping);
//! templates of the captures `tinybpe` (`ChatML`, content as a string) and `llama3_1` (content as parts).

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use prefixway_core::hash::{Scope, Seed, Space, chunk_hashes};
use prefixway_core::text::{Api, LocalTime, ModelFiles, PromptProfile, Prompter, parse};

const SEED: Seed = Seed(42);

/// A chat body of about `bytes` bytes in `turns` messages.
fn body(bytes: usize, turns: usize) -> Vec<u8> {
    let line = "The scheduler rewrites stale segments before the nightly window closes again.\\n";
    let content = line.repeat(bytes / turns / line.len() + 1);
    let messages: Vec<String> = (0..turns)
        .map(|i| {
            let role = match i {
                0 => "system",
                i if i % 2 == 1 => "user",
                _ => "assistant",
            };
            format!(r#"{{"role":"{role}","content":"{i} {content}"}}"#)
        })
        .collect();
    format!(
        r#"{{"model":"tiny","stream":true,"max_tokens":64,"messages":[{}]}}"#,
        messages.join(",")
    )
    .into_bytes()
}

fn prompter(capture: &str) -> Prompter {
    let model = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/vllm")
        .join(capture)
        .join("model");
    let read = |file: &str| std::fs::read_to_string(model.join(file)).unwrap_or_default();
    let profile = PromptProfile::from_model_files(&ModelFiles {
        tokenizer_json: &read("tokenizer.json"),
        tokenizer_config_json: &read("tokenizer_config.json"),
        chat_template: Some(&read("chat_template.jinja")),
    });
    #[expect(
        clippy::expect_used,
        reason = "a benchmark without its model can't run"
    )]
    profile
        .and_then(Prompter::try_new)
        .expect("the capture's model")
}

fn hash(text: &[u8]) -> u64 {
    let scope = Scope {
        space: Space::Text,
        profile: "tiny",
        revision: 1,
        adapter: "",
        salt: "",
    };
    chunk_hashes(scope.hash(SEED), text, SEED).fold(0, |sum, hash| sum ^ hash.0)
}

fn text(c: &mut Criterion) {
    let body = body(32 << 10, 20);
    let now = LocalTime::from_unix(1_720_278_245, 0);
    for capture in ["tinybpe", "llama3_1"] {
        let prompter = prompter(capture);
        let mut group = c.benchmark_group(format!("chat_32k/{capture}"));
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function("parse", |b| {
            b.iter(|| parse(Api::Chat, black_box(&body)).is_ok());
        });
        let Ok(request) = parse(Api::Chat, &body) else {
            continue;
        };
        group.bench_function("text", |b| {
            b.iter(|| {
                prompter
                    .prompt(black_box(&request), now)
                    .map(|prompt| prompt.text.len())
            });
        });
        let Ok(prompt) = prompter.prompt(&request, now) else {
            continue;
        };
        group.bench_function("hashes", |b| b.iter(|| hash(black_box(&prompt.text))));
        group.bench_function("body_to_hashes", |b| {
            b.iter(|| {
                let request = parse(Api::Chat, black_box(&body)).ok()?;
                let prompt = prompter.prompt(&request, now).ok()?;
                Some(hash(&prompt.text))
            });
        });
        group.finish();
    }
}

/// Bodies that are odd in one way, of about `bytes` bytes.
fn hostile(bytes: usize) -> Vec<(&'static str, Vec<u8>)> {
    let chat =
        |content: String| format!(r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#);
    let times = |piece: &str| piece.repeat(bytes / piece.len());
    let keys = |first: usize| -> String {
        let key = |i: usize| format!("\"k{i}\":{i},");
        (first..first + bytes / 16).map(key).collect()
    };
    let nested = format!("{}{},", "[".repeat(500), "]".repeat(500));
    let message = r#"{"role":"user","content":"a"},{"role":"assistant","content":"b"},"#;
    let part = r#"{"type":"text","text":"a"},"#;
    let call = r#"{"role":"assistant","content":"b","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":[[["}}]},"#;
    [
        ("open_brackets", chat(times("["))),
        ("nested_lists", format!(r#"{{"x":[{}1],"prompt":"a"}}"#, times(&nested))),
        ("nested_arguments", format!(r#"{{"chat_template_kwargs":{{"tools":[{}1]}},"messages":[{{"role":"user","content":"a"}}]}}"#, times(&nested))),
        ("escapes", chat(format!("\"{}\"", times("\\u00e9\\n")))),
        ("same_key", format!(r#"{{{}"prompt":"a"}}"#, times("\"a\":1,"))),
        ("many_keys", format!(r#"{{{}"prompt":"a"}}"#, keys(1_000_000))),
        ("many_arguments", format!(r#"{{"chat_template_kwargs":{{{}"a":1}},"messages":[{{"role":"user","content":"a"}}]}}"#, keys(1_000_000))),
        ("long_key", format!(r#"{{"{}":1,"prompt":"a"}}"#, times("k"))),
        ("long_number", format!(r#"{{"n":{},"prompt":"a"}}"#, times("9"))),
        ("many_messages", format!(r#"{{"messages":[{}{{"role":"user","content":"a"}}]}}"#, times(message))),
        ("many_parts", chat(format!("[{}\"b\"]", times(part)))),
        ("many_calls", format!(r#"{{"messages":[{}{{"role":"user","content":"a"}}]}}"#, times(call))),
        ("many_literals", chat(format!("\"{}\"", times("<|im_start|>")))),
        ("combining_marks", chat(format!("\"{}\"", times("\u{301}\u{327}\u{323}")))),
        ("many_prompts", format!(r#"{{"prompt":[{}"a"]}}"#, times("\"a\","))),
    ]
    .map(|(name, body)| (name, body.into_bytes()))
    .into()
}

/// The same bodies in two sizes: bytes per second should be alike, as time grows with the length alone.
fn odd(c: &mut Criterion) {
    let prompter = prompter("llama3_1");
    let now = LocalTime::from_unix(1_720_278_245, 0);
    for bytes in [64 << 10, 512 << 10] {
        let mut group = c.benchmark_group(format!("odd_{}k", bytes >> 10));
        group.sample_size(10);
        for (name, body) in hostile(bytes) {
            let api = if body.windows(10).any(|window| window == b"\"messages\"") {
                Api::Chat
            } else {
                Api::Completions
            };
            group.throughput(Throughput::Bytes(body.len() as u64));
            group.bench_function(name, |b| {
                b.iter(|| {
                    let request = parse(api, black_box(&body)).ok()?;
                    let prompts = prompter.prompts(&request, now).ok()?;
                    Some(
                        prompts
                            .iter()
                            .fold(0, |sum, prompt| sum ^ hash(&prompt.text)),
                    )
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, text, odd);
criterion_main!(benches);
