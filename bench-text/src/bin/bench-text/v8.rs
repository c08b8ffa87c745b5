//! The subject in V8, the engine of Envoy's wasm VMs, by way of node where it is installed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use prefixway_bench_text::counting::Counts;
use prefixway_bench_text::subject::Phase;
use serde_json::{Value, json};

use crate::engine::Engine;

const SCRIPT: &str = include_str!("v8.mjs");

/// A node process with an instance of the guest.
pub(crate) struct V8 {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl V8 {
    /// Starts node; `None`: there is none.
    pub(crate) fn start(guest: &Path) -> Result<Option<Self>> {
        let spawned = Command::new("node")
            .args(["--input-type=module", "--eval", SCRIPT, "--"])
            .arg(guest)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = spawned else {
            return Ok(None);
        };
        let commands = child.stdin.take().context("node has no stdin")?;
        let answers = child.stdout.take().context("node has no stdout")?;
        Ok(Some(Self {
            child,
            commands,
            answers: BufReader::new(answers),
        }))
    }

    fn ask(&mut self, command: &Value) -> Result<Value> {
        writeln!(self.commands, "{command}")?;
        self.commands.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("node answered {line:?} to {command}"))
    }
}

impl Drop for V8 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Engine for V8 {
    fn name(&self) -> &'static str {
        "v8"
    }

    fn load(&mut self, profile: &[u8], body: &[u8]) -> Result<bool> {
        let folder = std::env::temp_dir();
        let file = |name: &str| folder.join(format!("bench-text-{}-{name}", std::process::id()));
        let files = [(file("profile"), profile), (file("body"), body)];
        for (path, bytes) in &files {
            fs::write(path, bytes)?;
        }
        let [profile, body] = files.map(|(path, _)| path);
        let answer = self.ask(&json!({"do": "load", "profile": profile, "body": body}))?;
        for path in [profile, body] {
            fs::remove_file(path)?;
        }
        Ok(answer == 1)
    }

    fn measure(&mut self, phase: Phase, rounds: u32) -> Result<f64> {
        let answer =
            self.ask(&json!({"do": "measure", "phase": phase as u32, "rounds": rounds}))?;
        answer.as_f64().context("node gave no number")
    }

    fn count(&mut self, phase: Phase) -> Result<Counts> {
        let answer = self.ask(&json!({"do": "count", "phase": phase as u32}))?;
        let number = |i: usize| {
            answer
                .get(i)
                .and_then(Value::as_u64)
                .context("node gave no number")
        };
        Ok(Counts {
            calls: number(0)?,
            bytes: number(1)?,
            peak: number(2)?,
        })
    }
}
