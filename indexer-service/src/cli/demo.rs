//! `prefixway demo`: the whole system on loopback, one workload, three policies, a table.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use crate::demo::compare::{DemoError, Event, MODEL, Options, System, compare};
use crate::demo::envoy::EnvoyError;
use crate::demo::load::Outcome;
use crate::demo::process::ProcessError;
use crate::demo::report::Report;

/// Policies in the order they run; the last one stays with `--keep`.
const POLICIES: [&str; 3] = ["round_robin", "least_request", "prefixway"];
/// Where the build leaves the module, from the repository's root.
const BUILT_MODULE: &str = "target/wasm32-unknown-unknown/release/prefixway_filter.wasm";
/// Exit code after an interruption: 128 + SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  make demo
  make demo DEMO_ARGS=--keep
  prefixway demo --format json > report.json")]
pub struct Args {
    /// The built wasm filter
    #[arg(long, value_name = "FILE", env = "PREFIXWAY_WASM", default_value = BUILT_MODULE)]
    filter: PathBuf,
    /// The Envoy binary
    #[arg(long, value_name = "FILE", env = "ENVOY_BIN", default_value = "envoy")]
    envoy: PathBuf,
    /// Seed of the traffic
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave the last system running until Ctrl-C and print its addresses
    #[arg(long)]
    keep: bool,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// How the result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table for people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Runs the command.
///
/// # Errors
/// A part is missing or does not start, or the user interrupts before there is a result (exit code 130).
pub fn run(args: &Args) -> Result<(), Failure> {
    let options = Options {
        binary: std::env::current_exe().context("cannot find this program's own file")?,
        envoy: args.envoy.clone(),
        module: existing(&args.filter)?,
        seed: args.seed,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let display = Display::new();
        // Whatever is running is owned by the future that is dropped here.
        let (report, system) = tokio::select! {
            result = compare(&options, &POLICIES, |event| display.show(&event)) => result.map_err(failure)?,
            signal = interrupted() => {
                signal?;
                return Err(Failure { error: anyhow!("interrupted"), hint: None, code: INTERRUPTED });
            }
        };
        print(&report, args.format)?;
        if let Some(system) = system {
            if args.keep {
                display.say(&addresses(&system));
                interrupted().await?;
            }
            system.stop().await;
        }
        Ok(())
    })
}

/// Says what to do where Envoy can't be started; it is the one part that is not built here.
fn failure(error: DemoError) -> Failure {
    let is_missing = matches!(
        &error,
        DemoError::Envoy(EnvoyError::Process(ProcessError::Start { .. }))
    );
    let hint = "name an Envoy of 1.35 or later with --envoy or ENVOY_BIN; scripts/envoy.sh fetches one and prints its path";
    Failure {
        hint: is_missing.then(|| hint.to_owned()),
        ..error.into()
    }
}

fn existing(module: &Path) -> Result<PathBuf, Failure> {
    if module.is_file() {
        return Ok(std::path::absolute(module)?);
    }
    Err(Failure {
        error: anyhow!("there is no wasm filter at {}", module.display()),
        hint: Some("run `make wasm`, or name it with --filter".to_owned()),
        code: 2,
    })
}

/// Waits for Ctrl-C, a request to terminate, or the end of the terminal.
async fn interrupted() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result?,
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

fn print(report: &Report, format: Format) -> anyhow::Result<()> {
    let text = match format {
        Format::Text => report.table(),
        Format::Json => serde_json::to_string_pretty(report)?,
    };
    writeln!(std::io::stdout(), "{text}").context("cannot print the result")
}

fn addresses(system: &System) -> String {
    let gateway = system.envoy.http();
    let mut lines = vec![
        String::new(),
        "still running, until Ctrl-C".to_owned(),
        format!("  gateway      http://{gateway}"),
        format!("  envoy admin  http://{}", system.envoy.admin()),
    ];
    if let Some(indexer) = &system.indexer {
        lines.push(format!("  indexer      http://{}/metrics", indexer.http()));
    }
    for engine in &system.engines {
        lines.push(format!(
            "  {:12} http://{}",
            engine.name(),
            engine.http_addr()
        ));
    }
    lines.push(format!("  logs         {}", system.folder().display()));
    lines.push(String::new());
    lines.push(
        "send this twice; the second answer comes from the same x-engine, with cached_tokens:"
            .to_owned(),
    );
    let rules = "Every guest pays one coin and keeps the receipt. ".repeat(8);
    lines.push(format!(
        "  curl -si http://{gateway}/v1/chat/completions -H 'content-type: application/json' -d '{{\"model\": \"{MODEL}\", \
         \"max_tokens\": 8, \"messages\": [{{\"role\": \"user\", \"content\": \"{rules}\"}}]}}'; echo"
    ));
    lines.join("\n")
}

/// Progress on standard error: a bar on a terminal, plain lines elsewhere.
struct Display {
    bar: ProgressBar,
}

impl Display {
    fn new() -> Self {
        let bar = ProgressBar::new(0);
        let style = "{msg:14} {bar:40} {pos:>4}/{len} requests, {elapsed}";
        bar.set_style(
            ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| {
            // Without a terminal to write to there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "{text}");
        });
    }

    fn show(&self, event: &Event<'_>) {
        match event {
            Event::Sizes(sizes) => self.say(&format!(
                "{} requests a policy; working set {} tokens: {:.1} times one engine's cache ({} tokens), {:.2} of all {} together",
                sizes.requests, sizes.working_set, sizes.of_one(), sizes.cache, sizes.of_all(), sizes.engines
            )),
            Event::Start(policy, requests) => {
                self.bar.reset();
                self.bar.set_length(*requests as u64);
                self.bar.set_message(policy.replace('_', " "));
                if self.bar.is_hidden() {
                    self.say(&format!("{}: {requests} requests", policy.replace('_', " ")));
                }
            }
            Event::Request(outcome) => {
                self.bar.inc(1);
                if let Outcome::Err(error) = outcome {
                    self.say(&format!("a request failed: {:#}", anyhow!("{error}")));
                }
            }
            Event::End(figures) => self.say(&format!(
                "{:14} mean TTFT {:.0} ms, {:.1} % of prompt tokens from cache, {} errors",
                figures.policy.replace('_', " "), figures.ttft_ms.mean, figures.cached_token_ratio * 100.0, figures.errors
            )),
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
