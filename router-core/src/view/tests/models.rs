//! Models and adapters in a decision.

use super::*;
use crate::admission::Lookup;

/// What a model's name means: profile and adapter, `not served` or `unsure`.
fn meaning(proxy: &Proxy, model: Option<&str>) -> String {
    match proxy.vms[0].lookup(model, proxy.now_ms) {
        Lookup::Served(served) => {
            let adapter = served.adapter.unwrap_or("base");
            format!("{} {adapter}", served.profile.id)
        }
        Lookup::NotServed { names } => format!("not served: {}", names.join(" ")),
        Lookup::Unsure => "unsure".to_owned(),
    }
}

#[test]
fn models_mean_profiles_and_adapters() {
    let mut proxy = Proxy::new(1);
    assert_eq!(meaning(&proxy, Some("tiny")), "unsure");
    assert_eq!(meaning(&proxy, None), "unsure");
    proxy.run(20);
    assert_eq!(meaning(&proxy, Some("alias")), "tiny base");
    assert_eq!(meaning(&proxy, Some("lora")), "tiny lora");
    assert_eq!(meaning(&proxy, None), "tiny base");
    assert_eq!(meaning(&proxy, Some("other")), "not served: tiny");
}

#[test]
fn a_model_is_unknown_only_while_policies_are_current() {
    let mut proxy = Proxy::new(1);
    proxy.run(20);
    proxy.now_ms += 5_100;
    assert_eq!(meaning(&proxy, Some("other")), "unsure");
    assert_eq!(meaning(&proxy, Some("tiny")), "tiny base");
    assert_eq!(meaning(&proxy, None), "tiny base");
}

#[test]
fn without_default_the_only_model_is_meant() {
    let with_models = |names: &[&str]| {
        let mut proxy = Proxy::new(1);
        proxy.run(20);
        let profile = |name: &&str| proto::ModelProfile {
            id: format!("{name}-id"),
            names: vec![(*name).to_owned()],
            ..proto::ModelProfile::default()
        };
        proxy.broadcast(&down(Kind::Policy(Box::new(proto::Policy {
            models: names.iter().map(profile).collect(),
            default_model: String::new(),
            ..policy()
        }))));
        proxy.run(20);
        meaning(&proxy, None)
    };
    assert_eq!(with_models(&["a"]), "a-id base");
    assert_eq!(with_models(&["a", "b"]), "not served: a b");
    assert_eq!(with_models(&[]), "not served: ");
}

#[test]
fn an_adapter_that_nobody_has_is_asked_of_its_base() {
    let mut proxy = Proxy::new(1);
    proxy.run(20);
    let adapters = |names: [Option<&str>; 3], models: [&str; 3]| {
        let endpoints = (1..)
            .zip(names.iter().zip(models))
            .map(|(id, (name, model))| {
                let adapters = name.map(str::to_owned);
                proto::Endpoint {
                    adapters: adapters.into_iter().collect(),
                    lists_adapters: true,
                    model: model.to_owned(),
                    ..endpoint(id)
                }
            });
        down(Kind::Endpoints(proto::Endpoints {
            revision: 2,
            endpoints: endpoints.collect(),
        }))
    };
    let order = |proxy: &Proxy| -> Vec<String> {
        let ask = Ask {
            adapter: Some("lora"),
            ..ask(None)
        };
        let ranking = proxy.vms[0].decide(&ask, proxy.now_ms, 1).ranking;
        let mut addresses: Vec<String> = ranking.into_iter().map(|e| e.address).collect();
        addresses.sort();
        addresses
    };
    let tiny = ["tiny", "tiny", "other"];
    proxy.broadcast(&adapters([None, Some("lora"), Some("lora")], tiny));
    proxy.run(20);
    assert_eq!(order(&proxy), ["10.0.0.2:8000"]);
    proxy.broadcast(&adapters([None, Some("b"), Some("lora")], tiny));
    proxy.run(20);
    assert_eq!(order(&proxy), ["10.0.0.1:8000", "10.0.0.2:8000"]);
}
