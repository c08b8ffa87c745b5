//! Rules of shards, and which endpoints are this one's.

use std::collections::HashMap;
use std::net::SocketAddr;

use prefixway_core::shard::owner;

use super::Checker;
use crate::config::Endpoint;

/// Most shards of a deployment; a gateway has a table and a stream for each.
const MAX_SHARDS: usize = 64;
/// Most endpoints of one shard; larger pools are split over shards.
const MAX_OWN_ENDPOINTS: usize = 4096;

impl Checker {
    pub(super) fn shards(&mut self, shard: &str, shards: &[String]) {
        if shards.len() > MAX_SHARDS {
            self.problem(
                "shards",
                shards.len(),
                format!("shards are configured, allowed: at most {MAX_SHARDS}"),
            );
        }
        let mut seen = HashMap::new();
        for (i, name) in shards.iter().enumerate() {
            let key = format!("shards[{i}]");
            self.name(&key, name);
            self.unique(&mut seen, name, key);
        }
        if !shards.is_empty() && !shards.iter().any(|name| name == shard) {
            self.hinted(
                "shard",
                shard,
                format!("is none of shards, allowed: {}", shards.join(", ")),
                "all replicas have one file; each is told its own name by --shard or PREFIXWAY_SHARD",
            );
        }
    }

    /// What this shard has of the file's endpoints, and who has the others.
    pub(super) fn split(
        &mut self,
        endpoints: Vec<Endpoint>,
        shard: &str,
        shards: &[String],
    ) -> (Vec<Endpoint>, Vec<(SocketAddr, String)>) {
        let mut own = Vec::new();
        let mut elsewhere = Vec::new();
        for endpoint in endpoints {
            let names = shards.iter().map(String::as_str);
            match owner(names, &endpoint.address.to_string()) {
                Some(other) if other != shard => {
                    elsewhere.push((endpoint.address, other.to_owned()));
                }
                _ => own.push(endpoint),
            }
        }
        if own.len() > MAX_OWN_ENDPOINTS {
            self.hinted(
                "endpoints",
                own.len(),
                format!("endpoints are this shard's, allowed: at most {MAX_OWN_ENDPOINTS}"),
                "split them over more indexers by shards",
            );
        }
        (own, elsewhere)
    }
}
