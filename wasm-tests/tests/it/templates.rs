//! Templates that follow what a client sends: however deep it nests and however much they make of it, the filter never traps.

use prefixway_core::text::{ModelFiles, PromptProfile};
use prefixway_wasm_tests::{Indexer, Rig, rig};

/// Walks through the parameters of tools by a macro that calls itself, dumps them, and cuts contents up.
const TEMPLATE: &str = "{% macro walk(of, depth) %}{% for key, value in of.items() %}{{ key }}{% if value is mapping %}({{ walk(value, depth + 1) }}){% else %}{{ depth }}{% endif %}{% endfor %}{% endmacro %}\
    {% for tool in tools or [] %}{{ walk(tool, 0) }}{{ tool | tojson(indent=4) }}{% endfor %}\
    {% for m in messages %}{{ m.content.split('|')[-1] }}{{ m.content.split('|') | length }}{% endfor %}";

fn rig() -> Rig {
    let profile = PromptProfile::from_model_files(&ModelFiles {
        tokenizer_json: r#"{"added_tokens":[],"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{},"merges":[]}}"#,
        tokenizer_config_json: "{}",
        chat_template: Some(TEMPLATE),
    });
    let mut indexer = Indexer::new(&rig::ENGINES);
    indexer.spell(profile.unwrap(), "precise");
    Rig::with(rig::CONFIG, indexer)
}

fn chat(parameters: &str, content: &str) -> String {
    format!(
        r#"{{"model":"tiny","messages":[{{"role":"user","content":"{content}"}}],"tools":[{{"type":"function","function":{{"name":"f","parameters":{parameters}}}}}]}}"#
    )
}

fn nested(open: &str, inner: &str, close: &str, depth: usize) -> String {
    format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn what_clients_nest_and_repeat_traps_no_template() {
    let mut rig = rig();
    for depth in [1, 10, 60, 120, 250, 500, 508] {
        let parameters = nested(r#"{"a":"#, "1", "}", depth);
        let outcome = rig.chat(1, &chat(&parameters, "x"));
        assert_eq!(
            (outcome.trap.as_deref(), outcome.forwarded),
            (None, true),
            "{depth}"
        );
        rig.answer(1, &outcome, 0);
    }
    for (parameters, content) in [
        // 400 KB of which indentation makes 400 MB.
        (
            format!(
                r#"{{"a":{}}}"#,
                nested("[", &format!("{}1", "1,".repeat(200_000)), "]", 495)
            ),
            String::new(),
        ),
        ("{}".to_owned(), "|".repeat(4 << 20)),
    ] {
        let outcome = rig.chat(2, &chat(&parameters, &content));
        assert_eq!((outcome.trap.as_deref(), outcome.forwarded), (None, true));
        rig.answer(2, &outcome, 0);
    }
    rig.assert_healthy();
}
