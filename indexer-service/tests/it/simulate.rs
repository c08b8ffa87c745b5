//! `prefixway simulate`: what it writes, and what it says of what it can't do.

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prefixway"));
    let Output {
        status,
        stdout,
        stderr,
    } = command.arg("simulate").args(arguments).output().unwrap();
    (
        status.code(),
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

#[test]
fn policies_are_compared_and_runs_and_plot_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (csv, plot) = (file("runs.csv"), file("ttft.svg"));
    let (code, stdout, stderr) = simulate(&[
        "--trace",
        "agentic",
        "--requests",
        "100",
        "--policies",
        "least_request,prefixway,oracle",
        "--loads",
        "1,2",
        "--seeds",
        "2",
        "--csv",
        &csv,
        "--plot",
        &plot,
    ]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.starts_with("agentic, load 1: 90 requests, mean of 2 seeds\npolicy"));
    assert_eq!(stdout.matches("prefixway ").count(), 2, "{stdout}");
    let runs = std::fs::read_to_string(csv).unwrap();
    assert_eq!(runs.lines().count(), 1 + 3 * 2 * 2);
    assert!(std::fs::read_to_string(plot).unwrap().starts_with("<svg"));
}

#[test]
fn what_can_not_be_simulated_is_said_with_a_hint() {
    let of = |arguments: &[&str], code: i32, error: &str, hint: &str| {
        let (got, stdout, stderr) = simulate(arguments);
        assert_eq!((got, stdout.as_str()), (Some(code), ""), "{stderr}");
        assert!(stderr.contains(error), "{stderr}");
        assert!(stderr.contains(hint), "{stderr}");
    };
    of(
        &["--trace", "/no/trace"],
        1,
        "error: can't read /no/trace\n  because: No such file",
        "hint: give a file of JSON lines",
    );
    of(
        &["--trace", "agentic", "--policies", "best"],
        2,
        "error: no policy is called \"best\"",
        "hint: policies are round_robin",
    );
    of(
        &["--trace", "agentic", "--loads", "1,0"],
        2,
        "error: the load 0 is not above 0",
        "hint: 1 is the pace",
    );
    of(
        &["--trace", "agentic", "--classes", "fast"],
        2,
        "error: class \"fast\" is not of the form",
        "hint: for example 4xfast:8000",
    );
    of(
        &["--trace", "agentic", "--endpoints", "65"],
        2,
        "error: 65 endpoints: 1 to 64",
        "hint: see",
    );
}
