//! What has to hold once nothing is under way.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use prefixway::demo::process::wait_for;
use serde_json::Value;

use crate::system::{DRAIN_S, System, VMS};

/// Time for it to become so: old listeners drain, old records and expectations expire.
const LIMIT: Duration = Duration::from_secs(30 + DRAIN_S as u64);
/// Age of what a VM said of its copy.
const MAX_AGE_MS: u64 = 3_000;

/// Waits until everything is as it has to be; gives the rungs that every VM has.
///
/// # Errors
/// With what is not so.
pub(crate) async fn hold(system: &System) -> anyhow::Result<u64> {
    let last = Mutex::new(String::new());
    let held = wait_for("everything at rest", LIMIT, async || {
        match look(system).await {
            Ok(rungs) => Some(rungs),
            Err(why) => {
                *last.lock().unwrap_or_else(PoisonError::into_inner) = why;
                None
            }
        }
    });
    let held = held.await;
    held.with_context(|| {
        let why = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        format!(
            "{why}\nenvoy's log ends:\n{}\nthe indexer's ends:\n{}",
            system.envoy.log_tail(),
            system
                .indexer_log()
                .lines()
                .rev()
                .take(15)
                .collect::<Vec<_>>()
                .join("\n")
        )
    })
}

async fn look(system: &System) -> Result<u64, String> {
    nothing_in_flight(system).await?;
    let rungs = every_copy_is_the_table(system).await?;
    let index = page(system, "index").await?;
    for (key, wanted) in [("speculations", 0), ("gateways", 1)] {
        is(&index, key, wanted)?;
    }
    nothing_is_stale(system, &index)?;
    Ok(rungs)
}

async fn page(system: &System, path: &str) -> Result<Value, String> {
    let page = system.page(path).await;
    page.ok_or_else(|| format!("the indexer does not give {path}"))
}

fn is(of: &Value, key: &str, wanted: u64) -> Result<(), String> {
    match of.get(key).and_then(Value::as_u64) {
        Some(value) if value == wanted => Ok(()),
        value => Err(format!("{key} is {value:?}, not {wanted}")),
    }
}

/// Neither the filter nor the indexer, Envoy or an engine has anything in flight.
async fn nothing_in_flight(system: &System) -> Result<(), String> {
    for gauge in [
        "wasmcustom.prefixway_in_flight_requests",
        "cluster.engines.upstream_rq_active",
        "cluster.engines.upstream_rq_pending_active",
        "http.openai.downstream_rq_active",
    ] {
        let value = system.stat(gauge).await;
        if value != 0 {
            return Err(format!("{gauge} is {value}"));
        }
    }
    for engine in &system.engines {
        let stats = engine.stats();
        if (stats.running, stats.waiting) != (0, 0) {
            return Err(format!("{} runs something: {stats:?}", engine.name()));
        }
    }
    let page = page(system, "endpoints").await?;
    for endpoint in list(&page, "endpoints") {
        for key in ["in_flight", "queued_prefill_tokens", "queued_jobs"] {
            is(endpoint, key, 0).map_err(|why| format!("{}: {why}", endpoint["address"]))?;
        }
        if endpoint["healthy"] != true || endpoint["connected"] != true {
            return Err(format!("an endpoint is not well: {endpoint}"));
        }
    }
    Ok(())
}

fn list<'a>(page: &'a Value, key: &str) -> &'a [Value] {
    page.get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// One gateway, each of whose VMs has what was published, by a checksum that is counted anew; gives its rungs.
async fn every_copy_is_the_table(system: &System) -> Result<u64, String> {
    let page = page(system, "gateways").await?;
    let [gateway] = list(&page, "gateways") else {
        return Err(format!("not one gateway: {page}"));
    };
    let vms = list(gateway, "vms");
    if vms.len() != VMS {
        return Err(format!("not {VMS} VMs: {page}"));
    }
    let table = page.get("table").ok_or_else(|| page.to_string())?;
    for vm in vms {
        let keys = ["epoch", "version", "checksum", "rungs"];
        let is_equal = keys.iter().all(|key| vm.get(key) == table.get(key));
        let is_fresh = vm["age_ms"].as_u64().is_some_and(|age| age <= MAX_AGE_MS);
        if !is_equal || !is_fresh || vm["state"] != "same" {
            return Err(format!("a VM has not the indexer's table: {page}"));
        }
    }
    table["rungs"].as_u64().ok_or_else(|| page.to_string())
}

/// No endpoint is credited with more blocks than its engine has.
fn nothing_is_stale(system: &System, index: &Value) -> Result<(), String> {
    for engine in &system.engines {
        let address = engine.http_addr().to_string();
        let sources = list(index, "sources");
        let source = sources.iter().find(|of| of["endpoint"] == address.as_str());
        let claimed = source.and_then(|source| source["blocks"].as_u64());
        let has = engine.stats().cached_blocks as u64;
        if claimed.is_none_or(|claimed| claimed > has) {
            return Err(format!(
                "{} has {has} blocks, the index claims {claimed:?}",
                engine.name()
            ));
        }
    }
    Ok(())
}
