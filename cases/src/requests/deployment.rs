//! A case's setup as an indexer tells gateways of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use prefixway_core::endpoint::HolderId;
use prefixway_core::hash::Seed;
use prefixway_core::index::{Changes, Index, IndexConfig, ModelId, SourceId};
use prefixway_core::proto::{Endpoint, Endpoints, Holder, ModelProfile, Policy};
use prefixway_core::text::{ModelFiles, PromptProfile};
use serde_json::json;

use super::expect::Seeded;
use super::request::Request;
use super::setup::Setup;
use crate::error::CaseError;
use crate::events;
use crate::folder;

/// Seed of the chunk hash at every level.
pub(crate) const SEED: Seed = Seed(0x5eed);
/// Tokens per block where a case says nothing.
const BLOCK: u32 = 16;
/// Models whose tokenizer and template the cases' models have.
const FAMILIES: [&str; 2] = ["tinybpe", "llama3_1"];

/// A tokenizer and a chat template.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) folder: PathBuf,
    pub(crate) profile: PromptProfile,
}

/// All families.
///
/// # Errors
/// A file of the repository is missing or damaged.
pub(crate) fn families() -> Result<Vec<Family>, CaseError> {
    FAMILIES.iter().map(|name| family(name)).collect()
}

fn family(name: &'static str) -> Result<Family, CaseError> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../router-core/tests/fixtures/vllm");
    let folder = models.join(name).join("model");
    let read = |file: &str| {
        let bytes = folder::read(&folder.join(file))?;
        Ok::<_, CaseError>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (tokenizer, config, template) = (
        read("tokenizer.json")?,
        read("tokenizer_config.json")?,
        read("chat_template.jinja")?,
    );
    let profile = PromptProfile::from_model_files(&ModelFiles {
        tokenizer_json: &tokenizer,
        tokenizer_config_json: &config,
        chat_template: Some(&template),
    });
    let profile =
        profile.map_err(|error| CaseError::not_understood(format!("model {name}: {error}")))?;
    Ok(Family {
        name,
        folder,
        profile,
    })
}

/// What a gateway is told, and which pod has which address.
#[derive(Clone, Debug)]
pub(crate) struct Deployment {
    pub(crate) policy: Policy,
    pub(crate) endpoints: Endpoints,
    /// Pods by address.
    pub(crate) pods: BTreeMap<String, String>,
}

impl Deployment {
    /// Pods get addresses in order; none of them is one that the cases name.
    pub(crate) fn new(setup: &Setup, family: &Family, block: Option<u32>) -> Self {
        let pods: BTreeMap<String, String> = (1..)
            .zip(setup.pods())
            .map(|(number, pod)| (format!("10.2.0.{number}:8000"), pod.to_owned()))
            .collect();
        let endpoints = (0u32..).zip(&pods).map(|(id, (address, pod))| {
            let model = setup.model_of(pod).unwrap_or_default();
            Endpoint {
                id,
                address: address.clone(),
                role: "both".to_owned(),
                pool: model.to_owned(),
                healthy: true,
                prefill_tokens_per_s: 8_000.0,
                block_size: block.unwrap_or(BLOCK),
                holders: vec![Holder {
                    id,
                    tier: "gpu".to_owned(),
                }],
                state: "live".to_owned(),
                model: model.to_owned(),
                adapters: setup.adapters_of(pod),
                lists_adapters: true,
                ..Endpoint::default()
            }
        });
        let models = setup.pools.keys().map(|model| ModelProfile {
            id: model.clone(),
            revision: family.profile.revision(),
            pool: model.clone(),
            names: vec![model.clone()],
            adapters: setup.adapters_for(model),
            prompt_profile: serde_json::to_vec(&family.profile)
                .unwrap_or_default()
                .into(),
            bytes_per_token: 4.0,
            state: "precise".to_owned(),
            ..ModelProfile::default()
        });
        Self {
            policy: Policy {
                models: models.collect(),
                beta: 2.0,
                max_age_ms: 5_000,
                max_body_bytes: u32::try_from(setup.body_cap_bytes).unwrap_or(u32::MAX),
                mode: "on".to_owned(),
                revision: 1,
                ..Policy::default()
            },
            endpoints: Endpoints {
                revision: 1,
                endpoints: endpoints.collect(),
            },
            pods,
        }
    }

    /// The pods behind a list of addresses; an address that is nobody's stays as it is.
    pub(crate) fn pods_of<'a>(&self, addresses: impl Iterator<Item = &'a str>) -> Vec<String> {
        let pod = |address: &str| {
            let pod = self.pods.get(address).cloned();
            pod.unwrap_or_else(|| address.to_owned())
        };
        addresses.map(pod).collect()
    }

    /// What an index publishes after a pod's engine has reported blocks of the request's first token ids.
    ///
    /// # Errors
    /// The request has no such ids, or there is no such pod.
    pub(crate) fn seeded(&self, request: &Request, seeded: &Seeded) -> Result<Changes, CaseError> {
        let wrong = |what: &str| CaseError::not_understood(format!("{seeded:?}: {what}"));
        let body: serde_json::Value = serde_json::from_slice(&request.body())?;
        let ids: Vec<u32> =
            serde_json::from_value(body.get("prompt").cloned().unwrap_or_default())?;
        let ids = ids.get(..seeded.ids).ok_or_else(|| wrong("too few ids"))?;
        let mut endpoints = self.endpoints.endpoints.iter();
        let endpoint = endpoints
            .find(|endpoint| self.pods.get(&endpoint.address) == Some(&seeded.pod))
            .ok_or_else(|| wrong("no such pod"))?;
        let mut models = self.policy.models.iter();
        let model = models
            .find(|model| model.id == endpoint.model)
            .ok_or_else(|| wrong("no model"))?;

        let blocks = seeded.ids.checked_div(seeded.block).unwrap_or(0);
        let hashes: Vec<String> = (1..=blocks).map(|block| format!("u64:{block}")).collect();
        let event = json!({
            "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": null,
            "token_ids": ids.get(..blocks * seeded.block), "block_size": seeded.block,
        });
        let event = event.as_object().cloned().unwrap_or_default();
        let mut index = Index::new(IndexConfig {
            seed: SEED,
            max_bytes: usize::MAX,
        })
        .with_token_space();
        let (number, source) = (ModelId(0), SourceId(0));
        index.add_model(number, &model.id, model.revision, None);
        // Holders of the slower tiers are nobody's.
        let holders = [HolderId(endpoint.id), HolderId(1_001), HolderId(1_002)];
        index.add_source(source, number, holders);
        index.apply(source, &events::batch(&[event], 0)?);
        Ok(index.take_changes())
    }
}
