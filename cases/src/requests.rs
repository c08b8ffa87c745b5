//! The request cases: each sent at every level, and what is seen held against what has to be.
//!
//! ```text
//!  *.json, *.http ─ file, http_file ─► Input { request, checks, twins } ─┬─ native ─► Seen ─┐
//!                                                                        ├─ wasm ───► Seen ─┼─ check, relate ─► Line
//!                                                                        └─ envoy ──► Seen ─┘
//! ```
//!
//! One table of inputs runs at all levels. A level can't see everything: what none of them could see makes the case fail as unchecked.

mod check;
mod deployment;
mod expect;
mod file;
mod forms;
mod http_file;
pub(crate) mod levels;
mod relation;
mod request;
mod seen;
mod setup;
mod trial;

use std::path::Path;

use crate::error::CaseError;
use crate::folder;
use crate::report::{Line, Status};
use file::{File, Read};
use trial::{Bench, Trial};

/// Runs every file of `folder`, by name.
///
/// # Errors
/// A model of the repository can't be used.
pub fn run(folder: &Path) -> Result<Vec<Line>, CaseError> {
    let files = folder::files(folder, &["json", "http"]);
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let mut bench = Bench::new()?;
    Ok(files
        .iter()
        .map(|file| run_file(&mut bench, file))
        .collect())
}

fn run_file(bench: &mut Bench, path: &Path) -> Line {
    let name = folder::name(path);
    match read(path) {
        Ok((id, inputs)) => {
            let mut trial = Trial::default();
            for input in inputs {
                match input {
                    Ok(input) => bench.try_input(&input, &mut trial),
                    Err(why) => trial.not_run.push(why),
                }
            }
            trial.line(id, name)
        }
        Err(error) => Line {
            id: folder::id(path),
            file: name,
            status: Status::Fail,
            levels: Vec::new(),
            why: vec![error.to_string()],
        },
    }
}

fn read(path: &Path) -> Result<(String, Vec<Read>), CaseError> {
    if path
        .extension()
        .is_some_and(|extension| extension == "http")
    {
        let (id, input) = http_file::read(path)?;
        return Ok((id, vec![Ok(input)]));
    }
    let file: File = serde_json::from_slice(&folder::read(path)?)?;
    let inputs = file.inputs()?;
    Ok((file.id, inputs))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case of ours; `@` is where its parts go.
    const CASE: &str = r#"{"id": "R0", "about": "ours", "setup": {"pools": {"m": ["a", "b"], "n": ["c"]}, "adapters": {"x": ["b"]}},
        "request": {"method": "POST", "path": "/v1/completions", "headers": {"content-type": "application/json"},
            "body": {"model": "x", "prompt": ["one prompt that is long enough to fill a chunk of sixty-four bytes", "two"], "stream": true}},
        @}"#;

    fn status(bench: &mut Bench, parts: &str) -> (Status, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("case.json");
        std::fs::write(&file, CASE.replace('@', parts)).unwrap();
        let line = run_file(bench, &file);
        (line.status, line.why.join("; "))
    }

    #[test]
    fn every_expectation_can_hold_and_can_fail() {
        let mut bench = Bench::native().unwrap();
        for (good, bad) in [
            ("\"result\": \"route\"", "\"result\": \"pass_through\""),
            (
                "\"result\": \"route or 400\"",
                "\"result\": \"reject\", \"status\": 400",
            ),
            (
                "\"result\": \"route\", \"prefix\": \"use\"",
                "\"result\": \"route\", \"prefix\": \"none\"",
            ),
            (
                "\"result\": \"route\", \"load_units\": 2",
                "\"result\": \"route\", \"load_units\": 1",
            ),
            (
                "\"result\": \"route\", \"streaming\": true",
                "\"result\": \"route\", \"streaming\": false",
            ),
            (
                "\"result\": \"route\", \"allowed_pods\": [\"b\"]",
                "\"result\": \"route\", \"allowed_pods\": [\"a\"]",
            ),
        ] {
            let (good_status, why) = status(&mut bench, &format!("\"expect\": {{{good}}}"));
            assert_eq!(good_status, Status::Pass, "{good}: {why}");
            let (bad_status, why) = status(&mut bench, &format!("\"expect\": {{{bad}}}"));
            assert_eq!(bad_status, Status::Fail, "{bad}: {why}");
        }
    }

    #[test]
    fn twins_can_hold_and_can_fail() {
        let mut bench = Bench::native().unwrap();
        let twin = |relation: &str, model: &str| {
            format!(
                r#""expect": {{"result": "route"}}, "compare": [{{"relation": "{relation}", "request": {{
                "method": "POST", "path": "/v1/completions", "body": {{"model": "{model}",
                "prompt": ["one prompt that is long enough to fill a chunk of sixty-four bytes", "two"]}}}}}}]"#
            )
        };
        for (relation, model, wanted) in [
            ("same_prefix", "x", Status::Pass),
            ("same_prefix", "m", Status::Fail),
            ("different_prefix", "m", Status::Pass),
            ("different_prefix", "x", Status::Fail),
            ("common_prefix_kept", "x", Status::Pass),
            ("common_prefix_kept", "m", Status::Fail),
        ] {
            let (status, why) = status(&mut bench, &twin(relation, model));
            assert_eq!(status, wanted, "{relation} {model}: {why}");
        }
    }

    #[test]
    fn what_no_level_sees_and_what_nobody_understands_fails() {
        let mut bench = Bench::native().unwrap();
        // The native level forwards nothing.
        let (status_of_body, why) = status(
            &mut bench,
            r#""expect": {"result": "route", "body": "untouched"}"#,
        );
        assert_eq!(
            (status_of_body, why.as_str()),
            (Status::Fail, "unchecked: body")
        );
        for parts in [
            r#""expect": {"result": "route", "colour": "red"}"#,
            r#""expect": {"result": "route"}, "then": []"#,
            r#""expect": {"result": "route"}, "compare": [{"relation": "near", "request": {}}]"#,
        ] {
            let (status, why) = status(&mut bench, parts);
            assert_eq!(status, Status::Fail, "{parts}");
            assert!(why.contains("unknown"), "{why}");
        }
        let parts = r#""expect": {"result": "route"}, "variants": [{"note": "by night"}]"#;
        let (status, why) = status(&mut bench, parts);
        assert_eq!(status, Status::Pending);
        assert!(why.contains("not runnable here"), "{why}");
    }
}
