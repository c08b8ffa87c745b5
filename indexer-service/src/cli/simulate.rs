//! `prefixway simulate`: routing policies side by side on a request trace, with the production scheduler.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args as ClapArgs, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use prefixway_simulator::engine::EndpointClass;
use prefixway_simulator::grid::Grid;
use prefixway_simulator::knowledge::{Freshness, Sharing};
use prefixway_simulator::policy::Policy;
use prefixway_simulator::simulation::Setup;
use prefixway_simulator::trace::Trace;
use prefixway_simulator::{plot, report};

use super::Failure;

/// The made trace: its name, sessions and seed.
const AGENTIC: (&str, u32, u64) = ("agentic", 700, 42);
/// Most seeds; beyond, intervals hardly get smaller.
const MAX_SEEDS: u32 = 1_000;

/// Arguments of `prefixway simulate`.
#[derive(Clone, Debug, ClapArgs)]
#[command(
    after_help = "Policies: round_robin, random, least_request, approximate, llm_d_minmax, llm_d_ratio, weighted, gaie, dynamo, prefixway, oracle;
prefixway and approximate take options: prefixway:beta=4:max_imbalance=8:rates=learned

Examples:
  prefixway simulate --trace conversation.jsonl --policies least_request,prefixway,oracle --loads 0.5,1,1.5
  prefixway simulate --trace agentic --replicas 4 --sync-ms 200 --event-delay-ms 5000
  prefixway simulate --trace requests.jsonl --classes 4xfast:8000,4xslow:2667,2xcpu:800 --csv runs.csv --plot ttft.svg"
)]
pub struct Args {
    /// Trace: JSON lines as Mooncake or Qwen-Bailian publish them, a capture's requests.jsonl, or `agentic` for a made one; again for more
    #[arg(long = "trace", value_name = "FILE", required = true)]
    traces: Vec<PathBuf>,
    /// Simulate the first requests of each trace only
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    requests: Option<u32>,
    /// Policies, in the order of the table
    #[arg(long, value_delimiter = ',', value_name = "NAMES", default_values_t = usual())]
    policies: Vec<String>,
    /// Loads: factors by which requests come faster than in the trace
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "FACTORS",
        default_value = "0.5,1,1.5"
    )]
    loads: Vec<f64>,
    /// Equal endpoints
    #[arg(long, value_name = "N", default_value_t = 8)]
    endpoints: u32,
    /// Tokens that each endpoint's cache holds
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    tokens: u32,
    /// Unequal endpoints instead: `COUNTxNAME:PREFILL_TOKENS_PER_S`, and if they differ in that too `:DECODE_MS_PER_TOKEN:SLOTS:CACHE_TOKENS`
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "CLASSES",
        conflicts_with = "endpoints"
    )]
    classes: Vec<String>,
    /// Tokens of the engines' cache blocks, where the trace's blocks are at least as long
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    block_tokens: u32,
    /// Seeds: each spreads arrivals, prompts' ends and ties in its own way
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SEEDS)))]
    seeds: u32,
    /// Time from an engine's event to the routers' index
    #[arg(long, value_name = "MS", default_value_t = 50)]
    event_delay_ms: u32,
    /// Age of what routers know of requests in flight
    #[arg(long, value_name = "MS", default_value_t = 0)]
    load_delay_ms: u32,
    /// Time between reads of the engines' own figures
    #[arg(long, value_name = "MS", default_value_t = 50)]
    scrape_ms: u32,
    /// Routers that share the requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    replicas: u32,
    /// How often routers tell one another what they have in flight: milliseconds, 0 = at once, or `never`
    #[arg(long, value_name = "MS", default_value = "0", value_parser = sharing)]
    sync_ms: Sharing,
    /// Threads; one for each core when left out
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// What to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Write each run as a line of comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw mean time to first token against load, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Output formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people
    #[default]
    Table,
    /// One JSON array
    Json,
}

fn usual() -> [String; Policy::USUAL.len()] {
    Policy::USUAL.map(|policy| policy.to_string())
}

fn sharing(text: &str) -> Result<Sharing, String> {
    if text == "never" {
        return Ok(Sharing::Never);
    }
    let ms: u32 = text
        .parse()
        .map_err(|_| "neither a number of milliseconds nor `never`".to_owned())?;
    Ok(Sharing::Every(1_000 * u64::from(ms)))
}

/// Runs the command and prints the result to standard output.
///
/// # Errors
/// A file can't be read or written, or an argument has no meaning.
pub fn run(args: &Args) -> Result<(), Failure> {
    let grid = grid(args)?;
    let threads = match args.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism()?.get(),
    };
    let bar = bar(grid.runs());
    let cells = grid.run(threads, &|_| bar.inc(1));
    bar.finish_and_clear();
    if let Some(path) = &args.csv {
        write_file(path, &report::csv(&cells))?;
    }
    if let Some(path) = &args.plot {
        write_file(path, &plot::svg(&cells))?;
    }
    let text = match args.format {
        Format::Table => report::table(&cells),
        Format::Json => {
            let rows: Vec<report::Row> = cells.iter().map(report::Row::of).collect();
            format!(
                "{}\n",
                serde_json::to_string_pretty(&rows).context("can't encode the rows")?
            )
        }
    };
    write!(std::io::stdout(), "{}", text.trim_start_matches('\n'))
        .context("can't write to standard output")?;
    Ok(())
}

fn grid(args: &Args) -> Result<Grid, Failure> {
    let policies = args.policies.iter().map(|name| {
        name.trim().parse::<Policy>().map_err(|error| {
            let hint = error.hint();
            wrong(error, hint)
        })
    });
    let policies = policies.collect::<Result<Vec<Policy>, Failure>>()?;
    if let Some(load) = args
        .loads
        .iter()
        .find(|load| !load.is_finite() || **load <= 0.0)
    {
        return Err(wrong(
            anyhow!("the load {load} is not above 0"),
            "1 is the pace of the trace, 2 is twice as fast",
        ));
    }
    let setup = setup(args)?;
    let traces = args.traces.iter().map(|path| read(path, args.requests));
    Ok(Grid {
        traces: traces.collect::<Result<_, Failure>>()?,
        loads: args.loads.clone(),
        policies,
        seeds: args.seeds,
        block_tokens: args.block_tokens,
        setup,
    })
}

fn setup(args: &Args) -> Result<Setup, Failure> {
    let default = EndpointClass {
        count: args.endpoints,
        cache_tokens: args.tokens,
        ..EndpointClass::default()
    };
    let classes = args.classes.iter().map(|class| {
        EndpointClass::read(class, &default)
            .map_err(|error| wrong(error, "for example 4xfast:8000,2xcpu:800:120:8"))
    });
    let mut classes = classes.collect::<Result<Vec<EndpointClass>, Failure>>()?;
    if classes.is_empty() {
        classes.push(default);
    }
    let setup = Setup {
        classes,
        replicas: args.replicas,
        freshness: Freshness {
            event_delay_us: 1_000 * u64::from(args.event_delay_ms),
            load_delay_us: 1_000 * u64::from(args.load_delay_ms),
            scrape_us: 1_000 * u64::from(args.scrape_ms),
            sharing: args.sync_ms,
        },
    };
    setup
        .check()
        .map_err(|error| wrong(error, "see `prefixway simulate --help`"))?;
    Ok(setup)
}

fn read(path: &Path, requests: Option<u32>) -> Result<Trace, Failure> {
    let (name, sessions, seed) = AGENTIC;
    let mut trace = if path.as_os_str() == name {
        Trace::agentic(sessions, seed)
    } else {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("can't read {}", path.display()))
            .map_err(|error| Failure {
                error,
                hint: Some(format!("give a file of JSON lines, or `{name}`")),
                code: 1,
            })?;
        let name = path
            .file_stem()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        Trace::from_text(&name, &text).map_err(|error| Failure {
            hint: Some(error.hint().to_owned()),
            error: anyhow::Error::new(error).context(format!("can't read {}", path.display())),
            code: 1,
        })?
    };
    if trace.skipped > 0 {
        // Nothing can be done where standard error is closed.
        let _ = writeln!(
            std::io::stderr(),
            "note: {} lines of {} have no prompt with known tokens",
            trace.skipped,
            trace.name
        );
    }
    if let Some(requests) = requests {
        trace.truncate(requests as usize);
    }
    Ok(trace)
}

fn wrong(error: impl Into<anyhow::Error>, hint: impl Into<String>) -> Failure {
    Failure {
        error: error.into(),
        hint: Some(hint.into()),
        code: 2,
    }
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure {
        error: anyhow::Error::new(error).context(format!("can't write {}", path.display())),
        hint: Some("is there a folder of that name, and may you write to it?".to_owned()),
        code: 1,
    })
}

fn bar(runs: usize) -> ProgressBar {
    let bar = ProgressBar::new(runs as u64);
    let style = "{bar:40} {pos:>5}/{len} runs, {elapsed}, {eta} left";
    bar.set_style(
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
