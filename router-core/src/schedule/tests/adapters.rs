//! What loading an adapter costs.

use super::*;

#[test]
fn an_adapter_that_would_have_to_be_loaded_costs_its_time() {
    let adapters = |name: &str, running: &[&str], waiting: &[&str], max_adapters| proto::Endpoint {
        running_adapters: running.iter().map(|&name| name.to_owned()).collect(),
        waiting_adapters: waiting.iter().map(|&name| name.to_owned()).collect(),
        max_adapters,
        ..endpoint(name)
    };
    let told = endpoints(vec![
        adapters("has", &["a", "x"], &[], 2),
        adapters("soon", &["x"], &["a"], 2),
        adapters("room", &["x"], &[], 2),
        adapters("taken", &["x", "y"], &[], 2),
        endpoint("silent"),
    ]);
    let cost = costing(Cost {
        adapter_load_ms: 80.0,
        output_tokens: 10,
        decode_ms_per_token: 30.0,
        ..Cost::default()
    });
    let of = |endpoints: &Endpoints, adapter| {
        let all = candidates(endpoints, &[(0, load(0, 0)); 5]);
        let need = Need { adapter, ..need() };
        let ranking = cost.rank(&all, &need, 1);
        let ttft = |of: &Explanation| (of.address.clone(), whole(of.ttft_ms) - 1_000);
        ranking.iter().map(ttft).collect::<Vec<_>>()
    };
    let mut wanted = of(&told, Some("a"));
    // Equals are in any order.
    wanted.sort_by_key(|(name, ms)| (*ms, name.clone()));
    let names = ["has", "soon", "room", "silent", "taken"].map(str::to_owned);
    let times = [0, 40, 80, 80, 80 + 300 / 2];
    assert_eq!(wanted, names.into_iter().zip(times).collect::<Vec<_>>());
    assert!(of(&told, None).iter().all(|(_, ms)| *ms == 0));
    let silent = endpoints((0..5).map(|at| endpoint(&format!("e{at}"))).collect());
    assert!(of(&silent, Some("a")).iter().all(|(_, ms)| *ms == 0));

    // What it holds of the prompt is worth more than the adapter where it is worth more time, and else not.
    let first = |cached, adapter_load_ms| {
        let all = candidates(
            &told,
            &[
                (0, load(0, 0)),
                (0, load(0, 0)),
                (cached, load(0, 0)),
                (0, load(0, 0)),
                (0, load(0, 0)),
            ],
        );
        let need = Need {
            adapter: Some("a"),
            ..need()
        };
        let cost = costing(Cost {
            adapter_load_ms,
            ..Cost::default()
        });
        cost.rank(&all, &need, 1)[0].address.clone()
    };
    assert_eq!(first(100, 80.0), "room", "200 ms of two beats 80");
    assert_eq!(first(100, 400.0), "has");
    assert_eq!(first(0, 80.0), "has");
}
