//! Captures of real engines, end to end.

use super::*;
use std::path::PathBuf;

/// What a capture must come to.
struct Expected {
    requests: usize,
    compared: usize,
    mean_abs_error_tokens: f64,
    render: usize,
    bytes: usize,
}

const TINYBPE: Expected = Expected {
    requests: 169,
    compared: 153,
    mean_abs_error_tokens: 5.4,
    render: 161,
    bytes: 167,
};
const LLAMA3_1: Expected = Expected {
    requests: 173,
    compared: 157,
    mean_abs_error_tokens: 5.8,
    render: 165,
    bytes: 171,
};

fn replay_folder(folder: &Path) -> Report {
    let model_dir = &folder.join("model");
    run(
        By::Text { model_dir },
        &folder.join("events.jsonl"),
        &folder.join("requests.jsonl"),
    )
    .unwrap()
}

fn check(folder: &Path, expected: &Expected) {
    let report = replay_folder(folder);
    println!("{}\n{}", folder.display(), report.to_table());
    assert_eq!(
        (report.requests, report.compared),
        (expected.requests, expected.compared)
    );
    assert_eq!(
        (report.render_equal, report.render_compared),
        (expected.render, expected.render)
    );
    assert_eq!(
        (report.bytes_equal, report.bytes_compared),
        (expected.bytes, expected.bytes)
    );
    assert_eq!(report.decode_errors, 0);
    assert!(
        report.mean_abs_error_tokens <= expected.mean_abs_error_tokens,
        "{}",
        report.mean_abs_error_tokens
    );
    assert!(report.index_exact_mae <= 1.2, "{}", report.index_exact_mae);
    assert_eq!(report.per_request.len(), report.compared);
}

fn copied(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../router-core/tests/fixtures/vllm")
        .join(name)
}

/// The folder of captures named by `$PREFIXWAY_FIXTURES`; `None`, with a message, when it is absent.
fn fixtures() -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/fixtures/vllm");
    let path = std::env::var_os("PREFIXWAY_FIXTURES")
        .map_or_else(|| PathBuf::from(default), PathBuf::from);
    if path.is_dir() {
        return Some(path);
    }
    println!(
        "skipped: {} is not a folder; set PREFIXWAY_FIXTURES to run this test",
        path.display()
    );
    None
}

#[test]
fn captures_are_predicted_within_half_a_block() {
    check(&copied("tinybpe"), &TINYBPE);
    check(&copied("llama3_1"), &LLAMA3_1);
}

#[test]
fn captures_of_the_fixture_folder_are_predicted_within_half_a_block() {
    let Some(fixtures) = fixtures() else {
        return;
    };
    check(&fixtures.join("tinybpe"), &TINYBPE);
    check(&fixtures.join("llama3_1"), &LLAMA3_1);
}

#[test]
fn every_capture_of_the_fixture_folder_is_read() {
    let Some(fixtures) = fixtures() else {
        return;
    };
    for entry in std::fs::read_dir(fixtures).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.join("requests.jsonl").is_file() {
            continue;
        }
        let model_dir = &folder.join("model");
        match run(
            By::Text { model_dir },
            &folder.join("events.jsonl"),
            &folder.join("requests.jsonl"),
        ) {
            Ok(report) => {
                assert_eq!(report.decode_errors, 0, "{}", folder.display());
                println!("{}\n{}", folder.display(), report.to_table());
            }
            // A tokenizer that is not supported says so.
            Err(error) => assert!(
                matches!(error, ReplayError::Model(_)),
                "{}: {error}",
                folder.display()
            ),
        }
    }
}

/// Predicts a capture of the fixture folder from token ids, through the published table. All must be exact but the errors named: the
/// first request of a rank after a reset of its cache, of which an engine tells with that request's own step.
fn check_token_space(capture: &str, compared: usize, errors: &[(u64, i64)]) {
    let Some(fixtures) = fixtures() else {
        return;
    };
    let folder = fixtures.join(capture);
    let (events, requests) = (folder.join("events.jsonl"), folder.join("requests.jsonl"));
    let report = run(By::TokenIds, &events, &requests).unwrap();
    println!("{capture}\n{}", report.to_table());
    assert_eq!((report.decode_errors, report.compared), (0, compared));
    let error = |one: &PerRequest| i64::from(one.predicted) - i64::from(one.actual);
    let found: Vec<(u64, i64)> = report
        .per_request
        .iter()
        .map(|one| (one.i, error(one)))
        .filter(|&(_, error)| error != 0)
        .collect();
    assert_eq!(found, errors);
    assert_eq!(report.exact, compared - errors.len());
}

#[test]
fn llama3_1_is_predicted_exactly_from_token_ids() {
    check_token_space("llama3_1", 157, &[(171, 48)]);
}

#[test]
fn llama3_1_with_blocks_of_32_is_predicted_exactly_from_token_ids() {
    check_token_space("llama3_1-block32", 153, &[(167, 32)]);
}

#[test]
fn qwen3_is_predicted_exactly_from_token_ids() {
    check_token_space("qwen3", 155, &[(169, 32)]);
}

#[test]
fn llama2_is_predicted_exactly_from_token_ids() {
    check_token_space("llama2", 147, &[(161, 32)]);
}

#[test]
fn tinybpe_is_predicted_exactly_from_token_ids() {
    check_token_space("tinybpe", 153, &[(167, 32)]);
}

#[test]
fn each_rank_of_tinybpe_dp2_is_predicted_exactly_from_token_ids() {
    check_token_space("tinybpe-dp2", 22, &[(21, 256), (22, 256)]);
}

#[test]
fn hybrid_gemma3_is_predicted_exactly_from_token_ids() {
    check_token_space("gemma3", 113, &[(127, 32)]);
}

#[test]
fn hybrid_gemma3_is_predicted_within_a_block_from_text() {
    let Some(fixtures) = fixtures() else {
        return;
    };
    let report = replay_folder(&fixtures.join("gemma3"));
    println!("{}", report.to_table());
    assert_eq!((report.decode_errors, report.compared), (0, 113));
    assert!(
        report.within_16_tokens >= 109,
        "{}",
        report.within_16_tokens
    );
}

#[test]
fn missing_files_are_named() {
    let error = run(
        By::TokenIds,
        Path::new("nowhere/events.jsonl"),
        Path::new("requests.jsonl"),
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "can't read requests.jsonl");
}

#[test]
fn json_report_has_the_documented_fields() {
    let report = replay_folder(&copied("tinybpe"));
    let json = serde_json::to_value(&report).unwrap();
    let fields: Vec<&str> = json
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        fields,
        [
            "space",
            "requests",
            "compared",
            "exact",
            "within_16_tokens",
            "mean_abs_error_tokens",
            "max_under_tokens",
            "max_over_tokens",
            "index_exact_mae",
            "render_compared",
            "render_equal",
            "bytes_compared",
            "bytes_equal",
            "decode_errors",
            "per_request",
        ]
    );
    let first = &json["per_request"][1];
    assert_eq!(first["i"], 1);
    assert!(first["predicted"].is_u64() && first["actual"].is_u64());
}

#[test]
fn table_names_the_worst_requests_and_why() {
    let table = replay_folder(&copied("tinybpe")).to_table();
    assert!(table.contains("Worst requests"), "{table}");
    assert!(table.contains("multi-turn-guided"), "{table}");
    assert!(table.contains("the same text in other tokens"), "{table}");
}
