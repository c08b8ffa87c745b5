//! Settings of `prefixway serve`.
//!
//! ```text
//!  YAML file ─► raw (serde, unknown keys refused) ─► overrides (flags over environment) ─► TryFrom ─► Config (checked)
//! ```
//!
//! Every rule that spans more than one key lives in that one conversion, and every broken rule is reported, not only the first.
//! `docs/configuration.md` documents each key; a test parses its examples and compares its list of keys with these structs. Another makes
//! `docs/configuration.schema.json` of both: for tests, the raw structs derive a schema.

mod check;
mod describe;
mod duration;
mod error;
mod expression;
mod flow;
mod profiles;
mod raw;
mod seed;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prefixway_core::proto;
use prefixway_core::text::ContentFormat;

use crate::time_zone::Clock;

pub use error::{ConfigError, Problem};
pub use flow::{FlowControl, Objective};
pub use prefixway_core::admission::{FailureMode, WhenMissed};
pub use raw::Raw;
pub use seed::{SeedError, SeedSource};

/// Default address of the HTTP surface; loopback, because it has no authentication.
pub const DEFAULT_HTTP: &str = "127.0.0.1:9700";
/// Default address of the gRPC stream; loopback, because the stream carries the seed in plain text.
pub const DEFAULT_GRPC: &str = "127.0.0.1:9701";
/// Default name of the indexer shard.
pub const DEFAULT_SHARD: &str = "default";
/// Default folder for generated state (the seed).
pub const DEFAULT_STATE_DIR: &str = "./state";
/// Default pool of models.
pub const DEFAULT_POOL: &str = "default";
/// Default prefill rate: a mid-size model on one current accelerator; only ratios between endpoints matter much.
pub const DEFAULT_PREFILL_TOKENS_PER_S: f64 = 8_000.0;
/// Default weight of uncached tokens in the cost; within 10 % of a clairvoyant greedy choice in simulation.
pub const DEFAULT_BETA: f64 = 2.0;
/// Default age beyond which prefix knowledge is ignored.
pub const DEFAULT_MAX_AGE: Duration = Duration::from_secs(5);
/// Default limit of request bodies that the filter scores.
pub const DEFAULT_MAX_BODY_BYTES: u32 = 16 << 20;
/// Default limit of canonical text that the filter scores.
pub const DEFAULT_MAX_PROMPT_BYTES: u32 = 4 << 20;
/// Default base life of a speculative entry; longer prompts live longer.
pub const DEFAULT_SPECULATIVE_TTL: Duration = Duration::from_secs(10);
/// Default share of sessions that is steered in mode split: as many as not, which tells most in the least time.
pub const DEFAULT_SPLIT_PERCENT: u32 = 50;
/// Default of decisions that each VM of a gateway tells in full, in a second: enough to look at, and some kilobytes.
pub const DEFAULT_SAMPLED_DECISIONS_PER_S: u32 = 5;
/// Default bound of the index's memory.
pub const DEFAULT_INDEX_BYTES: u64 = 1 << 30;
/// Default cache of an engine that does not say how large it is: 31,250 blocks of 16 tokens, as llm-d assumes.
pub const DEFAULT_APPROXIMATE_TOKENS: u64 = 500_000;
/// Default time between two deltas; the reach of 100 ms from event to worker leaves room for it.
pub const DEFAULT_TICK: Duration = Duration::from_millis(10);
/// Default time between two scrapes of a busy engine.
pub const DEFAULT_SCRAPE_INTERVAL: Duration = Duration::from_millis(250);
/// Default time between two scrapes of an idle engine.
pub const DEFAULT_SCRAPE_IDLE_INTERVAL: Duration = Duration::from_secs(2);
/// Default time that one scrape may take.
pub const DEFAULT_SCRAPE_TIMEOUT: Duration = Duration::from_secs(1);
/// Default age beyond which an engine's figures are not known any more: more than twice as long as an idle engine is left alone.
pub const DEFAULT_SCRAPE_MAX_AGE: Duration = Duration::from_secs(5);
/// Default time after which clients of a full pool are told to try again.
pub const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Default time after which the service is ready although some source has not connected.
pub const DEFAULT_READY_GRACE: Duration = Duration::from_secs(10);

/// Checked settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: Listen,
    /// Name of this shard, as the filter sees it.
    pub shard: String,
    /// Names of all shards that the endpoints are split over, this one among them; empty: this one has all.
    pub shards: Vec<String>,
    /// Addresses of the file's endpoints that other shards have, and which shard.
    pub elsewhere: Vec<(SocketAddr, String)>,
    /// Where the hash seed comes from.
    pub seed: SeedSource,
    /// Folder for generated state.
    pub state_dir: PathBuf,
    /// Served models, at least one; ids, names and adapters are unique.
    pub models: Vec<Model>,
    /// This shard's endpoints in the order of the file; (address, rank) is unique.
    pub endpoints: Vec<Endpoint>,
    /// What the filter is told.
    pub policy: Policy,
    /// Bounds of the index.
    pub index: IndexLimits,
    /// How engines are scraped.
    pub scrape: Scrape,
    /// After this long the service is ready although some source has not connected.
    pub ready_grace: Duration,
    /// Where the settings come from, to be read again; `None`: from no file.
    pub origin: Option<Origin>,
}

/// A file of settings, and what is put over it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The file.
    pub path: PathBuf,
    /// Flags and environment.
    pub overrides: Overrides,
}

/// Addresses to listen on; port 0 takes a free port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Health, metrics and API.
    pub http: SocketAddr,
    /// The snapshot stream.
    pub grpc: SocketAddr,
}

/// One base model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Profile id.
    pub id: String,
    /// Values of a request's `model` that mean the base model; never empty.
    pub names: Vec<String>,
    /// Values of a request's `model` that mean an adapter.
    pub adapters: Vec<String>,
    /// Folder with `tokenizer.json`, `tokenizer_config.json` and the chat template.
    pub model_dir: PathBuf,
    /// Chat template file that replaces the model folder's own.
    pub chat_template: Option<PathBuf>,
    /// Pool of its endpoints.
    pub pool: String,
    /// How its engines were started.
    pub server: Server,
    /// Its engines' local time; `None`: as the policy says.
    pub clock: Option<Clock>,
    /// Whether its profile is held against its engines.
    pub calibration: Switch,
    /// Whether some endpoint of it has an event source, in whatever shard.
    pub has_events: bool,
}

/// Flags of a model's engines that change prompts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// `--tokenizer-mode`.
    pub tokenizer_mode: Option<String>,
    /// `--chat-template-content-format`; `None`: found out from the template.
    pub content_format: Option<ContentFormat>,
    /// `--default-chat-template-kwargs`, the text of a JSON object.
    pub default_kwargs: Option<String>,
    /// `--exclude-tools-when-tool-choice-none`.
    pub exclude_tools_when_tool_choice_none: bool,
}

/// Something that can be switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// It is done.
    #[default]
    On,
    /// It is not done.
    Off,
}

/// One addressable engine rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Address as Envoy spells it: `ip:port`, IPv6 in brackets.
    pub address: SocketAddr,
    /// Data-parallel rank, when the engine takes it by header.
    pub rank: Option<u32>,
    /// Index into [`Config::models`].
    pub model: usize,
    /// Phases that it serves.
    pub role: Role,
    /// Accelerator class, an open list; empty when not given.
    pub accelerator: String,
    /// Adapters that it serves, each one of its model's; `None`: all of them.
    pub adapters: Option<Vec<String>>,
    /// Event source; `None` leaves the endpoint to decisions alone.
    pub events: Option<Events>,
    /// Prefill rate in tokens per second.
    pub prefill_tokens_per_s: f64,
    /// Labels that policies select by.
    pub labels: BTreeMap<String, String>,
    /// Whether `/metrics` and `/health` are polled.
    pub scrape: bool,
}

/// Phases that an endpoint serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Prefill and decode.
    #[default]
    Both,
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
}

impl Role {
    /// The role's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// An event source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// How the subscriber meets the publisher.
    pub publisher: Publisher,
    /// Address of the publisher's replay socket, if it has one.
    pub replay: Option<String>,
    /// Topic filter, a prefix; empty takes all.
    pub topic: String,
}

/// Who binds and who connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publisher {
    /// The publisher is bound here and the indexer connects.
    Connect(String),
    /// The indexer binds here and the publisher connects.
    Bind(String),
}

/// What the filter is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Weight of uncached tokens in the cost.
    pub beta: f64,
    /// Older prefix knowledge is ignored.
    pub max_age: Duration,
    /// Allows the explain response header.
    pub explain: bool,
    /// Whether gateways answer requests that the engines would refuse.
    pub reject_bad_requests: bool,
    /// Whether the filter steers.
    pub mode: Mode,
    /// Longer bodies are refused, or pass unread.
    pub max_body_bytes: u32,
    /// Longer prompts are scored up to here.
    pub max_prompt_bytes: u32,
    /// Engines' local time minus UTC, for templates that print the date.
    pub utc_offset_s: i32,
    /// Base life of a speculative entry.
    pub speculative_ttl: Duration,
    /// Profile id for bodies without `model`.
    pub default_model: Option<String>,
    /// Microseconds that a token takes from host memory to the accelerator.
    pub cpu_fetch_us_per_token: f64,
    /// The same from storage.
    pub disk_fetch_us_per_token: f64,
    /// Whether gateways ask engines for their load with each request.
    pub orca: bool,
    /// Of mode split: share of the sessions that is steered, 0 to 100.
    pub split_percent: u32,
    /// Request header that names a session, in lower case.
    pub session_header: Option<String>,
    /// Cookie that names a session where no header does.
    pub session_cookie: Option<String>,
    /// Modes of single routes; each route once.
    pub routes: Vec<RouteMode>,
    /// Most decisions that each VM of a gateway tells in full, in a second; 0: none.
    pub sampled_decisions_per_s: u32,
    /// Sequences by which what an endpoint holds may make it busier than the least busy one.
    pub max_imbalance: u32,
    /// When endpoints are full; `None`: never.
    pub admission: Option<Admission>,
    /// What requests are promised that name an objective; each name once.
    pub objectives: Vec<Objective>,
    /// How requests wait while every endpoint is full; `None`: they don't.
    pub flow_control: Option<FlowControl>,
    /// What becomes of requests that nothing is known for; `None`: as gateways are configured.
    pub failure_mode: Option<FailureMode>,
    /// Whether prefill rates follow what replies show.
    pub learn_rates: Switch,
    /// How endpoints are chosen.
    pub scheduling: proto::Scheduling,
    /// Plugins that the gateways' filter has besides those that are built in, by the name of their type.
    pub own_plugins: Vec<String>,
}

/// Mode of one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteMode {
    /// Its name in Envoy's configuration.
    pub route: String,
    /// Its mode.
    pub mode: Mode,
    /// Of mode split: share of the sessions that is steered, 0 to 100.
    pub split_percent: u32,
}

/// When an endpoint takes no more; a bound that is absent is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Admission {
    /// Sequences in flight.
    pub max_in_flight: Option<u32>,
    /// Requests that wait in the engine.
    pub max_waiting: Option<u32>,
    /// Prompt tokens sent and not yet prefilled.
    pub max_queued_tokens: Option<u64>,
    /// Share of KV cache in use by running requests.
    pub max_kv_usage_ratio: Option<f64>,
    /// After this long clients are told to try again; whole seconds.
    pub retry_after: Duration,
}

/// Whether the filter steers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Decides and steers.
    #[default]
    On,
    /// Steers a share of the sessions, and handles the others as in shadow.
    Split,
    /// Decides and records, but does not steer.
    Shadow,
    /// Does nothing.
    Off,
}

impl Mode {
    /// The mode's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Split => "split",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }
}

/// Bounds of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLimits {
    /// Memory bound in bytes.
    pub max_bytes: u64,
    /// Tokens in the cache of an engine that does not say; 0: it is not guessed.
    pub approximate_tokens: u64,
    /// Time between two deltas.
    pub tick: Duration,
    /// Whether prefixes are known by token ids too, for requests that carry them.
    pub token_space: Switch,
}

/// How engines are scraped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrape {
    /// Time between two scrapes of a busy engine.
    pub interval: Duration,
    /// Time between two scrapes of an idle engine.
    pub idle_interval: Duration,
    /// Time that one scrape may take.
    pub timeout: Duration,
    /// Older figures are not known any more.
    pub max_age: Duration,
}

/// Values that flags and environment put over the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Replaces `listen.http`.
    pub http: Option<String>,
    /// Replaces `listen.grpc`.
    pub grpc: Option<String>,
    /// Replaces `state_dir`.
    pub state_dir: Option<PathBuf>,
    /// Replaces `seed_file`, and `seed` too.
    pub seed_file: Option<PathBuf>,
    /// Replaces `shard`.
    pub shard: Option<String>,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// Relative paths inside the file are relative to the file's folder.
    ///
    /// # Errors
    /// The file can't be read, is not YAML of the documented shape, or breaks a rule.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let base = path.parent().unwrap_or(Path::new(""));
        let mut config = Self::parse(&text, base, overrides)?;
        config.origin = Some(Origin {
            path: path.to_owned(),
            overrides: overrides.clone(),
        });
        Ok(config)
    }

    /// Checks the `policy` of a text, without a model or an endpoint.
    ///
    /// # Errors
    /// It is not YAML of this shape, or breaks rules.
    pub fn check_policy(text: &str) -> Result<(), ConfigError> {
        check::check_policy(&Raw::from_yaml(text)?)
    }

    /// Keys at the top level that `other` has otherwise, besides `policy`: what does not change while the service runs.
    pub fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let differs = [
            ("listen", self.listen != other.listen),
            ("shard", self.shard != other.shard),
            ("shards", self.shards != other.shards),
            ("seed", self.seed != other.seed),
            ("state_dir", self.state_dir != other.state_dir),
            ("models", self.models != other.models),
            (
                "endpoints",
                self.endpoints != other.endpoints || self.elsewhere != other.elsewhere,
            ),
            ("index", self.index != other.index),
            ("scrape", self.scrape != other.scrape),
            ("ready_grace", self.ready_grace != other.ready_grace),
        ];
        let differing = differs.into_iter().filter(|(_, differs)| *differs);
        differing.map(|(key, _)| key).collect()
    }

    /// Reads and checks text; relative paths are taken from `base`.
    ///
    /// # Errors
    /// The text is not YAML of the documented shape, or breaks a rule.
    pub fn parse(text: &str, base: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        let mut raw = Raw::from_yaml(text)?;
        raw.put_over(overrides);
        check::check(&raw, base)
    }

    /// What the settings mean, in sentences for a person; secrets are left out.
    pub fn describe(&self) -> String {
        describe::describe(self)
    }
}

#[cfg(test)]
mod tests;
