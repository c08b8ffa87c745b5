//! `prefixway replay`: predicts the cached tokens of captured requests and compares them with the engine's answers.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args as ClapArgs, ValueEnum};

use super::Failure;
use crate::replay::{self, By};

/// Arguments of `prefixway replay`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  prefixway replay --model-dir capture/model --events capture/events.jsonl --requests capture/requests.jsonl
  prefixway replay --space token --events capture/events.jsonl --requests capture/requests.jsonl")]
pub struct Args {
    /// What to predict from
    #[arg(long, value_enum, default_value_t = Space::Text)]
    space: Space,
    /// Model folder as on a hub: tokenizer, its configuration, chat template (needed in text space)
    #[arg(long, value_name = "DIR")]
    model_dir: Option<PathBuf>,
    /// Captured events, one ZMQ message a line
    #[arg(long, value_name = "FILE")]
    events: PathBuf,
    /// Captured requests, one a line
    #[arg(long, value_name = "FILE")]
    requests: PathBuf,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// What cached tokens are predicted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Space {
    /// The prompt text, made from the body of the request as a gateway does
    Text,
    /// The engine's own token ids, as of a request that carries them
    Token,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Totals and the worst requests, for people
    Table,
    /// One JSON object with every comparison
    Json,
}

/// Runs the command and prints the report to standard output.
///
/// # Errors
/// A file can't be read, the model's prompts can't be derived, or the output can't be written.
pub fn run(args: &Args) -> Result<(), Failure> {
    let by = match (args.space, &args.model_dir) {
        (Space::Token, _) => By::TokenIds,
        (Space::Text, Some(model_dir)) => By::Text { model_dir },
        (Space::Text, None) => {
            return Err(Failure {
                error: anyhow::anyhow!("text space needs the model's folder"),
                hint: Some("give --model-dir, or --space token".to_owned()),
                code: 2,
            });
        }
    };
    let report = replay::run(by, &args.events, &args.requests).map_err(|error| Failure {
        hint: error.hint().map(str::to_owned),
        error: error.into(),
        code: 1,
    })?;
    let mut out = std::io::stdout().lock();
    match args.format {
        Format::Table => write!(out, "{}", report.to_table()),
        Format::Json => writeln!(
            out,
            "{}",
            serde_json::to_string(&report).context("can't encode the report")?
        ),
    }
    .context("can't write to standard output")?;
    Ok(())
}
