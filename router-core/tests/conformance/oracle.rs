//! The Python process that renders with jinja2.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::compare::{NOW, Outcome, SPECIAL_TOKENS};
use crate::set::folder;

/// Names the Python to use; it has to have jinja2.
const VARIABLE: &str = "PREFIXWAY_PYTHON";

/// A running Python process.
pub(crate) struct Oracle {
    process: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Answer {
    results: Vec<Rendered>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Rendered {
    Text(String),
    Fails(String),
    Refuses(String),
    Skips(String),
}

impl Oracle {
    /// Starts the process; `None`, with a message, if there is no Python to use.
    pub(crate) fn start() -> Option<Self> {
        let Some(python) = std::env::var_os(VARIABLE).filter(|python| !python.is_empty()) else {
            println!(
                "skipped: {VARIABLE} is not set (`make test` sets it; scripts/python.sh prints a Python)"
            );
            return None;
        };
        let mut process = Command::new(&python)
            .args(["-B", "-Wignore"])
            .arg(folder().join("reference/serve.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{VARIABLE}={}: {error}", python.display()));
        let questions = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Some(Self {
            process,
            questions,
            answers,
        })
    }

    /// Renders each job: the index of a template, and a body.
    pub(crate) fn render(&mut self, templates: &[&str], jobs: &[(usize, &str)]) -> Vec<Outcome> {
        let special_tokens: Map<String, Value> = SPECIAL_TOKENS
            .iter()
            .map(|&(name, token)| (name.to_owned(), token.into()))
            .collect();
        let question = json!({"now": NOW, "special_tokens": special_tokens, "templates": templates, "jobs": jobs});
        let pipe = self.questions.as_mut().unwrap();
        serde_json::to_writer(&mut *pipe, &question).unwrap();
        pipe.write_all(b"\n").unwrap();
        pipe.flush().unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let answer: Answer = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("the Python process answers {line:?}: {error}"));
        assert_eq!(answer.results.len(), jobs.len());
        answer
            .results
            .into_iter()
            .map(|result| match result {
                Rendered::Text(text) => Outcome::Text(text),
                Rendered::Fails(why) => Outcome::Refuses(why),
                Rendered::Refuses(why) => Outcome::Invalid(why),
                Rendered::Skips(why) => Outcome::Skips(why),
            })
            .collect()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // The process ends with its input.
        drop(self.questions.take());
        _ = self.process.wait();
    }
}
