//! The command line: one module per command.
//!
//! Data goes to standard output, messages to standard error. Exit codes: 0 done, 1 failed, 2 wrong arguments or configuration.

pub mod check_config;
pub mod demo;
pub mod import;
pub mod replay;
pub mod serve;
pub mod simulate;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong arguments or configuration.";

const EXAMPLES: &str = "Examples:
  prefixway check-config indexer.yaml
  prefixway demo
  prefixway serve --config indexer.yaml
  PREFIXWAY_LOG=debug prefixway serve --config indexer.yaml --http 127.0.0.1:9700";

/// Sends every LLM request to the endpoint that already holds its prompt's prefix.
#[derive(Debug, Parser)]
#[command(name = "prefixway", version, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Cli {
    /// What is logged to standard error: error, warn, info, debug, trace, or a tracing filter
    #[arg(
        long,
        global = true,
        env = "PREFIXWAY_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the indexer
    Serve(serve::Args),
    /// Check a configuration and say what it means
    CheckConfig(check_config::Args),
    /// Turn another system's policy into ours
    Import(import::Args),
    /// Run the whole system on loopback and compare three policies
    Demo(demo::Args),
    /// Predict captured requests' cached tokens and compare with the engine's answers
    Replay(replay::Args),
    /// Simulate routing policies on a request trace
    Simulate(simulate::Args),
}

/// A command that did not end well.
#[derive(Debug)]
pub struct Failure {
    /// What happened.
    pub error: anyhow::Error,
    /// What the user can do next.
    pub hint: Option<String>,
    /// Exit code: 1 or 2.
    pub code: u8,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            hint: None,
            code: 1,
        }
    }
}

impl Failure {
    /// A wrong configuration.
    pub fn from_config(error: crate::config::ConfigError) -> Self {
        Self {
            hint: error.hint(),
            error: error.into(),
            code: 2,
        }
    }
}

/// Runs the command that the arguments name and gives the process's exit code.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let filter = match tracing_subscriber::EnvFilter::try_new(&cli.log) {
        Ok(filter) => filter,
        Err(error) => {
            let hint = Some("--log takes a level such as info, or target=level pairs".to_owned());
            return fail(&Failure {
                error: error.into(),
                hint,
                code: 2,
            });
        }
    };
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_terminal)
        .with_writer(std::io::stderr)
        .init();
    let result = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::CheckConfig(args) => check_config::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Simulate(args) => simulate::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    let mut text = format!("error: {}", failure.error);
    for cause in failure.error.chain().skip(1) {
        text.push_str("\n  because: ");
        text.push_str(&cause.to_string());
    }
    if let Some(hint) = &failure.hint {
        text.push_str("\nhint: ");
        text.push_str(hint);
    }
    // Nothing can be done where standard error is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
    ExitCode::from(failure.code)
}
