//! Turns the file's shape into checked settings; all rules are here.

mod admission;
mod endpoints;
mod flow;
mod models;
mod sessions;
mod shards;

use std::collections::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prefixway_core::proto;
use prefixway_core::schedule::{
    DEFAULT_CPU_US_PER_TOKEN, DEFAULT_DISK_US_PER_TOKEN, DEFAULT_MAX_IMBALANCE,
};

use super::duration::{RawDuration, show};
use super::error::{ConfigError, Problem};
use super::profiles;
use super::raw::{Raw, RawModel, RawPolicy, RawRoute, RawTier};
use super::seed::{SEED_FILE_NAME, SeedSource};
use super::{
    Config, DEFAULT_APPROXIMATE_TOKENS, DEFAULT_BETA, DEFAULT_GRPC, DEFAULT_HTTP,
    DEFAULT_INDEX_BYTES, DEFAULT_MAX_AGE, DEFAULT_MAX_BODY_BYTES, DEFAULT_MAX_PROMPT_BYTES,
    DEFAULT_POOL, DEFAULT_READY_GRACE, DEFAULT_SAMPLED_DECISIONS_PER_S,
    DEFAULT_SCRAPE_IDLE_INTERVAL, DEFAULT_SCRAPE_INTERVAL, DEFAULT_SCRAPE_MAX_AGE,
    DEFAULT_SCRAPE_TIMEOUT, DEFAULT_SHARD, DEFAULT_SPECULATIVE_TTL, DEFAULT_SPLIT_PERCENT,
    DEFAULT_STATE_DIR, DEFAULT_TICK, IndexLimits, Listen, Policy, RouteMode, Scrape,
};

/// Most routes with a mode of their own: they are looked through for each request.
const MAX_ROUTES: usize = 64;
/// Most decisions told in full, in a second and VM.
const MAX_SAMPLED_DECISIONS_PER_S: u32 = 100;
/// Longest name of anything.
const MAX_NAME_BYTES: usize = 512;

const MS: fn(u64) -> Duration = Duration::from_millis;
const S: fn(u64) -> Duration = Duration::from_secs;

pub(super) fn check(raw: &Raw, base: &Path) -> Result<Config, ConfigError> {
    let mut checker = Checker {
        problems: Vec::new(),
    };
    let config = checker.config(raw, base);
    match config {
        Some(config) if checker.problems.is_empty() => Ok(config),
        _ => Err(ConfigError::Invalid(checker.problems)),
    }
}

pub(super) fn check_policy(raw: &Raw) -> Result<(), ConfigError> {
    let mut checker = Checker {
        problems: Vec::new(),
    };
    checker.policy(&raw.policy, &raw.models);
    if checker.problems.is_empty() {
        Ok(())
    } else {
        Err(ConfigError::Invalid(checker.problems))
    }
}

struct Checker {
    problems: Vec<Problem>,
}

impl Checker {
    fn problem(&mut self, key: impl Display, value: impl Display, reason: impl Into<String>) {
        self.push(key, value, reason.into(), None);
    }

    fn hinted(
        &mut self,
        key: impl Display,
        value: impl Display,
        reason: impl Into<String>,
        hint: &str,
    ) {
        self.push(key, value, reason.into(), Some(hint.to_owned()));
    }

    fn push(
        &mut self,
        key: impl Display,
        value: impl Display,
        reason: String,
        hint: Option<String>,
    ) {
        self.problems.push(Problem {
            key: key.to_string(),
            value: value.to_string(),
            reason,
            hint,
        });
    }

    fn config(&mut self, raw: &Raw, base: &Path) -> Option<Config> {
        let listen = self.listen(raw);
        let shard = raw
            .shard
            .clone()
            .unwrap_or_else(|| DEFAULT_SHARD.to_owned());
        self.name("shard", &shard);
        self.shards(&shard, &raw.shards);
        let from = |path: &PathBuf, by_flag: bool| {
            if by_flag {
                path.clone()
            } else {
                base.join(path)
            }
        };
        let state_dir = match &raw.state_dir {
            Some(path) => from(path, raw.paths_from_flags.state_dir),
            None => base.join(DEFAULT_STATE_DIR),
        };
        let seed = self.seed(raw, &state_dir, &from);
        let mut models = self.models(&raw.models, base);
        let endpoints = self.endpoints(&raw.endpoints, &raw.models);
        for endpoint in endpoints.iter().flatten() {
            if let Some(model) = models.get_mut(endpoint.model) {
                model.has_events |= endpoint.events.is_some();
            }
        }
        let split = endpoints.map(|endpoints| self.split(endpoints, &shard, &raw.shards));
        let policy = self.policy(&raw.policy, &raw.models);
        let index = IndexLimits {
            max_bytes: self.number(
                "index.max_bytes",
                raw.index.max_bytes.unwrap_or(DEFAULT_INDEX_BYTES),
                1 << 20..=1 << 40,
            ),
            approximate_tokens: self.number(
                "index.approximate_tokens",
                raw.index
                    .approximate_tokens
                    .unwrap_or(DEFAULT_APPROXIMATE_TOKENS),
                0..=1_000_000_000,
            ),
            tick: self.duration(
                "index.tick",
                raw.index.tick.as_ref(),
                DEFAULT_TICK,
                MS(1)..=MS(20),
            ),
            token_space: raw.index.token_space,
        };
        let scrape = self.scrape(raw);
        let ready_grace = self.duration(
            "ready_grace",
            raw.ready_grace.as_ref(),
            DEFAULT_READY_GRACE,
            S(0)..=S(3600),
        );
        let (endpoints, elsewhere) = split?;
        Some(Config {
            listen: listen?,
            shard,
            shards: raw.shards.clone(),
            elsewhere,
            seed: seed?,
            state_dir,
            models,
            endpoints,
            policy,
            index,
            scrape,
            ready_grace,
            origin: None,
        })
    }

    fn listen(&mut self, raw: &Raw) -> Option<Listen> {
        let mut address = |key: &str, value: Option<&String>, default: &str| {
            let text = value.map_or(default, String::as_str);
            let parsed = text.parse::<SocketAddr>().ok();
            if parsed.is_none() {
                self.hinted(
                    key,
                    text,
                    "is not an address, allowed: ip:port",
                    "127.0.0.1 serves this machine only, 0.0.0.0 all interfaces; port 0 takes a free one",
                );
            }
            parsed
        };
        let http = address("listen.http", raw.listen.http.as_ref(), DEFAULT_HTTP);
        let grpc = address("listen.grpc", raw.listen.grpc.as_ref(), DEFAULT_GRPC);
        let (http, grpc) = (http?, grpc?);
        if http == grpc && http.port() != 0 {
            self.problem(
                "listen.grpc",
                grpc,
                "is also listen.http, allowed: two addresses",
            );
        }
        Some(Listen { http, grpc })
    }

    fn seed(
        &mut self,
        raw: &Raw,
        state_dir: &Path,
        from: &dyn Fn(&PathBuf, bool) -> PathBuf,
    ) -> Option<SeedSource> {
        match (&raw.seed, &raw.seed_file) {
            (Some(_), Some(file)) => {
                self.problem(
                    "seed_file",
                    file.display(),
                    "is given besides seed, allowed: one of them",
                );
                None
            }
            (Some(seed), None) => {
                let given = seed.0.map(SeedSource::Given);
                if given.is_none() {
                    self.hinted(
                        "seed",
                        "",
                        "is not a seed, allowed: 0x and 1 to 16 hexadecimal digits, not zero (the value is not shown)",
                        "leave seed out to have one generated in state_dir; replicas of a deployment must share it",
                    );
                }
                given
            }
            (None, Some(file)) => {
                Some(SeedSource::File(from(file, raw.paths_from_flags.seed_file)))
            }
            (None, None) => Some(SeedSource::Generated(state_dir.join(SEED_FILE_NAME))),
        }
    }

    fn policy(&mut self, raw: &RawPolicy, models: &[RawModel]) -> Policy {
        if let Some(id) = &raw.default_model
            && !models.iter().any(|model| &model.id == id)
        {
            self.problem("policy.default_model", id, "is not a model's id");
        }
        let bytes = |value: Option<u64>, default: u32| value.unwrap_or(u64::from(default));
        let body = self.number(
            "policy.max_body_bytes",
            bytes(raw.max_body_bytes, DEFAULT_MAX_BODY_BYTES),
            1024..=256 << 20,
        );
        let prompt = self.number(
            "policy.max_prompt_bytes",
            bytes(raw.max_prompt_bytes, DEFAULT_MAX_PROMPT_BYTES),
            1024..=256 << 20,
        );
        let utc_offset_s = self.utc_offset("policy.utc_offset_s", raw.utc_offset_s);
        Policy {
            beta: self.number("policy.beta", raw.beta.unwrap_or(DEFAULT_BETA), 0.0..=100.0),
            max_age: self.duration(
                "policy.max_age",
                raw.max_age.as_ref(),
                DEFAULT_MAX_AGE,
                MS(100)..=S(3600),
            ),
            explain: raw.explain,
            reject_bad_requests: raw.reject_bad_requests.unwrap_or(true),
            mode: raw.mode,
            max_body_bytes: u32::try_from(body).unwrap_or(u32::MAX),
            max_prompt_bytes: u32::try_from(prompt).unwrap_or(u32::MAX),
            utc_offset_s,
            speculative_ttl: self.duration(
                "policy.speculative_ttl",
                raw.speculative_ttl.as_ref(),
                DEFAULT_SPECULATIVE_TTL,
                MS(100)..=S(600),
            ),
            default_model: raw.default_model.clone(),
            cpu_fetch_us_per_token: self.fetch("cpu", &raw.tiers.cpu, DEFAULT_CPU_US_PER_TOKEN),
            disk_fetch_us_per_token: self.fetch("disk", &raw.tiers.disk, DEFAULT_DISK_US_PER_TOKEN),
            orca: raw.orca,
            split_percent: self.percent("policy.split_percent", raw.split_percent),
            session_header: self.session_header(raw.session_header.as_ref()),
            session_cookie: self.session_cookie(raw.session_cookie.as_ref()),
            routes: self.routes(&raw.routes),
            sampled_decisions_per_s: self.number(
                "policy.sampled_decisions_per_s",
                raw.sampled_decisions_per_s
                    .unwrap_or(DEFAULT_SAMPLED_DECISIONS_PER_S),
                0..=MAX_SAMPLED_DECISIONS_PER_S,
            ),
            max_imbalance: self.number(
                "policy.max_imbalance",
                raw.max_imbalance.unwrap_or(DEFAULT_MAX_IMBALANCE),
                1..=1_000_000,
            ),
            admission: raw
                .admission
                .as_ref()
                .map(|admission| self.admission(admission)),
            objectives: self.objectives(&raw.objectives),
            flow_control: raw
                .flow_control
                .as_ref()
                .map(|flow| self.flow_control(flow, raw)),
            failure_mode: raw.failure_mode,
            learn_rates: raw.learn_rates,
            scheduling: self.scheduling(raw, models),
            own_plugins: raw.own_plugins.clone(),
        }
    }

    fn scheduling(&mut self, raw: &RawPolicy, models: &[RawModel]) -> proto::Scheduling {
        let pools = models.iter().map(|model| model.pool.as_deref());
        let pools: Vec<&str> = pools.map(|pool| pool.unwrap_or(DEFAULT_POOL)).collect();
        for (at, name) in raw.own_plugins.iter().enumerate() {
            self.name(&format!("policy.own_plugins[{at}]"), name);
        }
        let mut wrong = Vec::new();
        let own = &raw.own_plugins;
        let scheduling = profiles::check(&raw.profiles, &raw.pools, own, &pools, &mut wrong);
        for of in wrong {
            self.push(&of.key, &of.value, of.reason, of.hint.map(str::to_owned));
        }
        scheduling
    }

    fn percent(&mut self, key: &str, raw: Option<u32>) -> u32 {
        self.number(key, raw.unwrap_or(DEFAULT_SPLIT_PERCENT), 0..=100)
    }

    fn routes(&mut self, raw: &[RawRoute]) -> Vec<RouteMode> {
        if raw.len() > MAX_ROUTES {
            let allowed = format!("are too many routes, allowed: up to {MAX_ROUTES}");
            self.problem("policy.routes", raw.len(), allowed);
        }
        let mut seen = HashMap::new();
        let mut routes = Vec::with_capacity(raw.len());
        for (number, route) in raw.iter().enumerate() {
            let key = |field: &str| format!("policy.routes[{number}].{field}");
            self.name(&key("route"), &route.route);
            self.unique(&mut seen, &route.route, key("route"));
            routes.push(RouteMode {
                route: route.route.clone(),
                mode: route.mode,
                split_percent: self.percent(&key("split_percent"), route.split_percent),
            });
        }
        routes
    }

    fn fetch(&mut self, tier: &str, raw: &RawTier, default: f64) -> f64 {
        self.number(
            &format!("policy.tiers.{tier}.fetch_us_per_token"),
            raw.fetch_us_per_token.unwrap_or(default),
            0.0..=1e6,
        )
    }

    fn scrape(&mut self, raw: &Raw) -> Scrape {
        let raw = &raw.scrape;
        let interval = self.duration(
            "scrape.interval",
            raw.interval.as_ref(),
            DEFAULT_SCRAPE_INTERVAL,
            MS(20)..=S(60),
        );
        let idle = raw.idle_interval.as_ref();
        let default = DEFAULT_SCRAPE_IDLE_INTERVAL.max(interval);
        let idle_interval = self.duration("scrape.idle_interval", idle, default, interval..=S(60));
        // An idle engine that is left alone must not seem unknown.
        let default = DEFAULT_SCRAPE_MAX_AGE.max(idle_interval * 2);
        Scrape {
            interval,
            idle_interval,
            max_age: self.duration(
                "scrape.max_age",
                raw.max_age.as_ref(),
                default,
                idle_interval..=S(600),
            ),
            timeout: self.duration(
                "scrape.timeout",
                raw.timeout.as_ref(),
                DEFAULT_SCRAPE_TIMEOUT,
                MS(10)..=S(60),
            ),
        }
    }

    fn name(&mut self, key: &str, value: &str) {
        if value.is_empty() || value.len() > MAX_NAME_BYTES || value.chars().any(char::is_control) {
            self.problem(
                key,
                value,
                format!(
                    "is not a name, allowed: 1 to {MAX_NAME_BYTES} bytes without control characters"
                ),
            );
        }
    }

    fn unique(&mut self, seen: &mut HashMap<String, String>, value: &str, key: String) {
        if let Some(first) = seen.get(value) {
            let reason = format!("is also {first}, allowed: each value once");
            self.problem(key, value, reason);
        } else {
            seen.insert(value.to_owned(), key);
        }
    }

    fn number<T: PartialOrd + Display + Copy>(
        &mut self,
        key: &str,
        value: T,
        range: RangeInclusive<T>,
    ) -> T {
        if !range.contains(&value) {
            let reason = format!(
                "is out of range, allowed: {} to {}",
                range.start(),
                range.end()
            );
            self.problem(key, value, reason);
        }
        value
    }

    fn duration(
        &mut self,
        key: &str,
        raw: Option<&RawDuration>,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Duration {
        let allowed = || {
            format!(
                "allowed: {} to {}",
                show(*range.start()),
                show(*range.end())
            )
        };
        let value = match raw.map(RawDuration::parse) {
            None => default,
            Some(Some(value)) if range.contains(&value) => return value,
            Some(Some(value)) => value,
            Some(None) => {
                let text = raw.map(|raw| raw.0.as_str()).unwrap_or_default();
                let reason = format!("is not a duration, {}", allowed());
                self.hinted(
                    key,
                    text,
                    reason,
                    "write a whole number and a unit: ms, s, m or h",
                );
                return default;
            }
        };
        if raw.is_some() {
            self.problem(key, show(value), format!("is out of range, {}", allowed()));
        }
        value
    }
}
