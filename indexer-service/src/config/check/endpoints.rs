//! Rules of endpoints and their event sources.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::super::raw::{RawEndpoint, RawEvents, RawModel};
use super::super::{DEFAULT_PREFILL_TOKENS_PER_S, Endpoint, Events, Publisher};
use super::{Checker, MAX_NAME_BYTES};

/// Most endpoints of a file, over all shards.
const MAX_ENDPOINTS: usize = 65_536;

/// Most ranks that one entry stands for.
const MAX_RANKS: u32 = 256;

/// Where addresses were given first.
#[derive(Default)]
struct Seen {
    addresses: HashMap<String, String>,
    sources: HashMap<String, String>,
}

/// A data-parallel rank, and how far its ports are from those of the entry.
#[derive(Clone, Copy)]
struct Rank {
    number: u32,
    port_step: u16,
}

impl RawEvents {
    /// The ports of its addresses; `None` for one without.
    fn ports(&self) -> impl Iterator<Item = Option<u16>> {
        let addresses = [&self.connect, &self.bind, &self.replay];
        addresses
            .into_iter()
            .flatten()
            .map(|address| split_port(address).map(|(_, port)| port))
    }

    /// The same for a rank whose ports are that much higher.
    fn of_rank(&self, port_step: u16) -> Self {
        let moved = |address: &Option<String>| {
            let address = address.as_ref()?;
            let moved = split_port(address)
                .filter(|_| port_step > 0)
                .map(|(host, port)| format!("{host}:{}", port.saturating_add(port_step)));
            Some(moved.unwrap_or_else(|| address.clone()))
        };
        Self {
            connect: moved(&self.connect),
            bind: moved(&self.bind),
            replay: moved(&self.replay),
            topic: self.topic.clone(),
        }
    }
}

/// A tcp address without its port, and the port.
fn split_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0);
    Some((host, port?)).filter(|_| address.starts_with("tcp://"))
}

impl Checker {
    pub(super) fn endpoints(
        &mut self,
        raw: &[RawEndpoint],
        models: &[RawModel],
    ) -> Option<Vec<Endpoint>> {
        if raw.len() > MAX_ENDPOINTS {
            self.problem(
                "endpoints",
                raw.len(),
                format!("endpoints are configured, allowed: at most {MAX_ENDPOINTS}"),
            );
        }
        let mut seen = Seen::default();
        let endpoints: Vec<Option<Endpoint>> = raw
            .iter()
            .enumerate()
            .flat_map(|(i, endpoint)| {
                let key = format!("endpoints[{i}]");
                let ranks = self.ranks(&key, endpoint);
                ranks
                    .into_iter()
                    .map(|rank| self.endpoint(&key, endpoint, rank, models, &mut seen))
                    .collect::<Vec<_>>()
            })
            .collect();
        endpoints.into_iter().collect()
    }

    fn endpoint(
        &mut self,
        key: &str,
        endpoint: &RawEndpoint,
        rank: Option<Rank>,
        models: &[RawModel],
        seen: &mut Seen,
    ) -> Option<Endpoint> {
        let address = self.endpoint_address(key, &endpoint.address);
        // By what it means: an address has several spellings.
        let meant = address.map_or_else(|| endpoint.address.clone(), |a| a.to_string());
        let meant = match rank {
            Some(rank) => format!("{meant} rank {}", rank.number),
            None => meant,
        };
        self.unique(&mut seen.addresses, &meant, format!("{key}.address"));
        let model = self.endpoint_model(key, endpoint, models);
        let step = rank.map_or(0, |rank| rank.port_step);
        let events = endpoint.events.as_ref().map(|events| {
            self.events(
                &format!("{key}.events"),
                &events.of_rank(step),
                &mut seen.sources,
            )
        });
        let rate = endpoint
            .prefill_tokens_per_s
            .unwrap_or(DEFAULT_PREFILL_TOKENS_PER_S);
        let prefill_tokens_per_s =
            self.number(&format!("{key}.prefill_tokens_per_s"), rate, 1.0..=1e9);
        Some(Endpoint {
            address: address?,
            rank: rank.map(|rank| rank.number),
            model: model?,
            role: endpoint.role,
            accelerator: endpoint.accelerator.clone(),
            adapters: endpoint.adapters.clone(),
            events: match events {
                Some(events) => Some(events?),
                None => None,
            },
            prefill_tokens_per_s,
            labels: endpoint.labels.clone(),
            scrape: endpoint.scrape.unwrap_or(true),
        })
    }

    /// The ranks that an entry stands for; one without a number where it names none.
    fn ranks(&mut self, key: &str, endpoint: &RawEndpoint) -> Vec<Option<Rank>> {
        let Some(ranks) = endpoint.ranks else {
            let rank = endpoint.rank.map(|number| Rank {
                number,
                port_step: 0,
            });
            return vec![rank];
        };
        let key = format!("{key}.ranks");
        if endpoint.rank.is_some() {
            self.problem(&key, ranks, "is given besides rank, allowed: one of them");
        }
        let ranks = self.number(&key, ranks, 1..=MAX_RANKS).min(MAX_RANKS);
        let ports = endpoint.events.iter().flat_map(RawEvents::ports);
        let ports: Vec<Option<u16>> = ports.collect();
        if ports
            .iter()
            .any(|port| port.is_none_or(|port| u32::from(port) + ranks > 65_536))
        {
            self.problem(
                &key,
                ranks,
                "ranks have ports that follow each other, allowed: tcp addresses with a port that leaves room for them",
            );
        } else if let [Some(events), Some(replay)] = ports.as_slice()
            && u32::from(events.abs_diff(*replay)) < ranks
        {
            self.hinted(
                &key,
                ranks,
                "ranks' event ports run into their replay ports, allowed: two ranges",
                "put the replay port at least as many ports away as there are ranks",
            );
        }
        let numbered = (0..ranks).map(|number| {
            let port_step = u16::try_from(number).unwrap_or(u16::MAX);
            Some(Rank { number, port_step })
        });
        numbered.collect()
    }

    fn endpoint_address(&mut self, key: &str, text: &str) -> Option<SocketAddr> {
        let key = format!("{key}.address");
        let Ok(address) = text.parse::<SocketAddr>() else {
            self.hinted(
                key,
                text,
                "is not an address, allowed: ip:port, IPv6 in brackets",
                "write the address exactly as Envoy's cluster has it; host names are not resolved",
            );
            return None;
        };
        if address.port() == 0 || address.ip().is_unspecified() {
            self.problem(
                key,
                text,
                "can't be connected to, allowed: one machine's ip and a port from 1 to 65535",
            );
            return None;
        }
        Some(address)
    }

    fn endpoint_model(
        &mut self,
        key: &str,
        endpoint: &RawEndpoint,
        models: &[RawModel],
    ) -> Option<usize> {
        let Some(model) = models.iter().position(|model| model.id == endpoint.model) else {
            let ids: Vec<&str> = models.iter().map(|model| model.id.as_str()).collect();
            self.hinted(
                format!("{key}.model"),
                &endpoint.model,
                format!("is not a model, allowed: {}", ids.join(", ")),
                "an endpoint names a model by its id, not by one of its names",
            );
            return None;
        };
        let allowed = models
            .get(model)
            .map(|model| model.adapters.as_slice())
            .unwrap_or_default();
        for (j, adapter) in endpoint.adapters.iter().flatten().enumerate() {
            if !allowed.contains(adapter) {
                self.problem(
                    format!("{key}.adapters[{j}]"),
                    adapter,
                    format!(
                        "is not an adapter of model {}, allowed: {}",
                        endpoint.model,
                        allowed.join(", ")
                    ),
                );
            }
        }
        Some(model)
    }

    fn events(
        &mut self,
        key: &str,
        raw: &RawEvents,
        sources: &mut HashMap<String, String>,
    ) -> Option<Events> {
        let publisher = match (&raw.connect, &raw.bind) {
            (Some(address), None) => {
                self.zmq_address(&format!("{key}.connect"), address, false);
                self.unique(sources, address, format!("{key}.connect"));
                Publisher::Connect(address.clone())
            }
            (None, Some(address)) => {
                self.zmq_address(&format!("{key}.bind"), address, true);
                if !address.ends_with(":0") && !address.ends_with(":*") {
                    self.unique(sources, address, format!("{key}.bind"));
                }
                Publisher::Bind(address.clone())
            }
            (connect, _) => {
                let both = connect.is_some();
                self.hinted(
                    key,
                    "",
                    format!("has {} connect and bind, allowed: one of them", if both { "both" } else { "neither" }),
                    "connect where the engine's endpoint is tcp://*:PORT, bind where the engine connects",
                );
                return None;
            }
        };
        if let Some(replay) = &raw.replay {
            self.zmq_address(&format!("{key}.replay"), replay, false);
        }
        if raw.topic.len() > MAX_NAME_BYTES {
            self.problem(
                format!("{key}.topic"),
                &raw.topic,
                format!("is too long, allowed: at most {MAX_NAME_BYTES} bytes"),
            );
        }
        Some(Events {
            publisher,
            replay: raw.replay.clone(),
            topic: raw.topic.clone(),
        })
    }

    fn zmq_address(&mut self, key: &str, text: &str, bind: bool) {
        let reason = if let Some(rest) = text.strip_prefix("tcp://") {
            let port = rest
                .rsplit_once(':')
                .filter(|(host, _)| !host.is_empty())
                .map(|(_, port)| port);
            match port {
                Some("*" | "0") if bind => return,
                Some(port) if port.parse::<u16>().is_ok_and(|port| port != 0) => {
                    if bind || !rest.starts_with('*') {
                        return;
                    }
                    "is an address to bind, not to connect to, allowed: tcp://HOST:PORT"
                }
                _ => "has no port, allowed: tcp://HOST:PORT with a port from 1 to 65535",
            }
        } else if text
            .strip_prefix("ipc://")
            .is_some_and(|path| !path.is_empty())
        {
            return;
        } else {
            "is not a ZeroMQ address, allowed: tcp://HOST:PORT or ipc://PATH"
        };
        self.problem(key, text, reason);
    }
}
