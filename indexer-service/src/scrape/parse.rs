//! Reads the few figures that routing needs from a Prometheus text page (vLLM 0.32 names).

mod adapters;

use std::collections::BTreeMap;

pub use adapters::{Adapters, adapters};

/// Most ranks read from one page.
const MAX_RANKS: u32 = 1024;

/// Load of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Running requests.
    pub running: u32,
    /// Waiting requests.
    pub waiting: u32,
    /// Share of KV cache in use by running requests, 0 to 1.
    pub kv_usage_ratio: f64,
    /// Tokens per block; `None` when the page does not say.
    pub block_size: Option<u32>,
    /// Tokens that the KV cache has room for; `None` when the page does not say.
    pub cache_tokens: Option<u64>,
    /// Whether prefixes are cached; `None` when the page does not say.
    pub caches_prefixes: Option<bool>,
    /// Prompt tokens taken since the engine started; `None` when the page does not say.
    pub prompt_tokens: Option<f64>,
    /// When the process started, in seconds of Unix time; `None` when the page does not say.
    pub started_s: Option<f64>,
    /// Whether it sleeps: then its cache is empty.
    pub is_asleep: bool,
}

/// Figures per rank (label `engine`, 0 where there is none); series of several models of one rank are added up.
///
/// Lines that can't be read are skipped.
pub fn figures(page: &str) -> BTreeMap<u32, Figures> {
    let mut ranks: BTreeMap<u32, Figures> = BTreeMap::new();
    let mut started_s = None;
    for line in page.lines() {
        let Some(series) = Series::parse(line) else {
            continue;
        };
        let rank = series.rank();
        if rank >= MAX_RANKS {
            continue;
        }
        match series.name {
            "vllm:num_requests_running" => {
                add(&mut ranks.entry(rank).or_default().running, series.value);
            }
            "vllm:num_requests_waiting" => {
                add(&mut ranks.entry(rank).or_default().waiting, series.value);
            }
            "vllm:kv_cache_usage_perc" | "vllm:gpu_cache_usage_perc" => {
                let ratio = &mut ranks.entry(rank).or_default().kv_usage_ratio;
                *ratio = ratio.max(series.value.clamp(0.0, 1.0));
            }
            "vllm:prompt_tokens_total" => {
                let tokens = &mut ranks.entry(rank).or_default().prompt_tokens;
                *tokens = Some(tokens.unwrap_or(0.0) + series.value);
            }
            "vllm:engine_sleep_state" if series.label("sleep_state") == Some("awake") => {
                ranks.entry(rank).or_default().is_asleep = series.value < 0.5;
            }
            "vllm:cache_config_info" => cache(&series, ranks.entry(rank).or_default()),
            "process_start_time_seconds" => started_s = Some(series.value),
            _ => {}
        }
    }
    for figures in ranks.values_mut() {
        figures.started_s = started_s;
    }
    ranks
}

/// Reads `vllm:cache_config_info`. Hybrid models have fewer tokens than blocks times their size, and newer engines say how many.
fn cache(series: &Series<'_>, figures: &mut Figures) {
    let number = |label| {
        series
            .label(label)
            .and_then(|text| text.parse::<u64>().ok())
    };
    let block_size = number("block_size");
    figures.block_size = block_size.and_then(|size| u32::try_from(size).ok());
    let product = || number("num_gpu_blocks")?.checked_mul(block_size?);
    figures.cache_tokens = number("kv_cache_size_tokens").or_else(product);
    figures.caches_prefixes = match series.label("enable_prefix_caching") {
        Some("True") => Some(true),
        Some("False") => Some(false),
        _ => None,
    };
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the target's range before"
)]
fn add(total: &mut u32, value: f64) {
    *total = total.saturating_add(value.clamp(0.0, f64::from(u32::MAX)) as u32);
}

/// One line: `name{label="value",...} number`.
struct Series<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Series<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        if !line.starts_with("vllm:") && !line.starts_with("process_start_time_seconds") {
            return None;
        }
        let (name, labels, rest) = if let Some((name, rest)) = line.split_once('{') {
            // A value may hold a brace, so the set ends at the last one.
            let (labels, rest) = rest.rsplit_once('}')?;
            (name, labels, rest)
        } else {
            let (name, rest) = line.split_once(' ')?;
            (name, "", rest)
        };
        let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
        (!value.is_nan()).then_some(Self {
            name,
            labels,
            value,
        })
    }

    /// The rank that it is of.
    fn rank(&self) -> u32 {
        let rank = self.label("engine").and_then(|rank| rank.parse().ok());
        rank.unwrap_or(0)
    }

    /// A label's value as written (escapes are kept; the labels read here have none).
    fn label(&self, wanted: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        while let Some((name, after)) = rest.split_once("=\"") {
            let mut escaped = false;
            let end = after.find(|c: char| {
                let is_end = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                is_end
            })?;
            let (value, tail) = after.split_at_checked(end)?;
            if name.trim() == wanted {
                return Some(value);
            }
            rest = tail.strip_prefix('"')?.trim_start_matches([',', ' ']);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_per_rank() {
        let page = r#"
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a\"},b"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 1.0
vllm:num_requests_waiting{engine="0",model_name="a"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.25
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="600",enable_prefix_caching="True",x="y"} 1.0
vllm:num_requests_running_created{engine="0"} 1.7e9
vllm:prompt_tokens_total{engine="0",model_name="a"} 40.0
vllm:prompt_tokens_total{engine="0",model_name="b"} 2.0
vllm:engine_sleep_state{engine="0",model_name="a",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="a",sleep_state="discard_all"} 0.0
vllm:engine_sleep_state{engine="1",model_name="a",sleep_state="awake"} 0.0
process_cpu_seconds_total 3
process_start_time_seconds 1.79596426234e+09
"#;
        let ranks = figures(page);
        let first = Figures {
            running: 3,
            waiting: 2,
            kv_usage_ratio: 0.25,
            block_size: Some(16),
            cache_tokens: Some(9_600),
            caches_prefixes: Some(true),
            prompt_tokens: Some(42.0),
            started_s: Some(1_795_964_262.34),
            is_asleep: false,
        };
        assert_eq!(ranks.get(&0), Some(&first));
        assert_eq!(
            ranks.get(&1),
            Some(&Figures {
                running: 1,
                started_s: Some(1_795_964_262.34),
                is_asleep: true,
                ..Figures::default()
            })
        );
    }

    #[test]
    fn nonsense_is_skipped_and_figures_stay_in_range() {
        let page = "vllm:num_requests_running{engine=\"0\"} NaN\nvllm:num_requests_running{engine=\"9999999\"} 1\n\
                    vllm:num_requests_waiting -5\nvllm:kv_cache_usage_perc 7\nvllm:num_requests_running 1e300\nvllm:\nvllm:x{";
        let figures = figures(page);
        let expected = Figures {
            running: u32::MAX,
            kv_usage_ratio: 1.0,
            ..Figures::default()
        };
        assert_eq!(figures, BTreeMap::from([(0, expected)]));
    }
}
