//! Modes by configuration, route and policy, and experiments.

use std::collections::HashMap;

use prefixway_core::proto::RouteMode;
use prefixway_wasm_tests::rig::{CONFIG, ENGINES, chat, destination};
use prefixway_wasm_tests::{Indexer, Outcome, Rig};

const MODE: &str = "xds.route_metadata.filter_metadata.prefixway.mode";
const NAME: &str = "xds.route_name";

fn send(rig: &mut Rig, vm: usize, body: &str, properties: &[(&str, &str)]) -> Outcome {
    let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
    let request = rig.host.vm(vm).request(&headers);
    let request = properties.iter().fold(request, |request, (path, value)| {
        request.property(path, value)
    });
    request.chunk(body).end()
}

fn set(rig: &mut Rig, change: impl FnOnce(&mut Indexer)) {
    change(&mut rig.indexer);
    rig.indexer.announce(&mut rig.host);
    rig.settle();
}

#[test]
fn a_route_can_be_more_careful_than_the_rest_and_never_less() {
    let mut rig = Rig::new();
    for (policy, route, steers, decides) in [
        ("on", None, true, true),
        ("on", Some("on"), true, true),
        ("on", Some("shadow"), false, true),
        ("on", Some("off"), false, false),
        ("on", Some("sideways"), false, true),
        ("shadow", Some("on"), false, true),
        ("off", Some("on"), false, false),
    ] {
        set(&mut rig, |indexer| indexer.policy.mode = policy.to_owned());
        let heard = rig.indexer.heard.routed.len();
        let properties: Vec<(&str, &str)> = route.iter().map(|mode| (MODE, *mode)).collect();
        let outcome = send(&mut rig, 1, &chat("route", 100), &properties);
        rig.answer(1, &outcome, 0);
        rig.settle();
        let case = format!("policy {policy}, route {route:?}");
        assert_eq!(destination(&outcome).is_some(), steers, "{case}");
        assert_eq!(outcome.paused, decides, "{case}");
        assert_eq!(rig.indexer.heard.routed.len() > heard, decides, "{case}");
    }
    rig.assert_healthy();
}

#[test]
fn the_policy_names_routes_and_changes_while_requests_come() {
    let mut rig = Rig::new();
    let route = |mode: &str| RouteMode {
        route: "chat".to_owned(),
        mode: mode.to_owned(),
        split_percent: 100,
    };
    for (all, chat_route, steers) in [
        ("on", "off", (false, true)),
        ("off", "on", (true, false)),
        ("shadow", "split", (true, false)),
        ("on", "shadow", (false, true)),
    ] {
        set(&mut rig, |indexer| {
            indexer.policy.mode = all.to_owned();
            indexer.policy.routes = vec![route(chat_route)];
        });
        let mut goes = |name: &str| {
            let outcome = send(&mut rig, 1, &chat("named", 100), &[(NAME, name)]);
            destination(&outcome).is_some()
        };
        assert_eq!((goes("chat"), goes("other")), steers, "{all}, {chat_route}");
    }
    rig.assert_healthy();
}

#[test]
fn a_configuration_that_is_off_stays_off() {
    let off = CONFIG.replace("\"explain\"", "\"mode\":\"off\",\"explain\"");
    let mut rig = Rig::with(&off, Indexer::new(&ENGINES));
    let outcome = send(&mut rig, 1, &chat("off", 100), &[(MODE, "on")]);
    assert!(!outcome.paused && destination(&outcome).is_none());
}

/// Sends a turn of a session; whether it was steered.
fn turn(rig: &mut Rig, vm: usize, session: Option<&str>, body: &str) -> bool {
    let mut headers = vec![(":method", "POST"), (":path", "/v1/chat/completions")];
    headers.extend(session.map(|name| ("x-session", name)));
    let outcome = rig.host.vm(vm).request(&headers).chunk(body).end();
    rig.answer(vm, &outcome, 16);
    destination(&outcome).is_some()
}

#[test]
fn sessions_stay_in_their_arm_in_every_vm_and_more_percent_only_add_some() {
    let mut rig = Rig::new();
    set(&mut rig, |indexer| {
        indexer.policy.mode = "split".to_owned();
        indexer.policy.split_percent = 40;
        indexer.policy.session_header = "x-session".to_owned();
    });
    let body = |text: &str, user: &str| {
        let message = serde_json::json!({"role": "user", "content": text});
        serde_json::json!({"model": "tiny", "messages": [message], "user": user}).to_string()
    };
    let long = "the same beginning of a prompt, and more of it. ".repeat(20);
    let mut arms = HashMap::new();
    for number in 0..60 {
        let name = format!("session {number}");
        // By header; by the body's user; by how the prompt begins.
        let own = format!("{number} {long}");
        let keys = [
            (Some(name.as_str()), body(&long, "somebody")),
            (None, body(&long, &name)),
            (None, chat(&own, 300)),
        ];
        for (way, (header, body)) in keys.iter().enumerate() {
            let arm = turn(&mut rig, 1, *header, body);
            assert_eq!(turn(&mut rig, 2, *header, body), arm, "{name}, way {way}");
            arms.insert((number, way), arm);
        }
        // The next turn begins alike and goes on.
        assert_eq!(
            turn(&mut rig, 2, None, &chat(&own, 400)),
            arms[&(number, 2)]
        );
    }
    for way in 0..3 {
        let steered = (0..60).filter(|number| arms[&(*number, way)]).count();
        assert!((12..=36).contains(&steered), "way {way}: {steered} of 60");
    }
    assert!(
        (0..60).all(|number| arms[&(number, 0)] == arms[&(number, 1)]),
        "one name, one key"
    );
    rig.settle();
    let [steered, control] = ["steered", "control"].map(|arm| {
        let of = |name: &str| {
            rig.host
                .metric(&format!("prefixway_split_{name}.arm={arm}"))
        };
        (
            of("requests_total"),
            of("prompt_tokens_total"),
            of("cached_tokens_total"),
        )
    });
    assert_eq!(steered.0 + control.0, 60 * 7);
    for (requests, prompt, cached) in [steered, control] {
        assert_eq!((prompt, cached), (500 * requests, 16 * requests));
    }
    set(&mut rig, |indexer| indexer.policy.split_percent = 70);
    for number in 0..60 {
        let name = format!("session {number}");
        let arm = turn(&mut rig, 1, Some(&name), &body(&long, "somebody"));
        assert!(arm || !arms[&(number, 0)], "{name}");
    }
    rig.assert_healthy();
}
