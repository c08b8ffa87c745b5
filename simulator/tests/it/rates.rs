//! Rates learned from replies of simulated engines.

use prefixway_core::schedule::rates::{Learner, Observation};
use prefixway_core::snapshot::EndpointKey;
use prefixway_simulator::rng::Rng;
use prefixway_simulator::simulation::run;
use prefixway_simulator::trace::Trace;
use prefixway_simulator::workload::Workload;

use crate::policies::unequal;

/// Prompts of 128 to 8,191 tokens that share nothing, four a second.
fn unlike_prompts() -> Trace {
    let mut rng = Rng::new(11, 0);
    let lines: Vec<String> = (0..2_500u64)
        .map(|request| {
            let tokens = 128 + rng.below(8_064);
            let ids: Vec<u64> = (0..u64::from(tokens.div_ceil(512))).map(|block| 100 * request + block).collect();
            format!(r#"{{"timestamp": {}, "input_length": {tokens}, "output_length": 100, "hash_ids": {ids:?}}}"#, 250 * request)
        })
        .collect();
    Trace::from_text("unlike", &lines.join("\n")).unwrap()
}

#[test]
fn the_true_rates_are_found_within_200_requests_of_each_endpoint() {
    let setup = unequal();
    let trace = unlike_prompts();
    for seed in 1..=3 {
        let work = Workload::new(&trace, 64, seed);
        let run = run(&work, &setup, "prefixway:rates=blind".parse().unwrap(), 1.0);
        let mut replies: Vec<_> = run.served.iter().collect();
        replies.sort_by_key(|of| of.sent_us + of.ttft_us);
        let mut learner = Learner::default();
        let classes: Vec<_> = setup.endpoints().collect();
        let mut seen = vec![0; classes.len()];
        let mut now_ms = 0;
        for of in replies {
            let endpoint = of.endpoint as usize;
            if seen[endpoint] == 200 {
                continue;
            }
            seen[endpoint] += 1;
            now_ms = (of.sent_us + of.ttft_us) / 1_000;
            let observation = Observation {
                now_ms,
                ttft_ms: of.ttft_us / 1_000,
                uncached_tokens: of.uncached_tokens,
                queued_tokens: of.queued_tokens,
            };
            learner.observe(
                EndpointKey(endpoint as u64),
                &classes[endpoint].name,
                &observation,
            );
        }
        for (endpoint, class) in classes.iter().enumerate() {
            assert!(seen[endpoint] > 20, "{seen:?}");
            let rate = learner.rate(EndpointKey(endpoint as u64), &class.name, 8_000.0, now_ms);
            let factor = rate / class.prefill_tokens_per_s;
            assert!(
                (0.9..1.1).contains(&factor),
                "seed {seed}: {} {rate} after {}",
                class.name,
                seen[endpoint]
            );
        }
    }
}
