//! Counters of one engine and their text form, with vLLM's names, labels and buckets.

use std::fmt::Write as _;
use std::time::Duration;

use crate::scheduler::{Admission, SchedulerStats};

/// Bounds of `vllm:time_to_first_token_seconds`.
const TTFT_BOUNDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// Bounds of `vllm:inter_token_latency_seconds`.
const INTER_TOKEN_BOUNDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
/// Bounds of the request latencies.
const REQUEST_BOUNDS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
/// Bounds of `vllm:request_prefill_kv_computed_tokens`.
const TOKEN_BOUNDS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0,
];

/// Facts that don't change while an engine runs.
#[derive(Debug, Clone)]
pub(crate) struct Labels {
    pub(crate) model_name: String,
    pub(crate) block_size: u32,
    pub(crate) num_blocks: u32,
    /// Adapters that can be loaded at once: all of them. 0 = the engine has none.
    pub(crate) max_adapters: usize,
}

/// Everything counted so far.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) scheduler: SchedulerStats,
    /// Names of the adapters of running requests, and of those that only waiting ones have.
    pub(crate) adapters: [String; 2],
    pub(crate) prompt_tokens: u64,
    pub(crate) hit_tokens: u64,
    pub(crate) generation_tokens: u64,
    pub(crate) preemptions: u64,
    pub(crate) finished: u64,
    pub(crate) stored_blocks: u64,
    pub(crate) removed_blocks: u64,
    pub(crate) batches: u64,
    ttft: Histogram,
    inter_token: Histogram,
    queue: Histogram,
    prefill: Histogram,
    request: Histogram,
    computed_tokens: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            scheduler: SchedulerStats::default(),
            adapters: Default::default(),
            prompt_tokens: 0,
            hit_tokens: 0,
            generation_tokens: 0,
            preemptions: 0,
            finished: 0,
            stored_blocks: 0,
            removed_blocks: 0,
            batches: 0,
            ttft: Histogram::new(TTFT_BOUNDS),
            inter_token: Histogram::new(INTER_TOKEN_BOUNDS),
            queue: Histogram::new(REQUEST_BOUNDS),
            prefill: Histogram::new(REQUEST_BOUNDS),
            request: Histogram::new(REQUEST_BOUNDS),
            computed_tokens: Histogram::new(TOKEN_BOUNDS),
        }
    }
}

impl Metrics {
    /// Counts a first admission after `queued`.
    pub(crate) fn admitted(&mut self, admission: &Admission, queued: Duration) {
        self.prompt_tokens += admission.prompt_tokens as u64;
        self.hit_tokens += admission.hit_tokens as u64;
        self.queue.observe(queued.as_secs_f64());
        self.computed_tokens
            .observe(admission.prompt_tokens.saturating_sub(admission.hit_tokens) as f64);
    }

    /// Counts a first token: time since submission and since admission.
    pub(crate) fn first_token(&mut self, since_submission: Duration, since_admission: Duration) {
        self.generation_tokens += 1;
        self.ttft.observe(since_submission.as_secs_f64());
        self.prefill.observe(since_admission.as_secs_f64());
    }

    /// Counts a further token.
    pub(crate) fn next_token(&mut self, since_token: Duration) {
        self.generation_tokens += 1;
        self.inter_token.observe(since_token.as_secs_f64());
    }

    /// Counts a finished request.
    pub(crate) fn finished(&mut self, since_submission: Duration) {
        self.finished += 1;
        self.request.observe(since_submission.as_secs_f64());
    }

    /// Gives the share of blocks in use by running requests, 0 to 1.
    pub(crate) fn cache_usage(&self) -> f64 {
        self.scheduler.used_blocks as f64 / self.scheduler.capacity_blocks.max(1) as f64
    }

    /// Writes the Prometheus text form.
    pub(crate) fn render(&self, labels: &Labels, unix_s: f64) -> String {
        let mut page = Page {
            out: String::new(),
            common: format!("engine=\"0\",model_name=\"{}\"", labels.model_name),
        };
        let stats = &self.scheduler;
        let computed = self.prompt_tokens - self.hit_tokens;
        let waiting = stats.waiting as f64;
        page.gauge("num_requests_running", &[("", stats.running as f64)]);
        page.gauge("num_requests_waiting", &[("", waiting)]);
        page.gauge(
            "num_requests_waiting_by_reason",
            &[
                (",reason=\"capacity\"", waiting),
                (",reason=\"deferred\"", 0.0),
            ],
        );
        page.gauge(
            "engine_sleep_state",
            &[
                (",sleep_state=\"awake\"", 1.0),
                (",sleep_state=\"weights_offloaded\"", 0.0),
                (",sleep_state=\"discard_all\"", 0.0),
            ],
        );
        page.gauge("kv_cache_usage_perc", &[("", self.cache_usage())]);
        page.counter("prefix_cache_queries", &[("", self.prompt_tokens)]);
        page.counter("prefix_cache_hits", &[("", self.hit_tokens)]);
        page.counter("external_prefix_cache_queries", &[("", 0)]);
        page.counter("external_prefix_cache_hits", &[("", 0)]);
        page.counter("num_preemptions", &[("", self.preemptions)]);
        page.counter("prompt_tokens", &[("", self.prompt_tokens)]);
        page.counter(
            "prompt_tokens_by_source",
            &[
                (",source=\"local_compute\"", computed),
                (",source=\"local_cache_hit\"", self.hit_tokens),
                (",source=\"external_kv_transfer\"", 0),
            ],
        );
        page.counter("prompt_tokens_cached", &[("", self.hit_tokens)]);
        page.counter(
            "prompt_tokens_cached_by_source",
            &[
                (",source=\"device\"", self.hit_tokens),
                (",source=\"host\"", 0),
                (",source=\"disk\"", 0),
            ],
        );
        page.counter("generation_tokens", &[("", self.generation_tokens)]);
        page.counter(
            "request_success",
            &[(",finished_reason=\"length\"", self.finished)],
        );
        page.counter("admission_rejections", &[("", 0)]);
        page.histogram("time_to_first_token_seconds", &self.ttft);
        page.histogram("inter_token_latency_seconds", &self.inter_token);
        page.histogram("request_queue_time_seconds", &self.queue);
        page.histogram("request_prefill_time_seconds", &self.prefill);
        page.histogram("request_prefill_kv_computed_tokens", &self.computed_tokens);
        page.histogram("e2e_request_latency_seconds", &self.request);
        let info = format!(
            ",block_size=\"{0}\",hash_block_size=\"{0}\",num_gpu_blocks=\"{1}\",kv_cache_size_tokens=\"{2}\",enable_prefix_caching=\"True\",prefix_caching_hash_algo=\"xxhash\"",
            labels.block_size,
            labels.num_blocks,
            u64::from(labels.block_size) * u64::from(labels.num_blocks),
        );
        page.gauge("cache_config_info", &[(&info, 1.0)]);
        if labels.max_adapters > 0 {
            // Without the labels that all others have, as vLLM writes it.
            let [running, waiting] = &self.adapters;
            page.family("lora_requests_info", "gauge");
            let _ = writeln!(
                page.out,
                "vllm:lora_requests_info{{max_lora=\"{}\",running_lora_adapters=\"{running}\",waiting_lora_adapters=\"{waiting}\"}} {unix_s:?}",
                labels.max_adapters
            );
        }
        page.out
    }
}

#[derive(Debug, Clone)]
struct Histogram {
    bounds: &'static [f64],
    /// Per bound, then beyond the last; not cumulative.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += value;
    }
}

/// The text form being written. Writing to a string can't fail.
struct Page {
    out: String,
    common: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str) {
        let _ = writeln!(self.out, "# TYPE vllm:{name} {kind}");
    }

    fn gauge(&mut self, name: &str, series: &[(&str, f64)]) {
        self.family(name, "gauge");
        for (labels, value) in series {
            let _ = writeln!(self.out, "vllm:{name}{{{}{labels}}} {value:?}", self.common);
        }
    }

    fn counter(&mut self, name: &str, series: &[(&str, u64)]) {
        let name = format!("{name}_total");
        self.family(&name, "counter");
        for (labels, value) in series {
            let _ = writeln!(self.out, "vllm:{name}{{{}{labels}}} {value}.0", self.common);
        }
    }

    fn histogram(&mut self, name: &str, histogram: &Histogram) {
        self.family(name, "histogram");
        let mut total = 0;
        let bounds = histogram.bounds.iter().map(|bound| format!("{bound:?}"));
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&histogram.counts) {
            total += count;
            let _ = writeln!(
                self.out,
                "vllm:{name}_bucket{{{},le=\"{bound}\"}} {total}.0",
                self.common
            );
        }
        let _ = writeln!(self.out, "vllm:{name}_count{{{}}} {total}.0", self.common);
        let _ = writeln!(
            self.out,
            "vllm:{name}_sum{{{}}} {:?}",
            self.common, histogram.sum
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_gauges_counters_and_cumulative_buckets() {
        let mut metrics = Metrics::default();
        metrics.scheduler.capacity_blocks = 4;
        metrics.scheduler.used_blocks = 1;
        metrics.adapters = ["a,b".to_owned(), String::new()];
        metrics.first_token(Duration::from_millis(3), Duration::from_millis(2));
        metrics.first_token(Duration::from_secs(10_000), Duration::ZERO);
        let labels = Labels {
            model_name: "m".to_owned(),
            block_size: 16,
            num_blocks: 5,
            max_adapters: 2,
        };
        let page = metrics.render(&labels, 7.5);
        for line in [
            "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25",
            "vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"a,b\",waiting_lora_adapters=\"\"} 7.5",
            "vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 2.0",
            "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"0.001\"} 0.0",
            "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"0.005\"} 1.0",
            "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"+Inf\"} 2.0",
            "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"m\"} 2.0",
        ] {
            assert!(
                page.lines().any(|found| found == line),
                "{line} not in\n{page}"
            );
        }
    }
}
