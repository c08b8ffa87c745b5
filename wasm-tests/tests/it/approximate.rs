//! Models whose engine text is not known.

use std::time::Duration;

use prefixway_core::text::PromptProfile;
use prefixway_wasm_tests::Rig;
use prefixway_wasm_tests::indexer::Indexer;
use prefixway_wasm_tests::rig::{CONFIG, ENGINES, chat, destination};

#[test]
fn turns_of_one_conversation_of_an_approximate_model_go_to_one_endpoint() {
    let mut indexer = Indexer::new(&ENGINES);
    indexer.spell(PromptProfile::outline(), "approximate");
    let mut rig = Rig::with(CONFIG, indexer);
    let mut chosen = Vec::new();
    for conversation in 0..6 {
        let body = chat(&format!("conversation {conversation}"), 500);
        let first = rig.chat(1, &body);
        let endpoint = destination(&first).unwrap().to_owned();
        rig.answer(1, &first, 0);
        // Ticks carry the decision to the other worker.
        rig.run(Duration::from_millis(30));
        let mut body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(serde_json::json!({"role": "assistant", "content": "yes"}));
        messages.push(serde_json::json!({"role": "user", "content": "and now?"}));
        let second = rig.chat(2, &body.to_string());
        assert_eq!(destination(&second), Some(endpoint.as_str()));
        rig.answer(2, &second, 0);
        chosen.push(endpoint);
    }
    // First turns had no prefix anywhere, second turns had one from the decision alone.
    for reason in ["no_prefix", "prefix"] {
        let metric = format!("prefixway_decisions_total.reason={reason}");
        assert_eq!(rig.host.metric(&metric), 6, "{reason}");
    }
    chosen.sort();
    chosen.dedup();
    assert!(chosen.len() > 1, "{chosen:?}");
    rig.assert_healthy();
}
