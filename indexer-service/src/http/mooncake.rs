//! `POST /api/v1/query`: the question of Mooncake's conductor, which other routers ask too.
//!
//! Request and answer follow `docs/source/design/conductor/indexer-api-design.md` of kvcache-ai/Mooncake (commit 0278598), the form that its
//! RFC #1403 has come to. What has no meaning here is taken and not used: there are no tenants, so that whatever tenant is named gets the
//! same answer under its name. An instance is an address, and its `DP` are the ranks behind it.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Json;
use prefixway_core::endpoint::Tier;
use serde::{Deserialize, Serialize};

use super::problem::Problem;
use super::question;
use super::{Pages, joined};
use crate::ingest::query::HolderView;

/// Tenant of questions that name none.
const DEFAULT_TENANT: &str = "default";
/// Longest name in a question.
const MAX_NAME_BYTES: usize = 512;

#[derive(Debug, Deserialize)]
struct Question {
    model: String,
    lora_name: Option<String>,
    lora_id: Option<serde_json::Value>,
    token_ids: Vec<u32>,
    tenant_id: Option<String>,
    instance_id: Option<String>,
    block_size: u32,
    cache_salt: Option<String>,
}

/// What one instance holds, in tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Instance {
    longest_matched: u32,
    #[serde(rename = "GPU")]
    gpu: u32,
    #[serde(rename = "DP")]
    ranks: BTreeMap<u32, u32>,
    #[serde(rename = "CPU")]
    cpu: u32,
    #[serde(rename = "DISK")]
    disk: u32,
}

/// Instances by tenant and address.
type Answer = BTreeMap<String, BTreeMap<String, Instance>>;

pub(super) async fn query(State(pages): State<Pages>, body: Body) -> Result<Json<Answer>, Problem> {
    let _place = pages.gate.enter()?;
    let body = question::read(body).await?;
    let question = joined(move || read(&body)).await??;
    let adapter = question.lora_name.filter(|name| !name.is_empty());
    let base = question::model(&pages, Some(question.model)).await?;
    let view = match adapter {
        None => base,
        Some(adapter) => {
            let view = question::model(&pages, Some(adapter)).await?;
            if view.number != base.number || view.adapter.is_none() {
                return Err(Problem::new(
                    StatusCode::NOT_FOUND,
                    "lora_name is no adapter of the model",
                )
                .hint("/api/v1/models lists the adapters of each model"));
            }
            view
        }
    };
    let (ids, salt) = (question.token_ids, question.cache_salt.unwrap_or_default());
    let number = view.number;
    let asked = joined(move || question::of_tokens(&view, &ids, &salt)).await??;
    let held = question::held(&pages, number, asked.hashes).await?;
    let tenant = question
        .tenant_id
        .unwrap_or_else(|| DEFAULT_TENANT.to_owned());
    let instance_id = question.instance_id;
    let wanted = held.endpoints.iter().filter(|endpoint| {
        let wanted = instance_id.as_ref();
        wanted.is_none_or(|id| *id == endpoint.address)
    });
    let instances = instances(
        wanted,
        question.block_size,
        asked.tokens.unwrap_or_default(),
    );
    Ok(Json(Answer::from([(tenant, instances)])))
}

fn read(body: &[u8]) -> Result<Question, Problem> {
    const HINT: &str = "model, token_ids and block_size are needed; lora_name, tenant_id, instance_id and cache_salt are known besides";
    let question: Question =
        serde_json::from_slice(body).map_err(|error| Problem::bad(error.to_string()).hint(HINT))?;
    if question.block_size == 0 {
        return Err(Problem::bad("block_size is 0").hint(HINT));
    }
    let is_base = |id: &serde_json::Value| id.is_null() || id.as_i64() == Some(-1);
    if question.lora_id.as_ref().is_some_and(|id| !is_base(id)) {
        return Err(Problem::bad("lora_id is not known").hint("name the adapter by lora_name"));
    }
    let names = [&question.tenant_id, &question.instance_id];
    let is_long = |name: &&String| name.len() > MAX_NAME_BYTES;
    if names.into_iter().flatten().any(|name| is_long(&name)) {
        return Err(Problem::bad(
            "tenant_id or instance_id is longer than 512 bytes",
        ));
    }
    Ok(question)
}

/// Whole blocks of the question's size, by address.
fn instances<'a>(
    endpoints: impl Iterator<Item = &'a HolderView>,
    block_size: u32,
    prompt_tokens: u32,
) -> BTreeMap<String, Instance> {
    let whole = |tokens: u32| {
        let tokens = tokens.min(prompt_tokens);
        tokens - tokens % block_size.max(1)
    };
    let mut instances: BTreeMap<String, Instance> = BTreeMap::new();
    for endpoint in endpoints {
        let instance = instances.entry(endpoint.address.clone()).or_default();
        let all = whole(endpoint.credit.tokens());
        instance.longest_matched = instance.longest_matched.max(all);
        for (tier, tokens) in Tier::ALL.into_iter().zip(endpoint.credit.by_tier) {
            let place = match tier {
                Tier::Gpu => &mut instance.gpu,
                Tier::Cpu => &mut instance.cpu,
                Tier::Disk => &mut instance.disk,
            };
            *place = whole(tokens).max(*place);
        }
        let rank = instance
            .ranks
            .entry(endpoint.rank.unwrap_or(0))
            .or_default();
        *rank = all.max(*rank);
    }
    instances
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::Knowledge;
    use prefixway_core::snapshot::Credit;
    use serde_json::json;

    fn holder(address: &str, rank: Option<u32>, by_tier: [u32; 3]) -> HolderView {
        HolderView {
            address: address.to_owned(),
            rank,
            block_size: 16,
            knowledge: Knowledge::Precise,
            credit: Credit {
                by_tier,
                speculative: 0,
            },
        }
    }

    #[test]
    fn ranks_of_an_address_are_one_instance_and_only_whole_blocks_count() {
        let endpoints = [
            holder("10.0.0.1:8000", Some(0), [128, 0, 0]),
            holder("10.0.0.1:8000", Some(1), [96, 240, 0]),
            holder("10.0.0.2:8000", None, [0, 0, 0]),
        ];
        let found = serde_json::to_value(instances(endpoints.iter(), 64, 1_000)).unwrap();
        let expected = json!({
            "10.0.0.1:8000": {"longest_matched": 192, "GPU": 128, "DP": {"0": 128, "1": 192}, "CPU": 192, "DISK": 0},
            "10.0.0.2:8000": {"longest_matched": 0, "GPU": 0, "DP": {"0": 0}, "CPU": 0, "DISK": 0},
        });
        assert_eq!(found, expected);
        let short = instances(endpoints.iter(), 16, 100);
        assert_eq!(short["10.0.0.1:8000"].longest_matched, 96);
    }

    #[test]
    fn questions_that_mean_nothing_are_refused_with_a_hint() {
        let with = |more: serde_json::Value| {
            let mut question = json!({"model": "m", "token_ids": [1, 2], "block_size": 16});
            let fields = question.as_object_mut().unwrap();
            fields.extend(more.as_object().unwrap().clone());
            read(question.to_string().as_bytes()).is_ok()
        };
        assert!(with(
            json!({"lora_id": -1, "lora_name": null, "medium": ["gpu"]})
        ));
        assert!(!with(json!({"lora_id": 7})));
        assert!(!with(json!({"block_size": 0})));
        assert!(!with(json!({"token_ids": ["1"]})));
        assert!(!with(json!({"token_ids": [-1]})));
        assert!(!with(json!({"tenant_id": "x".repeat(513)})));
        assert!(read(b"{}").is_err());
    }
}
