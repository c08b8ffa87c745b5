//! Chats through fixed templates: text or a reason, the same each time.

use std::sync::LazyLock;

use prefixway_core::text::{
    Api, LocalTime, MAX_PROMPT_BYTES, ModelFiles, PromptProfile, Prompter, parse,
};

const TEMPLATES: [&str; 8] = [
    include_str!("../../tests/conformance/templates/chatml_tools.jinja"),
    include_str!("../../tests/conformance/templates/content_parts.jinja"),
    include_str!("../../tests/conformance/templates/filters.jinja"),
    include_str!("../../tests/conformance/templates/macros.jinja"),
    include_str!("../../tests/conformance/templates/strings.jinja"),
    include_str!("../../tests/conformance/templates/think_blocks.jinja"),
    include_str!("../../tests/conformance/templates/tool_xml.jinja"),
    include_str!("../../tests/fixtures/vllm/llama3_1/model/chat_template.jinja"),
];

const TOKENIZER: &str = r#"{"added_tokens":[],"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{},"merges":[]}}"#;

static PROMPTERS: LazyLock<Vec<Prompter>> = LazyLock::new(|| {
    TEMPLATES
        .iter()
        .map(|template| {
            let profile = PromptProfile::from_model_files(&ModelFiles {
                tokenizer_json: TOKENIZER,
                tokenizer_config_json: r#"{"bos_token":"<s>","eos_token":"</s>"}"#,
                chat_template: Some(template),
            });
            Prompter::try_new(profile.unwrap()).unwrap().keep_rendered()
        })
        .collect()
});

/// The first byte picks template and API, the others are the body.
pub(crate) fn check(data: &[u8]) {
    let Some((&first, body)) = data.split_first() else {
        return;
    };
    let prompter = &PROMPTERS[usize::from(first) % PROMPTERS.len()];
    let apis = [
        Api::Chat,
        Api::Chat,
        Api::Messages,
        Api::Responses,
        Api::Tokenize,
    ];
    let api = apis[usize::from(first) / PROMPTERS.len() % apis.len()];
    let Ok(request) = parse(api, body) else {
        return;
    };
    let now = LocalTime::from_date(2026, 1, 1);
    let prompts = prompter.prompts(&request, now);
    assert_eq!(prompts, prompter.prompts(&request, now));
    for prompt in prompts.into_iter().flatten() {
        assert!(prompt.text.len() <= MAX_PROMPT_BYTES + 64);
        if prompt.rendered.is_some() {
            assert!(std::str::from_utf8(&prompt.text).is_ok());
        }
    }
}
