//! `prefixway replay`: predicts the cached tokens of captured requests and compares them with the engine's answers.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args as ClapArgs, ValueEnum};

use super::Failure;
use crate::replay;

/// Arguments of `prefixway replay`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Example:
  prefixway replay --model-dir capture/model --events capture/events.jsonl --requests capture/requests.jsonl")]
pub struct Args {
    /// Model folder as on a hub: tokenizer, its configuration, chat template
    #[arg(long, value_name = "DIR")]
    model_dir: PathBuf,
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
    let report =
        replay::run(&args.model_dir, &args.events, &args.requests).map_err(|error| Failure {
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
