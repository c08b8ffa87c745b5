//! Rules of endpoints and their event sources.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::super::raw::{RawEndpoint, RawEvents, RawModel};
use super::super::{DEFAULT_PREFILL_TOKENS_PER_S, Endpoint, Events, Publisher};
use super::{Checker, MAX_NAME_BYTES};

/// Most endpoints of one shard; larger pools are split over shards.
const MAX_ENDPOINTS: usize = 4096;

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
        let mut addresses = HashMap::new();
        let mut sources = HashMap::new();
        let endpoints: Vec<Option<Endpoint>> = raw
            .iter()
            .enumerate()
            .map(|(i, endpoint)| {
                let key = format!("endpoints[{i}]");
                let address = self.endpoint_address(&key, &endpoint.address);
                // By what it means: an address has several spellings.
                let meant = address.map_or_else(|| endpoint.address.clone(), |a| a.to_string());
                let meant = match endpoint.rank {
                    Some(rank) => format!("{meant} rank {rank}"),
                    None => meant,
                };
                self.unique(&mut addresses, &meant, format!("{key}.address"));
                let model = self.endpoint_model(&key, endpoint, models);
                let events = endpoint
                    .events
                    .as_ref()
                    .map(|events| self.events(&format!("{key}.events"), events, &mut sources));
                let rate = endpoint
                    .prefill_tokens_per_s
                    .unwrap_or(DEFAULT_PREFILL_TOKENS_PER_S);
                let prefill_tokens_per_s =
                    self.number(&format!("{key}.prefill_tokens_per_s"), rate, 1.0..=1e9);
                Some(Endpoint {
                    address: address?,
                    rank: endpoint.rank,
                    model: model?,
                    role: endpoint.role,
                    accelerator: endpoint.accelerator.clone(),
                    adapters: endpoint.adapters.clone(),
                    events: match events {
                        Some(events) => Some(events?),
                        None => None,
                    },
                    prefill_tokens_per_s,
                    scrape: endpoint.scrape.unwrap_or(true),
                })
            })
            .collect();
        endpoints.into_iter().collect()
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
