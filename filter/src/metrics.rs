//! The filter's metrics: every name is declared here and defined when the plugin is configured.
//!
//! Metrics belong to the whole proxy: VMs that define the same name add to the same one. A label is written into the name
//! (`prefixway_decisions_total.reason=cache`), and the Envoy configuration has a rule that takes it out again. Values are integers.

use prefixway_core::admission::{Cause, LoadOnly, Refusal};
use prefixway_core::mode::Arm;
use prefixway_core::text::Unscorable;
use prefixway_core::view;

use crate::host::{self, MetricId, MetricKind};

/// Why a request went where it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The view decided, or found no endpoint.
    View(view::Reason),
    /// Steered by load: nothing of the body can be read.
    Unread(LoadOnly),
    /// Not steered: something is wrong with the request. It was answered here, or passed.
    Amiss(Cause),
    /// Not steered: nothing has come from the indexer yet.
    NoSnapshot,
    /// Not steered: it was held at its headers for too long without its body.
    NotHeld,
    /// Not steered: the host refused a call.
    HostError,
}

impl Reason {
    /// Every reason.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let views = [
            view::Reason::Prefix,
            view::Reason::LoadOverPrefix,
            view::Reason::NoPrefix,
            view::Reason::NoText,
            view::Reason::Stale,
            view::Reason::NoEndpoint,
        ];
        let views = views.into_iter().map(Self::View);
        views
            .chain(LoadOnly::ALL.map(Self::Unread))
            .chain(
                Cause::ALL
                    .map(Self::of)
                    .into_iter()
                    .filter(|reason| matches!(reason, Self::Amiss(_))),
            )
            .chain([Self::NoSnapshot, Self::NotHeld, Self::HostError])
    }

    /// Why a request was refused.
    pub(crate) fn of(cause: Cause) -> Self {
        match cause {
            Cause::NoEndpoint => Self::View(view::Reason::NoEndpoint),
            Cause::NoSnapshot => Self::NoSnapshot,
            amiss => Self::Amiss(amiss),
        }
    }

    /// The reason as a label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::View(reason) => reason.as_str(),
            Self::Unread(why) => why.as_str(),
            Self::Amiss(cause) => cause.as_str(),
            Self::NoSnapshot => "no_snapshot",
            Self::NotHeld => "not_held",
            Self::HostError => "host_error",
        }
    }
}

/// Why a request was dropped with which nothing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// It was answered here.
    Refused(Cause),
    /// Its client left while it waited.
    ClientGone,
}

impl Dropped {
    fn all() -> impl Iterator<Item = Self> {
        let refused = Cause::DROPS.into_iter().map(Self::Refused);
        refused.chain([Self::ClientGone])
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Refused(cause) => cause.as_str(),
            Self::ClientGone => "client_gone",
        }
    }
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $field:ident: $kind:ident $name:literal,)*) => {
        /// Ids of every metric without labels, and of those with one by label. An id that the host refused is `None` and never used.
        #[derive(Debug, Default)]
        pub(crate) struct Metrics {
            $($(#[$doc])* pub(crate) $field: Metric,)*
            decisions: Vec<(Reason, Metric)>,
            unscorable: Vec<(Unscorable, Metric)>,
            rejections: Vec<(u16, Metric)>,
            drops: Vec<(Dropped, Metric)>,
            arms: [ArmMetrics; 2],
        }

        impl Metrics {
            /// Defines every metric.
            pub(crate) fn define() -> Self {
                Self {
                    $($field: Metric::define(MetricKind::$kind, $name),)*
                    decisions: Reason::all()
                        .map(|reason| {
                            let name = format!("prefixway_decisions_total.reason={}", reason.as_str());
                            (reason, Metric::define(MetricKind::Counter, &name))
                        })
                        .collect(),
                    unscorable: Unscorable::ALL
                        .into_iter()
                        .map(|reason| {
                            let name = format!("prefixway_unscorable_total.reason={}", reason.reason());
                            (reason, Metric::define(MetricKind::Counter, &name))
                        })
                        .collect(),
                    rejections: Refusal::STATUSES
                        .into_iter()
                        .map(|status| {
                            let name = format!("prefixway_rejected_requests_total.status={status}");
                            (status, Metric::define(MetricKind::Counter, &name))
                        })
                        .collect(),
                    drops: Dropped::all()
                        .map(|dropped| {
                            let name = format!("prefixway_dropped_requests_total.reason={}", dropped.as_str());
                            (dropped, Metric::define(MetricKind::Counter, &name))
                        })
                        .collect(),
                    arms: Arm::ALL.map(ArmMetrics::define),
                }
            }
        }
    };
}

metrics! {
    /// Tokens of the prompt that the chosen endpoint is predicted to hold.
    matched_tokens: Histogram "prefixway_matched_tokens",
    /// Time from the end of the body to the decision.
    decision_us: Histogram "prefixway_decision_us",
    /// Time from the decision to the first byte of a streamed answer.
    ttft_ms: Histogram "prefixway_ttft_ms",
    /// Requests that wait for an endpoint, in all workers; written by the leader.
    waiting: Gauge "prefixway_waiting_requests",
    /// How long requests waited for an endpoint that had to.
    wait_ms: Histogram "prefixway_wait_ms",
    /// Tokens predicted to be cached, over answers that report real ones.
    predicted_tokens: Counter "prefixway_predicted_cached_tokens_total",
    /// Tokens reported to be cached by the same answers.
    cached_tokens: Counter "prefixway_cached_tokens_total",
    /// Answers that ended early or failed.
    failed: Counter "prefixway_failed_requests_total",
    /// Sequences in flight over all workers, written by the leader.
    in_flight: Gauge "prefixway_in_flight_requests",
    /// Age of the prefix knowledge, whole seconds rounded up.
    index_age: Gauge "prefixway_index_age_seconds",
    /// Entries in the table of this proxy.
    index_rungs: Gauge "prefixway_index_rungs",
    /// Of 2^n rungs one is in the table, since there is no room for all.
    index_thinning: Gauge "prefixway_index_thinning",
    /// Indexers whose knowledge of prefixes is in use: current, and hashed with the deployment's seed.
    usable_shards: Gauge "prefixway_usable_shards",
    /// Indexers whose knowledge of prefixes is refused since they hash with another seed.
    refused_shards: Gauge "prefixway_refused_shards",
    /// VMs (workers and the main thread) that have a copy of the indexer's state; a VM that traps stays counted.
    ready_vms: Gauge "prefixway_ready_vms",
    /// Times a VM became the leader.
    elections: Counter "prefixway_leader_elections_total",
    /// Times the copy of an indexer's state had to be started over.
    resyncs: Counter "prefixway_resyncs_total",
    /// Streams to an indexer that ended.
    stream_ends: Counter "prefixway_stream_ends_total",
    /// Steered requests that another endpoint than the first choice served.
    disobeyed: Counter "prefixway_disobeyed_requests_total",
    /// Requests that were let go after a second, since their body did not come.
    hold_timeouts: Counter "prefixway_hold_timeouts_total",
    /// VMs that found out that requests can't be held at their headers here, whatever the configuration says.
    wrong_hold_vms: Gauge "prefixway_wrong_hold_at_vms",
    /// Host calls that failed.
    host_errors: Counter "prefixway_host_errors_total",
}

/// What one arm of an experiment comes to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArmMetrics {
    /// Requests.
    pub(crate) requests: Metric,
    /// Answers that ended early or failed.
    pub(crate) failed: Metric,
    /// Time to the first byte of streamed answers.
    pub(crate) ttft_ms: Metric,
    /// Tokens of prompts, over answers that report the cached ones.
    pub(crate) prompt_tokens: Metric,
    /// How many of them were cached.
    pub(crate) cached_tokens: Metric,
}

impl ArmMetrics {
    fn define(arm: Arm) -> Self {
        let define =
            |kind, name: &str| Metric::define(kind, &format!("{name}.arm={}", arm.as_str()));
        Self {
            requests: define(MetricKind::Counter, "prefixway_split_requests_total"),
            failed: define(MetricKind::Counter, "prefixway_split_failed_requests_total"),
            ttft_ms: define(MetricKind::Histogram, "prefixway_split_ttft_ms"),
            prompt_tokens: define(MetricKind::Counter, "prefixway_split_prompt_tokens_total"),
            cached_tokens: define(MetricKind::Counter, "prefixway_split_cached_tokens_total"),
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Metric(Option<MetricId>);

impl Metric {
    fn define(kind: MetricKind, name: &str) -> Self {
        Self(host::define_metric(kind, name).ok())
    }

    /// Sets a gauge or observes a value.
    pub(crate) fn record(self, value: u64) {
        if let Some(id) = self.0 {
            let _ = host::record(id, value);
        }
    }

    /// Counts one more.
    pub(crate) fn count(self) {
        self.add(1);
    }

    /// Adds to a counter.
    pub(crate) fn add(self, amount: u32) {
        self.adjust(i64::from(amount));
    }

    /// Moves a gauge.
    pub(crate) fn adjust(self, change: i64) {
        if let Some(id) = self.0 {
            let _ = host::increment(id, change);
        }
    }
}

impl Metrics {
    /// Counts a decision.
    pub(crate) fn decided(&self, reason: Reason) {
        if let Some((_, metric)) = self.decisions.iter().find(|(r, _)| *r == reason) {
            metric.count();
        }
    }

    /// Counts a request that was answered here.
    pub(crate) fn rejected(&self, status: u16) {
        if let Some((_, metric)) = self.rejections.iter().find(|(s, _)| *s == status) {
            metric.count();
        }
    }

    /// Counts a request that was dropped.
    pub(crate) fn dropped(&self, dropped: Dropped) {
        if let Some((_, metric)) = self.drops.iter().find(|(of, _)| *of == dropped) {
            metric.count();
        }
    }

    /// Metrics of an arm.
    pub(crate) fn of_arm(&self, arm: Arm) -> ArmMetrics {
        let [steered, control] = self.arms;
        match arm {
            Arm::Steered => steered,
            Arm::Control => control,
        }
    }

    /// Counts a prompt without text.
    pub(crate) fn unscorable(&self, reason: Unscorable) {
        if let Some((_, metric)) = self.unscorable.iter().find(|(r, _)| *r == reason) {
            metric.count();
        }
    }
}
