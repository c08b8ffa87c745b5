//! Who serves what in a case.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Cap of bodies where a case names none.
pub(crate) const DEFAULT_BODY_CAP: usize = 16 << 20;

/// `setup` as the files write it; what a variant leaves out is the case's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSetup {
    pools: Option<BTreeMap<String, Vec<String>>>,
    adapters: Option<BTreeMap<String, Vec<String>>>,
    body_cap_bytes: Option<usize>,
}

/// A gateway's surroundings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Setup {
    /// Pods of each model.
    pub(crate) pools: BTreeMap<String, Vec<String>>,
    /// Pods that have an adapter loaded.
    pub(crate) adapters: BTreeMap<String, Vec<String>>,
    /// Longest body that is taken.
    pub(crate) body_cap_bytes: usize,
    /// Whether the gateway has heard of all this; otherwise it knows nothing.
    pub(crate) is_known: bool,
}

impl Setup {
    /// A case's setup, with a variant's own over it.
    pub(super) fn new(case: &RawSetup, variant: &RawSetup) -> Self {
        fn over<T: Clone>(variant: Option<&T>, case: Option<&T>) -> Option<T> {
            variant.or(case).cloned()
        }
        let fallback = || BTreeMap::from([("m-base".to_owned(), vec!["a".to_owned()])]);
        let pools = over(variant.pools.as_ref(), case.pools.as_ref()).unwrap_or_else(fallback);
        let mut adapters =
            over(variant.adapters.as_ref(), case.adapters.as_ref()).unwrap_or_default();
        // A variant with other pools need not repeat the adapters: those of pods that are not there are not there either.
        let is_there = |pod: &String| pools.values().flatten().any(|other| other == pod);
        for pods in adapters.values_mut() {
            pods.retain(is_there);
        }
        adapters.retain(|_, pods| !pods.is_empty());
        Self {
            body_cap_bytes: over(
                variant.body_cap_bytes.as_ref(),
                case.body_cap_bytes.as_ref(),
            )
            .unwrap_or(DEFAULT_BODY_CAP),
            pools,
            adapters,
            is_known: true,
        }
    }

    /// All pods, each once, in order of the models.
    pub(crate) fn pods(&self) -> Vec<&str> {
        let mut pods: Vec<&str> = Vec::new();
        for pod in self.pools.values().flatten() {
            if !pods.contains(&pod.as_str()) {
                pods.push(pod);
            }
        }
        pods
    }

    /// The model that a pod serves.
    pub(crate) fn model_of(&self, pod: &str) -> Option<&str> {
        let mut pools = self.pools.iter();
        pools
            .find(|(_, pods)| pods.iter().any(|other| other == pod))
            .map(|(model, _)| model.as_str())
    }

    /// Adapters that a pod has.
    pub(crate) fn adapters_of(&self, pod: &str) -> Vec<String> {
        let with = |pods: &Vec<String>| pods.iter().any(|other| other == pod);
        let adapters = self.adapters.iter().filter(|(_, pods)| with(pods));
        adapters.map(|(adapter, _)| adapter.clone()).collect()
    }

    /// Adapters of a base model.
    pub(crate) fn adapters_for(&self, model: &str) -> Vec<String> {
        let of_model = |pods: &Vec<String>| {
            let first = pods.first().and_then(|pod| self.model_of(pod));
            first == Some(model)
        };
        let adapters = self.adapters.iter().filter(|(_, pods)| of_model(pods));
        adapters.map(|(adapter, _)| adapter.clone()).collect()
    }

    /// Pods that may serve a request for `name`: those of the model, or of the adapter's base; all where nothing says.
    pub(crate) fn pods_for(&self, name: Option<&str>) -> Vec<&str> {
        let base = name.and_then(|name| {
            let is_base = self.pools.contains_key(name).then_some(name);
            is_base.or_else(|| {
                let pod = self.adapters.get(name)?.first()?;
                self.model_of(pod)
            })
        });
        match base.and_then(|base| self.pools.get(base)) {
            Some(pods) => pods.iter().map(String::as_str).collect(),
            None => self.pods(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> RawSetup {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_variant_puts_its_keys_over_the_cases() {
        let case =
            raw(r#"{"pools": {"m": ["a", "b"]}, "adapters": {"x": ["b"]}, "body_cap_bytes": 100}"#);
        let setup = Setup::new(&case, &RawSetup::default());
        assert_eq!((setup.pods(), setup.body_cap_bytes), (vec!["a", "b"], 100));
        assert_eq!(setup.adapters_for("m"), ["x"]);
        assert_eq!(
            (setup.adapters_of("a").len(), setup.adapters_of("b").len()),
            (0, 1)
        );
        assert_eq!(setup.pods_for(Some("x")), ["a", "b"]);
        let other = Setup::new(&case, &raw(r#"{"pools": {"m": ["a"], "n": ["c"]}}"#));
        assert!(other.adapters.is_empty());
        assert_eq!(other.pods_for(Some("n")), ["c"]);
        assert_eq!(other.pods_for(Some("unheard")), ["a", "c"]);
        assert!(serde_json::from_str::<RawSetup>(r#"{"pool": {}}"#).is_err());
    }
}
