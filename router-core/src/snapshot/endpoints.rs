//! Endpoints of a shard, with their live holders.

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64;

use super::{probe::Credit, sets::MAX_HOLDERS};
use crate::{
    endpoint::{EndpointId, HolderId, Tier},
    proto,
};

/// Identity of an endpoint that is the same in every shard, epoch and gateway: XXH3-64 of its address and rank.
///
/// Load and decisions are kept by key, so they survive a restart of the indexer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointKey(pub u64);

impl EndpointKey {
    /// The key of an address as Envoy spells it and a data-parallel rank:
    /// XXH3-64(address || 0 || rank + 1 as u64 LE, or 0 without rank), seed 0.
    pub fn new(address: &str, rank: Option<u32>) -> Self {
        let mut bytes = Vec::with_capacity(address.len() + 9);
        bytes.extend_from_slice(address.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(&rank.map_or(0, |rank| u64::from(rank) + 1).to_le_bytes());
        Self(xxh3_64(&bytes))
    }
}

/// Phases an endpoint serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Reads the role on the wire; unknown words mean [`Role::Both`].
    pub fn from_name(name: &str) -> Self {
        match name {
            "prefill" => Self::Prefill,
            "decode" => Self::Decode,
            _ => Self::Both,
        }
    }
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointInfo {
    /// Number within the shard and epoch.
    pub id: EndpointId,
    /// Identity across shards and epochs.
    pub key: EndpointKey,
    /// `ip:port`, IPv6 in brackets.
    pub address: String,
    /// Data-parallel rank, when the engine takes it by header.
    pub rank: Option<u32>,
    /// Phases it serves.
    pub role: Role,
    /// Pool it belongs to.
    pub pool: String,
    /// Accelerator class; empty = unknown.
    pub accelerator: String,
    /// Whether requests may be sent to it.
    pub healthy: bool,
    /// Prefill rate in tokens per second, when it is known.
    pub prefill_tokens_per_s: Option<f64>,
    /// Tokens per block; 0 = unknown.
    pub block_size: u32,
    /// Profile id of its model.
    pub model: String,
    /// Adapters it serves; `None` = all of the model's.
    pub adapters: Option<Vec<String>>,
    /// State of its events.
    pub state: String,
    /// Share of its prefix credit that counts, 0 to 1; 1 unless the index has proved wrong about it.
    pub prefix_trust: f64,
    /// Labels that policies select by, ordered by name.
    pub labels: Vec<(String, String)>,
    /// Tokens of KV cache, when they are known.
    pub kv_tokens: Option<u64>,
    /// Adapters in its engine.
    pub loaded_adapters: LoadedAdapters,
}

/// Adapters in an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedAdapters {
    /// Loaded ones.
    pub running: Vec<String>,
    /// Those about to be loaded.
    pub waiting: Vec<String>,
    /// How many can be loaded at once; 0 = unknown.
    pub max: u32,
}

impl LoadedAdapters {
    /// Whether the engine tells of them.
    pub fn is_known(&self) -> bool {
        self.max > 0 || !self.running.is_empty() || !self.waiting.is_empty()
    }
}

impl EndpointInfo {
    /// What counts of a credit: all of it, or as much as the index is trusted about this endpoint.
    pub fn trusted(&self, credit: Credit) -> Credit {
        if self.prefix_trust >= 1.0 {
            return credit;
        }
        let counted = |tokens: u32| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share from 0 to 1 of a u32"
            )]
            let share = (f64::from(tokens) * self.prefix_trust) as u32;
            self.whole_blocks(share)
        };
        Credit {
            by_tier: credit.by_tier.map(counted),
            speculative: counted(credit.speculative),
        }
    }

    /// Value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        let at = self
            .labels
            .binary_search_by(|(of, _)| of.as_str().cmp(name))
            .ok()?;
        self.labels.get(at).map(|(_, value)| value.as_str())
    }

    /// Tokens floored to whole blocks.
    pub fn whole_blocks(&self, tokens: u32) -> u32 {
        tokens
            .checked_rem(self.block_size)
            .map_or(tokens, |rest| tokens - rest)
    }
}

/// All endpoints of a shard.
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    revision: u64,
    list: Vec<EndpointInfo>,
    /// By holder id: place in `list` and tier; `None` = dead.
    holders: Vec<Option<(u32, Tier)>>,
    places: HashMap<EndpointKey, usize>,
}

impl Endpoints {
    /// Reads a message. Endpoints without address, and holders with an unknown tier or an id beyond the limit, are left out.
    pub fn from_message(message: &proto::Endpoints) -> Self {
        let mut endpoints = Self {
            revision: message.revision,
            ..Self::default()
        };
        for endpoint in message
            .endpoints
            .iter()
            .filter(|endpoint| !endpoint.address.is_empty())
        {
            let place = u32::try_from(endpoints.list.len()).unwrap_or(u32::MAX);
            for holder in &endpoint.holders {
                let tier = Tier::from_medium(Some(&holder.tier));
                if let Some(tier) = tier.filter(|_| holder.id < MAX_HOLDERS) {
                    let id = holder.id as usize;
                    if endpoints.holders.len() <= id {
                        endpoints.holders.resize(id + 1, None);
                    }
                    if let Some(slot) = endpoints.holders.get_mut(id) {
                        *slot = Some((place, tier));
                    }
                }
            }
            let info = info(endpoint);
            endpoints.places.insert(info.key, endpoints.list.len());
            endpoints.list.push(info);
        }
        endpoints
    }

    /// Grows with each change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Endpoints in order of the message.
    pub fn list(&self) -> &[EndpointInfo] {
        &self.list
    }

    /// Place in [`Self::list`] and tier of a holder; `None` when it is dead.
    pub fn holder(&self, id: HolderId) -> Option<(usize, Tier)> {
        let (place, tier) = (*self.holders.get(id.0 as usize)?)?;
        Some((place as usize, tier))
    }

    /// Place in [`Self::list`] of an endpoint.
    pub fn place_of(&self, key: EndpointKey) -> Option<usize> {
        self.places.get(&key).copied()
    }

    /// Endpoint of an id. Costs a step per endpoint.
    pub fn by_id(&self, id: EndpointId) -> Option<&EndpointInfo> {
        self.list.iter().find(|endpoint| endpoint.id == id)
    }
}

fn info(endpoint: &proto::Endpoint) -> EndpointInfo {
    let rate = endpoint.prefill_tokens_per_s;
    EndpointInfo {
        id: EndpointId(endpoint.id),
        key: EndpointKey::new(&endpoint.address, endpoint.rank),
        address: endpoint.address.clone(),
        rank: endpoint.rank,
        role: Role::from_name(&endpoint.role),
        pool: endpoint.pool.clone(),
        accelerator: endpoint.accelerator.clone(),
        healthy: endpoint.healthy,
        prefill_tokens_per_s: (rate.is_finite() && rate > 0.0).then_some(rate),
        block_size: endpoint.block_size,
        model: endpoint.model.clone(),
        adapters: (endpoint.lists_adapters || !endpoint.adapters.is_empty())
            .then(|| endpoint.adapters.clone()),
        state: endpoint.state.clone(),
        prefix_trust: match endpoint.prefix_trust {
            Some(share) if share.is_finite() => share.clamp(0.0, 1.0),
            _ => 1.0,
        },
        labels: {
            let labels = endpoint.labels.iter();
            let mut labels: Vec<_> = labels
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            labels.sort();
            labels
        },
        kv_tokens: (endpoint.kv_tokens > 0).then_some(endpoint.kv_tokens),
        loaded_adapters: LoadedAdapters {
            running: endpoint.running_adapters.clone(),
            waiting: endpoint.waiting_adapters.clone(),
            max: endpoint.max_adapters,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_ranks_apart() {
        let key = EndpointKey::new("10.0.0.1:8000", None);
        assert_ne!(key, EndpointKey::new("10.0.0.1:8000", Some(0)));
        assert_ne!(key, EndpointKey::new("10.0.0.2:8000", None));
    }

    #[test]
    fn only_the_trusted_share_of_a_credit_counts_in_whole_blocks() {
        let counted = |prefix_trust| {
            let endpoints = Endpoints::from_message(&proto::Endpoints {
                revision: 1,
                endpoints: vec![proto::Endpoint {
                    address: "a:1".into(),
                    block_size: 16,
                    prefix_trust,
                    ..proto::Endpoint::default()
                }],
            });
            let credit = Credit {
                by_tier: [96, 0, 160],
                speculative: 80,
            };
            let counted = endpoints.list()[0].trusted(credit);
            (counted.by_tier, counted.speculative)
        };
        let all = ([96, 0, 160], 80);
        for (trust, expected) in [
            (None, all),
            (Some(1.0), all),
            (Some(7.0), all),
            (Some(f64::NAN), all),
            (Some(0.5), ([48, 0, 80], 32)),
            (Some(0.0), ([0; 3], 0)),
            (Some(-1.0), ([0; 3], 0)),
        ] {
            assert_eq!(counted(trust), expected, "{trust:?}");
        }
    }

    #[test]
    fn dead_holders_and_nonsense_are_left_out() {
        let holder = |id, tier: &str| proto::Holder {
            id,
            tier: tier.into(),
        };
        let endpoint = |id, address: &str, holders| proto::Endpoint {
            id,
            address: address.into(),
            holders,
            prefill_tokens_per_s: f64::NAN,
            ..proto::Endpoint::default()
        };
        let endpoints = Endpoints::from_message(&proto::Endpoints {
            revision: 4,
            endpoints: vec![
                endpoint(1, "", vec![holder(0, "gpu")]),
                endpoint(
                    2,
                    "a:1",
                    vec![
                        holder(1, "gpu"),
                        holder(3, "CPU"),
                        holder(4, "tape"),
                        holder(MAX_HOLDERS, "gpu"),
                    ],
                ),
            ],
        });
        assert_eq!(endpoints.list().len(), 1);
        assert_eq!(endpoints.list()[0].prefill_tokens_per_s, None);
        let of = |id| endpoints.holder(HolderId(id));
        assert_eq!(
            [of(0), of(1), of(2), of(3), of(4), of(MAX_HOLDERS)],
            [
                None,
                Some((0, Tier::Gpu)),
                None,
                Some((0, Tier::Cpu)),
                None,
                None
            ]
        );
        assert_eq!(endpoints.list()[0].whole_blocks(33), 33);
    }
}
