//! Holds each model's profile against its engines.
//!
//! One task for each model asks its engines one after the other, so that a start with many engines is a trickle of small requests:
//!
//! ```text
//!   due engines ─► engine: /version, /v1/models, probes to /tokenize ─► Board (verdict per engine)
//!       ▲                                                                 │ after each round
//!       └─ again: later (backoff), every 10 minutes, after a restart      └─► Calibrated ─► ingest
//! ```
//!
//! The task decides only after a round in which every engine was asked, so that a single odd engine that answers first decides nothing.

mod board;
mod engine;
mod pace;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use prefixway_core::text::calibration::{Calibration, Verdict};
use prefixway_core::text::{LocalTime, TokenBytes};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::config::{self, Config, Switch};
use crate::ingest::{self, Command};
use crate::metrics::{CalibrationLabel, Metrics};
use crate::profile::Profile;
use crate::shutdown::Shutdown;
use crate::time_zone::Clock;

use board::Board;
pub use board::{Calibrated, EngineReport, EngineState, Facts, ModelVerdict};
use engine::{Engine, Look};
use pace::Pace;

/// Models that are calibrated at the same time.
const MAX_AT_ONCE: usize = 4;
/// Hints of restarts that may wait; each is an address, and one that does not fit is asked in the regular round.
const HINTS: usize = 256;

/// Tells the calibration that an engine may be another one now.
#[derive(Clone, Debug, Default)]
pub struct Hints(Vec<Option<mpsc::Sender<SocketAddr>>>);

impl Hints {
    /// The engine of a model (by number) has come back.
    pub fn changed(&self, model: usize, engine: SocketAddr) {
        if let Some(Some(hints)) = self.0.get(model) {
            // A full queue means that a round is due anyway.
            let _ = hints.try_send(engine);
        }
    }
}

/// What [`Hints`] are received by, for each model that is calibrated.
#[derive(Debug)]
pub struct Receivers(Vec<Option<mpsc::Receiver<SocketAddr>>>);

/// The two ends of the hints for the models of a configuration.
pub fn hints(config: &Config, profiles: &[Profile]) -> (Hints, Receivers) {
    let queues = config.models.iter().zip(profiles).enumerate();
    let (senders, receivers) = queues
        .map(|(number, (model, profile))| {
            if is_calibrated(model, profile) && !engines(config, number).is_empty() {
                let (sender, receiver) = mpsc::channel(HINTS);
                (Some(sender), Some(receiver))
            } else {
                (None, None)
            }
        })
        .unzip();
    (Hints(senders), Receivers(receivers))
}

/// Whether there is something about the model that engines can tell.
fn is_calibrated(model: &config::Model, profile: &Profile) -> bool {
    model.calibration == Switch::On && !profile.variants.is_empty()
}

/// Addresses of a model's engines that may be asked.
fn engines(config: &Config, model: usize) -> BTreeSet<SocketAddr> {
    config
        .endpoints
        .iter()
        .filter(|endpoint| endpoint.model == model && endpoint.scrape)
        .map(|endpoint| endpoint.address)
        .collect()
}

/// How a model's calibration begins.
pub fn initial_verdict(config: &Config, number: usize, profile: &Profile) -> ModelVerdict {
    match config.models.get(number) {
        Some(model) if model.calibration == Switch::Off => ModelVerdict::Off,
        Some(model) if is_calibrated(model, profile) => {
            if engines(config, number).is_empty() {
                ModelVerdict::Unavailable
            } else {
                ModelVerdict::Pending
            }
        }
        _ => ModelVerdict::Unavailable,
    }
}

/// What calibrations are made from.
#[derive(Debug)]
pub struct Parts<'a> {
    /// Settings.
    pub config: &'a Config,
    /// Profiles of the models, in the order of the settings.
    pub profiles: &'a [Profile],
    /// Where restarts of engines are told.
    pub hinted: Receivers,
    /// Whom to tell.
    pub ingest: &'a ingest::Handle,
    /// Metric families.
    pub metrics: &'a Arc<Metrics>,
}

/// Starts a task for each model that can be calibrated.
///
/// # Errors
/// The HTTP client can't be made.
pub fn start(
    parts: Parts<'_>,
    shutdown: &Shutdown,
    tasks: &mut JoinSet<()>,
) -> Result<(), reqwest::Error> {
    let Parts {
        config,
        profiles,
        hinted,
        ingest,
        metrics,
    } = parts;
    let client = engine::client(config.scrape.timeout)?;
    let at_once = Arc::new(Semaphore::new(MAX_AT_ONCE));
    let models = config.models.iter().zip(profiles).zip(hinted.0);
    for (number, ((model, profile), hints)) in models.enumerate() {
        let Some(hints) = hints else { continue };
        let calibration = match Calibration::try_new(&profile.variants) {
            Ok(calibration) => calibration,
            Err(error) => {
                // The variants were derived from files that compiled, so this is a fault of ours.
                tracing::error!(model = model.id, %error, "can't calibrate");
                continue;
            }
        };
        let Some(vocabulary) = profile.vocabulary.clone() else {
            continue;
        };
        let clock = model.clock.clone();
        let calibrator = Calibrator {
            number,
            model: model.id.clone(),
            clock: clock.unwrap_or(Clock::Offset(config.policy.utc_offset_s)),
            calibration,
            vocabulary,
            client: client.clone(),
            at_once: Arc::clone(&at_once),
            engines: engines(config, number)
                .into_iter()
                .map(|address| (address, Pace::new()))
                .collect(),
            board: Board::default(),
            hints,
            ingest: ingest.clone(),
            metrics: Arc::clone(metrics),
        };
        for name in EngineState::NAMES {
            calibrator.count(name, 0);
        }
        let shutdown = shutdown.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = calibrator.run() => {}
                () = shutdown.wait() => {}
            }
        });
    }
    Ok(())
}

struct Calibrator {
    number: usize,
    model: String,
    clock: Clock,
    calibration: Calibration,
    vocabulary: TokenBytes,
    client: reqwest::Client,
    at_once: Arc<Semaphore>,
    engines: Vec<(SocketAddr, Pace)>,
    board: Board,
    hints: mpsc::Receiver<SocketAddr>,
    ingest: ingest::Handle,
    metrics: Arc<Metrics>,
}

impl Calibrator {
    /// Ends when the ingest task does.
    async fn run(mut self) {
        loop {
            if self.round().await.is_none() {
                return;
            }
            let now = Instant::now();
            let next = self.engines.iter().map(|(_, pace)| pace.wait(now)).min();
            let pause = tokio::time::sleep(next.unwrap_or(Duration::MAX));
            tokio::select! {
                () = pause => {}
                hint = self.hints.recv() => match hint {
                    Some(address) => self.hurry(address),
                    None => return,
                },
            }
            while let Ok(address) = self.hints.try_recv() {
                self.hurry(address);
            }
        }
    }

    fn hurry(&mut self, address: SocketAddr) {
        for (engine, pace) in &mut self.engines {
            if *engine == address {
                pace.hurry();
            }
        }
    }

    /// Asks every engine that is due, and tells what that means; `None`: nobody listens any more.
    async fn round(&mut self) -> Option<()> {
        let now = Instant::now();
        let due: Vec<SocketAddr> = self
            .engines
            .iter()
            .filter(|(_, pace)| pace.wait(now).is_zero())
            .map(|(address, _)| *address)
            .collect();
        for address in due {
            let report = self.ask(address).await?;
            let is_settled = !matches!(report.state, EngineState::Unreachable(_));
            if let Some((_, pace)) = self.engines.iter_mut().find(|(found, _)| *found == address) {
                pace.asked(is_settled, Instant::now(), jitter());
            }
            self.board.set(address, report);
        }
        let (verdict, engines) = self.board.verdict(self.engines.len());
        let calibrated = Calibrated {
            model: self.number,
            profile: match verdict {
                ModelVerdict::Calibrated { variant } => self
                    .calibration
                    .variants()
                    .nth(variant)
                    .map(|variant| variant.profile.clone()),
                _ => None,
            },
            assumes: match verdict {
                ModelVerdict::Calibrated { variant } => self
                    .calibration
                    .variants()
                    .nth(variant)
                    .map_or("", |variant| variant.assumes),
                _ => "",
            },
            verdict,
            engines,
        };
        self.ingest
            .send(Command::Calibrated(Box::new(calibrated)))
            .await
            .ok()
    }

    /// Asks one engine; `None`: the service is being stopped.
    async fn ask(&mut self, address: SocketAddr) -> Option<EngineReport> {
        let at_once = Arc::clone(&self.at_once);
        let _permit = at_once.acquire().await.ok()?;
        let client = self.client.clone();
        let engine = Engine::new(&client, address);
        let before = self.local_time();
        let Look {
            facts,
            answers,
            problem,
        } = engine.look(self.calibration.probes()).await;
        let times = [before, self.local_time()];
        let judge = |calibration: &Calibration, vocabulary: &TokenBytes| {
            calibration.judge(vocabulary, &answers, &times)
        };
        let state = if let Some(state) = problem {
            state
        } else {
            let mut verdict = judge(&self.calibration, &self.vocabulary);
            if matches!(&verdict, Verdict::Differs(difference) if difference.is_chat)
                && let Some(template) = engine.template().await
                && self.calibration.add_template(&template)
            {
                verdict = judge(&self.calibration, &self.vocabulary);
            }
            match verdict {
                Verdict::Fits(fit) => EngineState::Fits(fit),
                Verdict::Differs(difference) => EngineState::Differs(difference.to_string()),
                Verdict::Nothing => EngineState::Unavailable("it answers no probe".to_owned()),
            }
        };
        self.count(state.name(), 1);
        Some(EngineReport { state, facts })
    }

    fn count(&self, result: &'static str, by: u64) {
        let label = CalibrationLabel {
            model: self.model.clone(),
            result,
        };
        self.metrics
            .calibrations
            .get_or_create_owned(&label)
            .inc_by(by);
    }

    fn local_time(&self) -> LocalTime {
        let now = SystemTime::now();
        let unix = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let seconds = i64::try_from(unix.as_secs()).unwrap_or(i64::MAX);
        LocalTime::from_unix(seconds, self.clock.offset_s(now))
    }
}

/// A random number from 0 to 1, so that engines are not all asked in the same moment for ever.
fn jitter() -> f64 {
    let mut byte = [0u8];
    // Without random bytes there is no jitter, which is no harm.
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}
