//! The command line: exit codes, and what is written where.

use std::process::{Command, Output, Stdio};

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStderr;

use crate::support::DEADLINE;
use crate::support::indexer::{get, model_dir};

fn prefixway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prefixway"));
    command.args(arguments);
    for (name, _) in std::env::vars() {
        if name.starts_with("PREFIXWAY_") {
            command.env_remove(name);
        }
    }
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = prefixway(arguments).output().unwrap();
    (
        status.code(),
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

/// A folder with `indexer.yaml`.
fn folder(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("indexer.yaml");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap().to_owned();
    (folder, file)
}

fn good() -> String {
    format!(
        "listen: {{http: '127.0.0.1:0', grpc: '127.0.0.1:0'}}\n\
         models: [{{id: tiny, model_dir: '{}'}}]\n\
         endpoints: [{{address: '127.0.0.1:8000', model: tiny, scrape: false}}]\n",
        model_dir().display()
    )
}

#[test]
fn a_demo_without_envoy_says_where_to_get_one() {
    let (_folder, file) = folder("");
    let (code, stdout, stderr) = run(&["demo", "--filter", &file, "--envoy", "/no/envoy"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    let end = "cannot start envoy (/no/envoy)\n  because: No such file or directory (os error 2)\nhint: name an Envoy";
    assert!(stderr.contains(end), "{stderr}");
    assert!(stderr.contains("scripts/envoy.sh"), "{stderr}");
}

#[test]
fn a_replay_that_misses_a_file_says_which_and_what_to_do() {
    let captures = model_dir().join("..");
    let file = |name: &str| captures.join(name).to_str().unwrap().to_owned();
    let replay = |model: &str, events: &str| {
        run(&[
            "replay",
            "--model-dir",
            model,
            "--events",
            events,
            "--requests",
            &file("requests.jsonl"),
        ])
    };
    let (code, stdout, stderr) = replay("/no/model", &file("events.jsonl"));
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(
        stderr.contains("can't read /no/model/tokenizer.json"),
        "{stderr}"
    );
    assert!(
        stderr.contains("\nhint: the model folder needs"),
        "{stderr}"
    );
    let (code, _, stderr) = replay(model_dir().to_str().unwrap(), "/no/events");
    assert_eq!(code, Some(1));
    assert!(stderr.contains("can't read /no/events"), "{stderr}");
    assert!(
        stderr.contains("\nhint: --events and --requests"),
        "{stderr}"
    );
}

#[test]
fn wrong_arguments_exit_with_2_and_help_has_examples() {
    let (code, stdout, stderr) = run(&["serve"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("--config <FILE>"), "{stderr}");
    for arguments in [
        &["--help"][..],
        &["serve", "--help"],
        &["check-config", "--help"],
    ] {
        let (code, stdout, stderr) = run(arguments);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}");
        assert!(
            stdout.contains("Example") && stdout.contains("prefixway "),
            "{stdout}"
        );
    }
    let (code, stdout, _) = run(&["--version"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "prefixway 0.1.0\n"));
    let (code, _, stderr) = run(&["--log", "a=b=c", "check-config", "x"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("hint: --log takes a level"), "{stderr}");
}

#[test]
fn a_good_configuration_is_described_on_standard_output() {
    let (_folder, file) = folder(&good());
    let (code, stdout, stderr) = run(&["check-config", &file]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(
        stdout.contains("endpoint 127.0.0.1:8000 (both, 8000 tokens/s): no events"),
        "{stdout}"
    );
}

#[test]
fn a_wrong_configuration_exits_with_2_and_says_how_to_mend_it() {
    let (_folder, file) = folder(&good().replace("model: tiny,", "model: huge,"));
    for arguments in [&["check-config", &file][..], &["serve", "--config", &file]] {
        let (code, stdout, stderr) = run(arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""));
        let expected = "error: configuration breaks 1 rule\n\
                        - endpoints[0].model: \"huge\" is not a model, allowed: tiny\n  \
                        hint: an endpoint names a model by its id, not by one of its names\n";
        assert_eq!(stderr, expected);
    }
    let (code, _, stderr) = run(&["check-config", "/nonexistent/indexer.yaml"]);
    assert_eq!(code, Some(2));
    let expected = "error: can't read configuration /nonexistent/indexer.yaml\n  \
                    because: No such file or directory (os error 2)\n\
                    hint: give the path of a YAML file with --config\n";
    assert_eq!(stderr, expected);
}

#[test]
fn a_model_folder_without_a_tokenizer_exits_with_2() {
    let (folder, _) = folder("");
    let elsewhere = good().replace(model_dir().to_str().unwrap(), "./nowhere");
    let file = folder.path().join("indexer.yaml");
    std::fs::write(&file, elsewhere).unwrap();
    let file = file.to_str().unwrap();
    let (code, _, stderr) = run(&["check-config", file]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("tokenizer.json") && stderr.contains("\nhint: the model folder needs"),
        "{stderr}"
    );
    assert_eq!(run(&["check-config", file, "--no-files"]).0, Some(0));
    assert_eq!(run(&["serve", "--config", file]).0, Some(2));
}

#[test]
fn an_address_in_use_exits_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (_folder, file) = folder(&good());
    let (code, stdout, stderr) = run(&["serve", "--config", &file, "--http", &address]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(
        stderr.contains(&format!("error: can't listen on {address}\n")),
        "{stderr}"
    );
    assert!(
        stderr.contains("\nhint: another process may use the address"),
        "{stderr}"
    );
}

/// Reads the child's log until a line has `part`; that line's rest.
async fn line_with(
    log: &mut Lines<BufReader<ChildStderr>>,
    lines: &mut String,
    part: &str,
) -> String {
    loop {
        let line = tokio::time::timeout(DEADLINE, log.next_line())
            .await
            .expect("a line in time")
            .unwrap();
        let line = line.unwrap_or_else(|| panic!("ended early: {lines}"));
        lines.push_str(&line);
        if let Some((_, rest)) = line.split_once(part) {
            return rest.to_owned();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_runs_until_a_signal_and_keeps_the_seed_to_itself() {
    for signal in ["INT", "TERM"] {
        let (folder, file) = folder(&good());
        let mut command = tokio::process::Command::from(prefixway(&["serve", "--config", &file]));
        let mut child = command
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut lines = String::new();
        let rest = line_with(&mut log, &mut lines, " http=").await;
        let address = rest.split_whitespace().next().unwrap().parse().unwrap();
        assert_eq!(get(address, "/healthz").await, (200, "ok\n".to_owned()));
        let pid = child.id().unwrap().to_string();
        assert!(
            Command::new("kill")
                .args([&format!("-{signal}"), &pid])
                .status()
                .unwrap()
                .success()
        );
        line_with(&mut log, &mut lines, "stopping").await;
        let status = tokio::time::timeout(DEADLINE, child.wait())
            .await
            .expect("an end in time")
            .unwrap();
        assert_eq!(status.code(), Some(0), "SIG{signal}");
        let seed = std::fs::read_to_string(folder.path().join("state/seed")).unwrap();
        let seed = seed.trim().trim_start_matches("0x");
        assert!(!seed.is_empty() && !lines.contains(seed), "{lines}");
    }
}

#[test]
fn environment_gives_what_flags_do_not() {
    let (folder, file) = folder(&good());
    let seed_file = folder.path().join("missing-seed");
    let output = prefixway(&["serve"])
        .env("PREFIXWAY_CONFIG", &file)
        .env("PREFIXWAY_SEED_FILE", &seed_file)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr.contains(&format!("can't read seed file {}", seed_file.display())),
        "{stderr}"
    );
    assert!(!folder.path().join("state").exists());
}
