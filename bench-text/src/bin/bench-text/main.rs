//! `bench-text`: the text path in every engine, side by side with its peers.
//!
//! ```text
//! bench-text GUEST.wasm [--quick] [--json FILE]
//! ```
//!
//! Engines and phases take turns, and of each the fastest turn counts: other work on the machine makes turns slower, never faster.

mod engine;
mod models;
mod native;
mod report;
mod v8;
#[cfg(feature = "wasmtime")]
mod wasmtime_host;

use std::fs;
use std::path::{Path, PathBuf};

use prefixway_bench_text::bodies::{Kind, chat};
use prefixway_bench_text::subject::Phase;

use anyhow::{Context, Result, bail};

use engine::{Engine, Measured, measure};
use models::Model;
use report::Report;

/// Messages of a chat by the size of its body.
const SIZES: [(usize, usize); 4] = [
    (2 << 10, 4),
    (32 << 10, 20),
    (220 << 10, 60),
    (1 << 20, 100),
];

/// The size that kinds of text are compared at.
const USUAL: usize = 32 << 10;

struct Arguments {
    guest: PathBuf,
    json: PathBuf,
    is_quick: bool,
}

fn arguments() -> Result<Arguments> {
    let mut guest = None;
    let mut json = PathBuf::from("target/bench/text.json");
    let mut is_quick = false;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => is_quick = true,
            "--json" => json = words.next().context("--json needs a file")?.into(),
            _ if guest.is_none() && !word.starts_with('-') => guest = Some(word.into()),
            _ => bail!(
                "{word} is not understood\nhint: bench-text GUEST.wasm [--quick] [--json FILE]"
            ),
        }
    }
    let guest = guest.context("the wasm guest is missing\nhint: run `make bench-text`")?;
    Ok(Arguments {
        guest,
        json,
        is_quick,
    })
}

/// What is measured: every kind at the usual size, prose at every size.
fn cells(is_quick: bool) -> Vec<(Kind, usize, usize)> {
    let mut cells = Vec::new();
    for (bytes, turns) in SIZES {
        for kind in Kind::ALL {
            let is_main = kind == Kind::Prose || bytes == USUAL;
            if is_main && (!is_quick || bytes == USUAL) {
                cells.push((kind, bytes, turns));
            }
        }
    }
    cells
}

fn main() -> Result<()> {
    let arguments = arguments()?;
    let mut engines: Vec<Box<dyn Engine>> = vec![Box::new(native::Native::default())];
    #[cfg(feature = "wasmtime")]
    engines.push(Box::new(wasmtime_host::Wasmtime::start(&arguments.guest)?));
    engines.extend(v8::V8::start(&arguments.guest)?.map(|v8| Box::new(v8) as Box<dyn Engine>));
    let mut report = Report::default();
    for model in models::all()? {
        for (kind, bytes, turns) in cells(arguments.is_quick) {
            let body = chat(kind, bytes, turns);
            run(&mut engines, &model, &body, kind, bytes, &mut report)?;
        }
    }
    write(&report, &arguments.json)
}

/// Measures one body in every engine.
fn run(
    engines: &mut [Box<dyn Engine>],
    model: &Model,
    body: &[u8],
    kind: Kind,
    bytes: usize,
    report: &mut Report,
) -> Result<()> {
    for engine in &mut *engines {
        if !engine.load(&model.profile, body)? {
            report.skip(model.name, kind.name(), bytes);
            return Ok(());
        }
    }
    let measured: Vec<Measured> = measure(engines, &Phase::ALL)?;
    report.add(model.name, kind.name(), bytes, body.len(), &measured);
    Ok(())
}

fn write(report: &Report, json: &Path) -> Result<()> {
    if let Some(folder) = json.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(json, report.json()?).with_context(|| format!("{} can't be written", json.display()))
}
