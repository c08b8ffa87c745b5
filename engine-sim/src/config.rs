//! Settings of one engine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::scheduler::{SchedulerConfig, Step};

/// Everything an engine is started with. [`EngineConfig::new`] gives small defaults fit for tests.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// Name of the engine, sent with each reply as `x-engine`.
    pub name: String,
    /// Folder with `tokenizer.json`, `tokenizer_config.json` and (unless that holds it) `chat_template.jinja`.
    pub model_dir: PathBuf,
    /// Names under which the base model is served; the first one is reported in replies, metrics and `/v1/models`.
    pub served_names: Vec<String>,
    /// Names of LoRA adapters.
    pub adapters: Vec<String>,
    /// Tokens per KV block.
    pub block_size: u32,
    /// Blocks in the pool, the null block included.
    pub num_blocks: u32,
    /// Requests that run at once at most.
    pub max_running: usize,
    /// Prompt and output tokens of a request at most.
    pub max_model_len: u32,
    /// Output tokens of a request that sets no limit of its own; it ends there with `stop`.
    pub natural_output_tokens: u32,
    /// How long steps take.
    pub timing: Timing,
    /// Where HTTP listens; port 0 takes a free one.
    pub http: SocketAddr,
    /// How events are published; `None` publishes none.
    pub events: Option<EventsConfig>,
    /// Whether `/tokenizer_info` shows the chat template (vLLM's `--enable-tokenizer-info-endpoint`).
    pub tokenizer_info: bool,
    /// Whether `usage` holds `prompt_tokens_details` where something was cached (vLLM's `--enable-prompt-tokens-details`).
    pub prompt_tokens_details: bool,
    /// Seed of the generated text: equal seeds answer equal prompts equally.
    pub seed: u64,
}

/// Simulated speed of an engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Uncached prompt tokens computed per second, all requests together; infinite takes no time.
    pub prefill_tokens_per_s: f64,
    /// Tokens per step at most (vLLM's `max_num_batched_tokens`): the size of a prefill chunk.
    pub chunk_tokens: usize,
    /// Milliseconds of a decode step with one running request.
    pub decode_ms_per_token: f64,
    /// Share of `decode_ms_per_token` that each further running request adds to the step.
    pub decode_slowdown_per_running: f64,
}

/// Event publisher settings, named as in vLLM's `--kv-events-config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventsConfig {
    /// PUB endpoint. With `*` or `::`, with port 0, and for `ipc://` and `inproc://` the engine binds; otherwise it connects.
    pub endpoint: String,
    /// ROUTER endpoint for replays; always bound. `None` offers none.
    pub replay: Option<String>,
    /// First frame of each message.
    pub topic: String,
    /// Batches kept for replays.
    pub buffer_steps: usize,
}

/// Why a configuration is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A setting is outside its range.
    #[error("{key} is {value}, it must be {allowed}")]
    OutOfRange {
        /// Name of the setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: String,
    },
}

impl EngineConfig {
    /// Gives a configuration with loopback endpoints on free ports, 600 blocks of 16 tokens and the default [`Timing`].
    pub fn new(name: impl Into<String>, model_dir: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            model_dir: model_dir.into(),
            served_names: vec!["model".to_owned()],
            adapters: Vec::new(),
            block_size: 16,
            num_blocks: 600,
            max_running: 8,
            max_model_len: 4096,
            natural_output_tokens: 64,
            timing: Timing::default(),
            http: SocketAddr::from(([127, 0, 0, 1], 0)),
            events: Some(EventsConfig::default()),
            tokenizer_info: false,
            prompt_tokens_details: true,
            seed: 0,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let refuse = |key, value: String, allowed: &str| {
            Err(ConfigError::OutOfRange {
                key,
                value,
                allowed: allowed.to_owned(),
            })
        };
        let timing = &self.timing;
        let tokens = u64::from(self.num_blocks.saturating_sub(1)) * u64::from(self.block_size);
        let is_duration = |ms: f64| (0.0..=f64::from(u32::MAX)).contains(&ms);
        if self.served_names.is_empty() {
            refuse("served_names", "empty".to_owned(), "at least one name")
        } else if self.block_size == 0 {
            refuse("block_size", "0".to_owned(), "at least 1")
        } else if self.max_running == 0 {
            refuse("max_running", "0".to_owned(), "at least 1")
        } else if self.max_model_len < 2 || u64::from(self.max_model_len) > tokens {
            let allowed = format!("2 to {tokens}, the tokens that fit into num_blocks - 1 blocks");
            refuse("max_model_len", self.max_model_len.to_string(), &allowed)
        } else if self.natural_output_tokens == 0 {
            refuse("natural_output_tokens", "0".to_owned(), "at least 1")
        } else if timing.chunk_tokens < self.max_running {
            let allowed = "at least max_running, so that all may decode";
            refuse(
                "timing.chunk_tokens",
                timing.chunk_tokens.to_string(),
                allowed,
            )
        } else if timing.prefill_tokens_per_s.is_nan() || timing.prefill_tokens_per_s < 1.0 {
            let value = timing.prefill_tokens_per_s.to_string();
            refuse("timing.prefill_tokens_per_s", value, "at least 1")
        } else if !is_duration(timing.decode_ms_per_token) {
            let value = timing.decode_ms_per_token.to_string();
            refuse("timing.decode_ms_per_token", value, "at least 0")
        } else if !is_duration(timing.decode_slowdown_per_running) {
            let value = timing.decode_slowdown_per_running.to_string();
            refuse("timing.decode_slowdown_per_running", value, "at least 0")
        } else {
            Ok(())
        }
    }

    pub(crate) fn scheduler(&self) -> SchedulerConfig {
        SchedulerConfig {
            block_size: self.block_size,
            num_blocks: self.num_blocks,
            max_running: self.max_running,
            chunk_tokens: self.timing.chunk_tokens,
        }
    }
}

impl Default for Timing {
    /// Speeds of a mid-size model on one accelerator, in round numbers.
    fn default() -> Self {
        Self {
            prefill_tokens_per_s: 8_000.0,
            chunk_tokens: 2_048,
            decode_ms_per_token: 8.0,
            decode_slowdown_per_running: 0.05,
        }
    }
}

impl Timing {
    /// Gives an engine whose steps take no time.
    pub fn instant() -> Self {
        Self {
            prefill_tokens_per_s: f64::INFINITY,
            decode_ms_per_token: 0.0,
            ..Self::default()
        }
    }

    /// Gives the time of a step:
    /// `prefill_tokens / prefill_tokens_per_s + [decoding > 0] * decode_ms_per_token * (1 + slowdown * (decoding - 1))`.
    pub fn duration(&self, step: &Step) -> Duration {
        let prefill_s = step.prefill_tokens as f64 / self.prefill_tokens_per_s;
        let decode_ms = match step.decoding {
            0 => 0.0,
            decoding => {
                self.decode_ms_per_token
                    * (1.0 + self.decode_slowdown_per_running * (decoding - 1) as f64)
            }
        };
        Duration::try_from_secs_f64(prefill_s + decode_ms / 1_000.0).unwrap_or(Duration::MAX)
    }
}

impl Default for EventsConfig {
    fn default() -> Self {
        Self {
            endpoint: "tcp://127.0.0.1:0".to_owned(),
            replay: Some("tcp://127.0.0.1:0".to_owned()),
            topic: String::new(),
            buffer_steps: 10_000,
        }
    }
}

impl EventsConfig {
    /// Tells whether the publisher binds its endpoint (it connects otherwise).
    pub fn binds(&self) -> bool {
        let endpoint = &self.endpoint;
        let local = ["ipc://", "inproc://"];
        endpoint.contains('*')
            || endpoint.contains("::")
            || endpoint.ends_with(":0")
            || local.iter().any(|scheme| endpoint.starts_with(scheme))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(prefill_tokens: usize, decoding: usize) -> Step {
        Step {
            prefill_tokens,
            decoding,
            ..Step::default()
        }
    }

    #[test]
    fn a_step_takes_time_per_uncached_token_and_per_running_decode() {
        let timing = Timing {
            prefill_tokens_per_s: 1_000.0,
            chunk_tokens: 512,
            decode_ms_per_token: 10.0,
            decode_slowdown_per_running: 0.5,
        };
        assert_eq!(timing.duration(&step(500, 0)), Duration::from_millis(500));
        assert_eq!(timing.duration(&step(0, 1)), Duration::from_millis(10));
        assert_eq!(timing.duration(&step(100, 3)), Duration::from_millis(120));
        assert_eq!(Timing::instant().duration(&step(500, 3)), Duration::ZERO);
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let mut config = EngineConfig::new("e", "m");
        config.check().unwrap();
        config.max_model_len = 10_000;
        let text = config.check().unwrap_err().to_string();
        assert_eq!(
            text,
            "max_model_len is 10000, it must be 2 to 9584, the tokens that fit into num_blocks - 1 blocks"
        );
    }

    #[test]
    fn only_wildcards_free_ports_and_local_transports_bind() {
        let binds = |endpoint: &str| {
            let config = EventsConfig {
                endpoint: endpoint.to_owned(),
                ..EventsConfig::default()
            };
            config.binds()
        };
        assert!(
            [
                "tcp://*:5557",
                "tcp://127.0.0.1:0",
                "tcp://[::]:1",
                "ipc:///x",
                "inproc://x"
            ]
            .map(binds)
            .iter()
            .all(|&b| b)
        );
        assert!(!binds("tcp://127.0.0.1:5557"));
    }
}
