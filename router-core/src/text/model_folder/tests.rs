use super::*;
use crate::text::canonical::{LeadingSpace, NormalForm};

const BYTE_LEVEL: &str =
    r#"{"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{},"merges":[]}}"#;
const LLAMA_2: &str = r#"{"decoder":{"type":"Fuse"},"model":{"type":"BPE","vocab":{},"merges":[],"unk_token":"<unk>","byte_fallback":true},
    "normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
    "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{}}}"#;

fn folder<'a>(tokenizer: &'a str, config: &'a str) -> ModelFolder<'a> {
    ModelFolder::from(ModelFiles {
        tokenizer_json: tokenizer,
        tokenizer_config_json: config,
        chat_template: None,
    })
}

fn with_type<'a>(folder: ModelFolder<'a>, config_json: &'a str) -> ModelFolder<'a> {
    ModelFolder {
        config_json: Some(config_json),
        ..folder
    }
}

/// Leading space and begin text of each variant.
fn rules(folder: &ModelFolder<'_>) -> Vec<(Option<LeadingSpace>, String)> {
    folder
        .variants()
        .unwrap()
        .into_iter()
        .map(|variant| {
            let [before, _] = variant.profile.surrounding;
            (variant.profile.canonicalisation.leading_space, before)
        })
        .collect()
}

#[test]
fn a_clear_tokenizer_has_one_variant() {
    let variants = folder(BYTE_LEVEL, "{}").variants().unwrap();
    assert_eq!(variants.len(), 1);
}

#[test]
fn llama_2_may_be_spelled_in_three_ways_with_and_without_begin() {
    use LeadingSpace::{Always, FirstUnlessPresent, UnlessPresent};
    let folder = folder(
        LLAMA_2,
        r#"{"tokenizer_class":"LlamaTokenizer","bos_token":"<s>","add_bos_token":true}"#,
    );
    let with_begin = |space| (Some(space), "<s>".to_owned());
    let without = |space| (Some(space), String::new());
    assert_eq!(
        rules(&with_type(folder, r#"{"model_type":"llama"}"#)),
        [
            with_begin(FirstUnlessPresent),
            with_begin(UnlessPresent),
            with_begin(Always),
            without(FirstUnlessPresent),
            without(UnlessPresent),
            without(Always),
        ]
    );
    // Mistral's are taken as the file has them.
    assert_eq!(
        rules(&with_type(folder, r#"{"model_type":"mistral"}"#)),
        [with_begin(Always), without(Always)]
    );
}

#[test]
fn a_corrected_class_changes_the_rules() {
    let folder = folder(BYTE_LEVEL, r#"{"tokenizer_class":"LlamaTokenizerFast"}"#);
    let forms = |model_type: &str| -> Vec<Option<NormalForm>> {
        let config = format!(r#"{{"model_type":"{model_type}"}}"#);
        let variants = with_type(folder, &config).variants().unwrap();
        variants
            .iter()
            .map(|variant| variant.profile.canonicalisation.normal_form)
            .collect()
    };
    assert_eq!(forms("qwen2")[..2], [Some(NormalForm::Nfc), None]);
    assert_eq!(forms("deepseek_v3"), [None]);
}

#[test]
fn special_tokens_of_the_class_reach_the_template() {
    let tokens = |config: &str| {
        let variants = folder(BYTE_LEVEL, config).variants().unwrap();
        variants[0]
            .profile
            .special_tokens
            .clone()
            .into_iter()
            .collect::<Vec<_>>()
    };
    let named = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    // As transformers 5.19.0 gives them to the template.
    assert_eq!(
        tokens(
            r#"{"tokenizer_class":"Qwen2Tokenizer","eos_token":{"content":"<e>"},"pad_token":null,"image_token":"<img>","audio_token":{"content":"x"},
            "extra_special_tokens":{"video_token":"<vid>"},"add_bos_token":true}"#
        ),
        [
            named("eos_token", "<e>"),
            named("image_token", "<img>"),
            named("unk_token", "<|endoftext|>"),
            named("video_token", "<vid>"),
        ]
    );
    assert_eq!(tokens(r#"{"extra_special_tokens":["<x>"]}"#), []);
}

#[test]
fn the_processor_s_template_serves_requests_without_tools() {
    let base = folder(BYTE_LEVEL, r#"{"chat_template":"own"}"#);
    let templates = |folder: &ModelFolder<'_>| {
        let profile = folder.variants().unwrap().remove(0).profile;
        [profile.template, profile.tool_template].map(|template| template.map(|found| found.source))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(templates(&base), [some("own"), None]);
    let processor = ModelFolder {
        processor_template_json: Some(r#"{"chat_template":"processor"}"#),
        ..base
    };
    assert_eq!(templates(&processor), [some("processor"), some("own")]);
    let given = ModelFolder {
        files: ModelFiles {
            chat_template: Some("given"),
            ..processor.files
        },
        ..processor
    };
    assert_eq!(templates(&given), [some("given"), None]);
}

#[test]
fn flags_of_the_server_reach_the_profile() {
    let server = ServerFlags {
        content_format: Some(ContentFormat::OpenAi),
        default_kwargs: Some(r#"{"a":1}"#),
        exclude_tools_when_tool_choice_none: true,
        tokenizer_mode: None,
    };
    let base = folder(BYTE_LEVEL, r#"{"chat_template":"t"}"#);
    let profile = ModelFolder { server, ..base }
        .variants()
        .unwrap()
        .remove(0)
        .profile;
    assert_eq!(
        profile.template.unwrap().content_format,
        ContentFormat::OpenAi
    );
    assert_eq!(profile.default_kwargs.unwrap(), r#"{"a":1}"#);
    assert!(profile.exclude_tools_when_tool_choice_none);
    let server = ServerFlags {
        tokenizer_mode: Some("mistral"),
        ..ServerFlags::default()
    };
    assert!(matches!(
        ModelFolder { server, ..base }.variants(),
        Err(ProfileError::Renderer { .. })
    ));
}

#[test]
fn a_template_that_only_the_engine_has_is_no_guess() {
    let base = folder(BYTE_LEVEL, "{}");
    let with = |config| with_type(base, config).variants();
    assert!(matches!(
        with(r#"{"model_type":"minicpmv"}"#),
        Err(ProfileError::Renderer { .. })
    ));
    assert!(with(r#"{"model_type":"llama"}"#).is_ok());
}
