//! Slower tiers in a decision.

use super::*;

#[test]
fn a_hit_in_host_memory_costs_what_the_policy_says() {
    let mut proxy = Proxy::new(1);
    proxy.run(20);
    let in_host_memory = proto::Endpoint {
        holders: vec![proto::Holder {
            id: 2,
            tier: "cpu".into(),
        }],
        ..endpoint(2)
    };
    proxy.broadcast(&down(Kind::Endpoints(proto::Endpoints {
        revision: 2,
        endpoints: vec![endpoint(1), in_host_memory, endpoint(3)],
    })));
    proxy.publish(&prompt(1), &[2]);
    proxy.idle_load();
    // 1,600 tokens take 16 ms from there by default, and 400 ms to compute with `beta`.
    let decision = proxy.decide(0, Some(&prompt(1)), 1);
    assert_eq!(decision.reason, Reason::Prefix);
    assert_eq!(decision.choices[0].address, "10.0.0.2:8000");
    assert!((decision.ranking[0].cost_ms - 16.0).abs() < 1e-6);
    for (us_per_token, reason) in [(240.0, Reason::Prefix), (260.0, Reason::LoadOverPrefix)] {
        proxy.broadcast(&down(Kind::Policy(Box::new(proto::Policy {
            cpu_fetch_us_per_token: Some(us_per_token),
            ..policy()
        }))));
        proxy.run(4);
        let decision = proxy.decide(0, Some(&prompt(1)), 1);
        assert_eq!(decision.reason, reason, "{us_per_token} us");
    }
}
