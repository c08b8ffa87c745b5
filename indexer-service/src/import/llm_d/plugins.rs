//! What llm-d's plugins are here.

/// What a plugin is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A filter of this name.
    Filter(&'static str),
    /// A scorer of this name.
    Scorer(&'static str),
    /// A picker of this name.
    Picker(&'static str),
    /// Nothing, and why.
    None(&'static str),
}

const ROLES: &str = "roles are looked at for every request: set role of each endpoint";
const PAIRS: &str = "pairs of prefill and decode endpoints are no part of a profile";
const TEXT: &str = "prompts are matched by their text: nothing is tokenized on the request path";
const BOTH: &str = "events and decisions are both used, endpoint by endpoint: see approximate mode";
const SHARED: &str = "always on: load is shared between workers and gateways";
const SCRAPED: &str = "the indexer reads engines' figures itself: see scrape";
const EXTENSION: &str = "there is no counterpart";

/// What a type of plugin is.
pub(super) fn meaning(name: &str) -> Meaning {
    use Meaning::{Filter, None, Picker, Scorer};
    match name {
        "label-selector-filter" | "by-label-selector" => Filter("label-selector"),
        "by-label" => Filter("by-label"),
        "prefix-cache-affinity-filter" => Filter("prefix-cache-affinity"),
        "session-affinity-filter" => Filter("session-affinity"),
        "slo-headroom-tier-filter" => Filter("slo-headroom-tier"),
        "utilization-filter" => Filter("utilization"),
        "prefix-cache-scorer" | "precise-prefix-cache-scorer" => Scorer("prefix-cache"),
        "queue-scorer" => Scorer("queue"),
        "running-requests-size-scorer" => Scorer("running-requests"),
        "kv-cache-utilization-scorer" => Scorer("kv-cache-utilization"),
        "load-aware-scorer" => Scorer("load-aware"),
        "active-request-scorer" => Scorer("active-request"),
        "token-load-scorer" => Scorer("token-load"),
        "lora-affinity-scorer" => Scorer("lora-affinity"),
        "session-affinity-scorer" => Scorer("session-affinity"),
        "context-length-aware" | "context-length-aware-scorer" => Scorer("context-length-aware"),
        "no-hit-lru-scorer" => Scorer("no-hit-lru"),
        "latency-scorer" => Scorer("latency"),
        "header-label-affinity-scorer" => Scorer("header-label-affinity"),
        "max-score-picker" => Picker("max-score"),
        "random-picker" => Picker("random"),
        "weighted-random-picker" => Picker("weighted-random"),
        "prefill-filter" | "decode-filter" | "encode-filter" => None(ROLES),
        "disagg-profile-handler"
        | "pd-profile-handler"
        | "always-disagg-pd-decider"
        | "prefix-based-pd-decider"
        | "always-disagg-multimodal-decider"
        | "disagg-headers-handler"
        | "prefill-header-handler" => None(PAIRS),
        "single-profile-handler" => None("one profile is the default: nothing has to be said"),
        "data-parallel-profile-handler" => None("ranks are endpoints: set rank or ranks of each"),
        "header-profile-handler" => None("profiles belong to pools, not to a header of the client"),
        "token-producer" | "tokenizer" => None(TEXT),
        "precise-prefix-cache-producer" | "approx-prefix-cache-producer" => None(BOTH),
        "inflight-load-producer" => None(SHARED),
        "metrics-data-source"
        | "models-data-source"
        | "core-metrics-extractor"
        | "models-data-extractor"
        | "endpoint-notification-source"
        | "k8s-notification-source" => None(SCRAPED),
        "utilization-detector" => None("became policy.admission"),
        "concurrency-detector" => None("set policy.admission.max_in_flight or max_queued_tokens"),
        "latency-slo-admitter" | "probabilistic-admitter" => {
            None("requests are refused by policy.admission alone")
        }
        "predicted-latency-producer" => {
            None("times are predicted from rates: there is no model to train")
        }
        "session-id-producer" | "agent-identity" => None("set policy.session_header"),
        "mm-embeddings-cache-scorer" | "mm-embeddings-cache-producer" => {
            None("embeddings caches are not known")
        }
        "endpoint-attribute-filter" | "endpoint-attribute-scorer" => {
            None("attributes have other names: write it with endpoint-attribute or an expression")
        }
        "topology-affinity-filter" | "topology-affinity-scorer" => {
            None("it is relative to the other endpoint of a pair there: see topology-affinity")
        }
        _ => None(EXTENSION),
    }
}

/// Why a parameter is left out; `None` when it is kept.
pub(super) fn dropped(plugin: &str, key: &str) -> Option<&'static str> {
    match (plugin, key) {
        (_, "prefixMatchInfoProducerName") => Some("there is one source of what is matched"),
        ("no-hit-lru-scorer", "lruSize") => Some("every endpoint is remembered"),
        ("no-hit-lru-scorer", "prefixPluginName" | "prefixPluginType") => {
            Some("there is one source of what is matched")
        }
        ("prefix-cache-affinity-filter", "ttftSource" | "peakPrefillThroughput") => {
            Some("times are predicted from each endpoint's own rate: set prefill_tokens_per_s")
        }
        ("precise-prefix-cache-scorer", _) => Some("the index is configured by itself: see index"),
        ("session-affinity-filter" | "session-affinity-scorer", _) => Some(
            "the session is what policy.session_header names, and its endpoint follows from a hash",
        ),
        ("max-score-picker" | "random-picker" | "weighted-random-picker", _) => {
            Some("up to three endpoints are named for retries")
        }
        ("active-request-scorer", "requestTimeout") => Some("requests are counted until they end"),
        (
            "prefix-cache-scorer",
            "autoTune"
            | "blockSizeTokens"
            | "blockSize"
            | "hashBlockSize"
            | "maxPrefixBlocksToMatch"
            | "lruCapacityPerServer",
        ) => Some("events say what is cached, by the block size of each engine"),
        _ => None,
    }
}
