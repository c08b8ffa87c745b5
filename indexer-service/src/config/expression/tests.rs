use prefixway_core::schedule::expression::Node;

use super::*;

fn error(text: &str) -> String {
    compile(text).unwrap_err().to_string()
}

#[test]
fn what_it_means_is_a_tree() {
    let label = || Box::new(Node::Label("zone".into()));
    assert_eq!(
        compile("endpoint.waiting < 4.0 && endpoint.labels['zone'] == 'a'")
            .unwrap()
            .tree,
        Node::Binary(
            Operator::And,
            Box::new(Node::Binary(
                Operator::Less,
                Box::new(Node::Variable(Variable::Waiting)),
                Box::new(Node::Number(4.0)),
            )),
            Box::new(Node::Binary(
                Operator::Equal,
                label(),
                Box::new(Node::Text("a".into()))
            )),
        )
    );
    assert_eq!(
        compile("has(endpoint.labels.zone)").unwrap().tree,
        compile("'zone' in endpoint.labels").unwrap().tree
    );
    assert_eq!(
        compile("request.headers['X-Tier'] in ['gold', 'silver']")
            .unwrap()
            .tree,
        Node::In(
            Box::new(Node::Header("x-tier".into())),
            vec![Node::Text("gold".into()), Node::Text("silver".into())]
        )
    );
}

#[test]
fn what_can_not_be_used_says_why() {
    for (text, says) in [
        ("endpoint.waiting <", "is not CEL"),
        (
            "endpoint.wait < 4",
            "asks for \"endpoint.wait\", which there is not",
        ),
        ("pods[0].waiting", "uses"),
        ("x", "asks for \"x\""),
        ("[1, 2].all(n, n > 0)", "uses all, exists, map or filter"),
        ("1 / 2 + endpoint.waiting", "divides whole numbers"),
        (
            "endpoint.waiting + 'a'",
            "plus needs a number and gets a text",
        ),
        ("endpoint.address == 4", "a text is never a number"),
        ("endpoint.is_full ? 1 : 'a'", "? : gives a number or a text"),
        ("matches(endpoint.address, 'x')", "uses matches"),
        (&"1.0+".repeat(2_000), "is longer than"),
        (&format!("{}1.0{}", "(".repeat(200), ")".repeat(200)), ""),
        (&(vec!["1.0"; 600].join("+")), ""),
    ] {
        let error = error(text);
        assert!(error.starts_with(says), "{text}: {error}");
    }
}

/// Expressions of numbers and truths alone, evaluated by cel's own interpreter too.
mod against_cel {
    use cel::{Context, Program, Value};
    use prefixway_core::{
        load::EndpointLoad,
        proto,
        schedule::{Candidate, Need, Registry},
        snapshot::{Credit, Endpoints},
    };
    use proptest::prelude::*;

    use super::*;

    const WAITING: f64 = 3.0;
    const MATCHED: f64 = 640.0;

    /// Whether an endpoint is kept, by a profile with the expression as its filter.
    fn is_kept(text: &str) -> bool {
        let parameters = serde_json::to_string(&compile(text).unwrap()).unwrap();
        let policy = proto::Policy {
            profiles: vec![proto::SchedulingProfile {
                filters: vec![proto::Plugin {
                    r#type: "expression".into(),
                    parameters,
                    required: true,
                    ..proto::Plugin::default()
                }],
                ..proto::SchedulingProfile::default()
            }],
            ..proto::Policy::default()
        };
        let profiles = Registry::default().profiles(&policy).unwrap();
        let endpoints = Endpoints::from_message(&proto::Endpoints {
            revision: 1,
            endpoints: vec![proto::Endpoint {
                address: "a:1".into(),
                healthy: true,
                labels: [("zone".to_owned(), "z1".to_owned())].into(),
                ..proto::Endpoint::default()
            }],
        });
        let load = EndpointLoad {
            has_others: true,
            engine: Some(prefixway_core::load::Figures {
                waiting: 3,
                ..prefixway_core::load::Figures::default()
            }),
            ..EndpointLoad::default()
        };
        let candidate = Candidate {
            endpoint: &endpoints.list()[0],
            shard: 0,
            credit: Credit {
                by_tier: [640, 0, 0],
                speculative: 0,
            },
            load,
        };
        let need = Need {
            prompt_tokens: 1_000,
            ..Need::default()
        };
        !profiles.of_pool("").rank(&[candidate], &need, 1).is_empty()
    }

    fn by_cel(text: &str) -> bool {
        let mut context = Context::default();
        context
            .add_variable(
                "endpoint",
                std::collections::HashMap::from([
                    ("waiting".to_owned(), Value::Float(WAITING)),
                    ("matched_tokens".to_owned(), Value::Float(MATCHED)),
                ]),
            )
            .unwrap();
        let program = Program::compile(text).unwrap();
        program.execute(&context).unwrap() == Value::Bool(true)
    }

    fn number() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            (0u32..50).prop_map(|n| format!("{n}.5")),
            Just("endpoint.waiting".to_owned()),
            Just("endpoint.matched_tokens".to_owned()),
        ];
        leaf.prop_recursive(3, 12, 2, |inner| {
            (
                inner.clone(),
                prop::sample::select(vec!["+", "-", "*", "/"]),
                inner,
            )
                .prop_map(|(a, op, b)| format!("({a} {op} {b})"))
        })
    }

    fn truth() -> impl Strategy<Value = String> {
        let compare = prop::sample::select(vec!["<", "<=", ">", ">=", "==", "!="]);
        let leaf = (number(), compare, number()).prop_map(|(a, op, b)| format!("({a} {op} {b})"));
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                inner.clone().prop_map(|a| format!("!{a}")),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} && {b})")),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} || {b})")),
                (inner.clone(), inner.clone(), inner)
                    .prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_means_what_cel_says(text in truth()) {
            prop_assert_eq!(is_kept(&text), by_cel(&text), "{}", text);
        }
    }
}
