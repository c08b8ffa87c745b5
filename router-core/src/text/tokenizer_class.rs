//! Which tokenizer class an engine loads, and what the class makes of `tokenizer.json`.
//!
//! Engines load tokenizers through transformers 5, whose classes fall into two kinds. One takes `tokenizer.json` as it stands. The
//! other takes vocabulary and merges from it, and builds normalizer and pre-tokenizer anew: then the file's own are not in force.
//! Which class it is follows from `tokenizer_class` in `tokenizer_config.json` and `model_type` in config.json.
//!
//! Every row here was read in transformers 5.16 to 5.19 (the releases that vLLM 0.32 allows) and checked by loading with 5.19.0.

mod model_types;
mod rebuilt;

use super::canonical::{LeadingSpace, NormalForm};
use super::tokenizer_file::{ModelConfig, Spelling, TokenizerConfig};

/// What becomes of `tokenizer.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pipeline {
    /// It is used as it stands.
    File,
    /// Its vocabulary, merges and (mostly) post-processor are used, the rest is the class's own.
    Rebuilt(Rebuilt),
    /// The class makes something else of it that is not followed here.
    Unknown {
        /// Why not.
        why: &'static str,
    },
}

/// A pipeline that a class builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rebuilt {
    /// Its name.
    pub(super) class: &'static str,
    /// How pieces spell bytes. A vocabulary of the other kind would lose most text.
    pub(super) spelling: Spelling,
    /// Whether there is a normalizer at all.
    pub(super) normalizes: bool,
    pub(super) normal_form: Option<NormalForm>,
    pub(super) leading_space: Option<LeadingSpace>,
    /// Another rule for spaces that other releases follow, where the files don't decide.
    pub(super) other_leading_space: Option<LeadingSpace>,
    pub(super) post: Post,
    /// Special tokens that the class has where `tokenizer_config.json` names none.
    pub(super) special_tokens: &'static [(&'static str, &'static str)],
    /// Whether named special tokens lose the flags they have in `tokenizer_config.json`.
    pub(super) plain_special_tokens: bool,
}

/// What is put around text when special tokens are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Post {
    /// What the post-processor of tokenizer.json says.
    File,
    /// Nothing.
    Nothing,
    /// The begin token before it.
    Begin,
}

/// What the class that is loaded for these files does.
pub(super) fn pipeline(model: &ModelConfig, config: &TokenizerConfig) -> Pipeline {
    if config.has_own_code() {
        return Pipeline::Unknown {
            why: "the model brings tokenizer code of its own",
        };
    }
    let model_type = model.model_type.as_deref().unwrap_or_default();
    let named = config
        .tokenizer_class
        .as_deref()
        .or(model.tokenizer_class.as_deref())
        .map(|name| name.strip_suffix("Fast").unwrap_or(name));
    match model_types::class(model_type, named) {
        Some(class) => rebuilt::by_class(class, model, config),
        None => Pipeline::File,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(model_type: &str, tokenizer_class: &str) -> &'static str {
        let model = ModelConfig::read(&format!(r#"{{"model_type":"{model_type}"}}"#)).unwrap();
        let config = match tokenizer_class {
            "" => "{}".to_owned(),
            class => format!(r#"{{"tokenizer_class":"{class}"}}"#),
        };
        match pipeline(&model, &TokenizerConfig::read(&config).unwrap()) {
            Pipeline::File => "file",
            Pipeline::Rebuilt(rebuilt) => rebuilt.class,
            Pipeline::Unknown { .. } => "unknown",
        }
    }

    #[test]
    fn the_class_follows_from_both_configurations() {
        // Each right side is what AutoTokenizer of transformers 5.19.0 loaded; "file" stands for TokenizersBackend.
        for (model_type, named, expected) in [
            ("llama", "LlamaTokenizer", "LlamaTokenizer"),
            ("llama", "PreTrainedTokenizerFast", "file"),
            ("llama", "GPT2Tokenizer", "GPT2Tokenizer"),
            ("llama", "NoSuchTokenizer", "file"),
            ("llama", "", "file"),
            ("llama4", "PreTrainedTokenizer", "file"),
            ("mistral", "LlamaTokenizer", "file"),
            ("mistral", "", "file"),
            ("mistral3", "LlamaTokenizerFast", "file"),
            ("mixtral", "LlamaTokenizer", "file"),
            ("phi3", "LlamaTokenizer", "file"),
            ("phi", "CodeGenTokenizer", "CodeGenTokenizer"),
            ("qwen2", "LlamaTokenizerFast", "Qwen2Tokenizer"),
            ("qwen2", "", "Qwen2Tokenizer"),
            ("qwen3", "LlamaTokenizerFast", "LlamaTokenizer"),
            ("qwen3", "PreTrainedTokenizerFast", "file"),
            ("qwen3", "Qwen2TokenizerFast", "Qwen2Tokenizer"),
            ("qwen3", "", "Qwen2Tokenizer"),
            ("qwen3_5", "Qwen2Tokenizer", "Qwen3_5Tokenizer"),
            ("qwen3_5", "", "Qwen3_5Tokenizer"),
            ("deepseek_v3", "LlamaTokenizerFast", "file"),
            ("gemma3", "LlamaTokenizer", "LlamaTokenizer"),
            ("gemma3", "", "GemmaTokenizer"),
            ("glm4", "PreTrainedTokenizerFast", "file"),
            ("gpt_oss", "PreTrainedTokenizerFast", "file"),
            ("granite", "GPT2Tokenizer", "file"),
            ("internlm2", "InternLM2Tokenizer", "file"),
            ("starcoder2", "GPT2Tokenizer", "GPT2Tokenizer"),
            ("stablelm", "GPTNeoXTokenizerFast", "file"),
            ("olmo2", "GPT2Tokenizer", "file"),
            ("exaone4", "GPT2Tokenizer", "GPT2Tokenizer"),
            ("cohere2", "CohereTokenizerFast", "CohereTokenizer"),
            ("cohere2", "", "CohereTokenizer"),
            ("whisper", "WhisperTokenizer", "unknown"),
        ] {
            assert_eq!(class(model_type, named), expected, "{model_type} {named}");
        }
    }

    #[test]
    fn tokenizer_code_of_the_model_is_not_followed() {
        let config =
            |map: &str| TokenizerConfig::read(&format!(r#"{{"auto_map":{map}}}"#)).unwrap();
        for map in [r#"{"AutoTokenizer":["a.B",null]}"#, r#"["a.B",null]"#] {
            assert!(matches!(
                pipeline(&ModelConfig::default(), &config(map)),
                Pipeline::Unknown { .. }
            ));
        }
        assert_eq!(
            pipeline(&ModelConfig::default(), &config(r#"{"AutoConfig":"a.B"}"#)),
            Pipeline::File
        );
    }

    #[test]
    fn llama_puts_spaces_as_its_configuration_says() {
        let spaces = |model: &ModelConfig, config: &str| {
            let config = TokenizerConfig::read(config).unwrap();
            match rebuilt::by_class("LlamaTokenizer", model, &config) {
                Pipeline::Rebuilt(rebuilt) => (rebuilt.leading_space, rebuilt.other_leading_space),
                other => panic!("{other:?}"),
            }
        };
        let given = ModelConfig::read("{}").unwrap();
        let (first, every) = (
            Some(LeadingSpace::FirstUnlessPresent),
            Some(LeadingSpace::UnlessPresent),
        );
        assert_eq!(spaces(&given, r#"{"legacy":true}"#), (every, None));
        assert_eq!(spaces(&given, r#"{"legacy":false}"#), (first, None));
        assert_eq!(spaces(&given, "{}"), (first, every));
        assert_eq!(spaces(&ModelConfig::default(), "{}"), (every, first));
        assert_eq!(
            spaces(&given, r#"{"add_prefix_space":false}"#),
            (None, None)
        );
    }
}
