//! Which tokenizer class an engine loads, and what the class makes of `tokenizer.json`.
//!
//! Engines load tokenizers through transformers 5, whose classes fall into two kinds. One takes `tokenizer.json` as it stands. The
//! other takes vocabulary and merges from it, and builds normalizer and pre-tokenizer anew: then the file's own are not in force.
//! Which class it is follows from `tokenizer_class` in `tokenizer_config.json` and `model_type` in config.json.
//!
//! Every row here was read in transformers 5.16 to 5.19 (the releases that vLLM 0.32 allows) and checked by loading with 5.19.0.

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

/// Model types whose tokenizer is `tokenizer.json` as it stands unless `tokenizer_config.json` names the registered class itself.
/// Mistral's are registered with Mistral's own tokenizer, which vLLM switches off for its `hf` tokenizer mode.
const TAKEN_AS_FILE: [&str; 83] = [
    "arctic",
    "aria",
    "bigbird_pegasus",
    "canary",
    "chameleon",
    "chatlm",
    "cohere_asr",
    "deepseek_ocr",
    "deepseek_ocr2",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "deepseek_v4",
    "deepseek_vl",
    "deepseek_vl_hybrid",
    "deepseek_vl_v2",
    "ernie4_5",
    "ernie4_5_moe",
    "flex_olmo",
    "fuyu",
    "glm",
    "glm4",
    "glm4_moe",
    "glm4_moe_lite",
    "glm4v",
    "glm4v_moe",
    "glm_image",
    "glmasr",
    "got_ocr2",
    "gpt_bigcode",
    "granite",
    "granitemoe",
    "granitemoehybrid",
    "granitemoeshared",
    "h2ovl_chat",
    "hyperclovax",
    "hyperclovax_vlm",
    "internlm2",
    "jamba",
    "janus",
    "kimi_k25",
    "kimi_linear",
    "llava",
    "llava_next",
    "mimo_v2_flash",
    "minicpm3",
    "minicpmv",
    "minicpmv4_6",
    "minicpmv4_7",
    "minimax_m2",
    "ministral",
    "ministral3",
    "mistral",
    "mistral3",
    "mixtral",
    "modernbert",
    "modernbert-decoder",
    "molmo",
    "molmo2",
    "nemotron",
    "nvfp4",
    "nystromformer",
    "olmo2",
    "olmo3",
    "olmo_hybrid",
    "opencua",
    "openvla",
    "paddleocr_vl",
    "pegasus_x",
    "persimmon",
    "phi3",
    "phi3_v",
    "phimoe",
    "pix2struct",
    "pixtral",
    "smolvlm",
    "stablelm",
    "step3_vl",
    "step3p5",
    "umt5",
    "vipllava",
    "voxtral",
    "voxtral_realtime",
];

/// Model types for which vLLM itself takes `tokenizer.json` as it stands, whatever class is named.
const TAKEN_AS_FILE_BY_VLLM: [&str; 5] = [
    "internlm2",
    "step3_vl",
    "step3p7",
    "unlimited-ocr",
    "unlimited_ocr",
];

/// Model types whose published `tokenizer_config.json` names a wrong class; the second is taken.
const CORRECTED: [(&str, &str); 6] = [
    ("hyperclovax_vision_v2", "GPT2Tokenizer"),
    ("qwen2", "Qwen2Tokenizer"),
    ("qwen3_5", "Qwen3_5Tokenizer"),
    ("qwen3_5_moe", "Qwen3_5Tokenizer"),
    ("qwen3_5_moe_text", "Qwen3_5Tokenizer"),
    ("qwen4_exp", "Qwen3_5Tokenizer"),
];

/// The class of a model type, used where `tokenizer_config.json` names none.
fn registered(model_type: &str) -> Option<&'static str> {
    Some(match model_type {
        "gemma" | "gemma2" | "gemma3" | "gemma3_text" | "gemma3n" | "gemma3n_text"
        | "diffusion_gemma" | "recurrent_gemma" | "shieldgemma2" | "t5gemma" | "zaya" => {
            "GemmaTokenizer"
        }
        "audioflamingo3" | "colqwen2" | "cosmos3_omni" | "fun_asr_nano" | "hunyuan_vl"
        | "internvl" | "lighton_ocr" | "ovis2" | "qianfan_ocr" | "qwen2" | "qwen2_5_omni"
        | "qwen2_5_vl" | "qwen2_audio" | "qwen2_moe" | "qwen2_vl" | "qwen3" | "qwen3_asr"
        | "qwen3_moe" | "qwen3_next" | "qwen3_omni_moe" | "qwen3_vl" | "qwen3_vl_moe"
        | "vibevoice" => "Qwen2Tokenizer",
        "qwen3_5_text" => "Qwen3_5Tokenizer",
        "aya_vision" | "cohere" | "cohere2" => "CohereTokenizer",
        "code_llama" => "CodeLlamaTokenizer",
        "idefics" | "idefics2" => "LlamaTokenizer",
        "blip-2" | "codegen" | "dbrx" | "emu3" | "gpt2" | "gpt_neo" | "gptj" | "instructblip"
        | "instructblipvideo" | "jais2" | "opt" | "phi" | "starcoder2" => "GPT2Tokenizer",
        "falcon_mamba" | "gpt_neox" | "mamba" | "mamba2" | "mpt" | "olmo" | "olmoe" | "rwkv"
        | "xlstm" => "GPTNeoXTokenizer",
        _ => {
            return CORRECTED
                .iter()
                .find(|(found, _)| *found == model_type)
                .map(|(_, class)| *class);
        }
    })
}

/// What the class that is loaded for these files does.
pub(super) fn pipeline(model: &ModelConfig, config: &TokenizerConfig) -> Pipeline {
    if config.has_own_code() {
        return Pipeline::Unknown {
            why: "the model brings tokenizer code of its own",
        };
    }
    let model_type = model.model_type.as_deref().unwrap_or_default();
    if TAKEN_AS_FILE_BY_VLLM.contains(&model_type) {
        return Pipeline::File;
    }
    let named = config
        .tokenizer_class
        .as_deref()
        .or(model.tokenizer_class.as_deref())
        .map(|name| name.strip_suffix("Fast").unwrap_or(name));
    let corrected = CORRECTED
        .iter()
        .find(|(found, _)| *found == model_type)
        .map(|(_, class)| *class);
    let class = match named {
        Some(_) if TAKEN_AS_FILE.contains(&model_type) => return Pipeline::File,
        // A class without a pipeline of its own is no reason to use the corrected one only where the type's is not corrected.
        Some(named) => corrected.unwrap_or(named),
        None => match registered(model_type) {
            Some(class) => class,
            None => return Pipeline::File,
        },
    };
    of_class(class, model, config)
}

/// Classes that put `add_prefix_space`'s space before each word.
const SPACE_BEFORE_WORDS: [&str; 3] = ["CohereTokenizer", "Qwen2Tokenizer", "Qwen3_5Tokenizer"];

/// What a class does, by its name without `Fast`. A name that transformers does not know stands for the generic class.
fn of_class(class: &str, model: &ModelConfig, config: &TokenizerConfig) -> Pipeline {
    if config.add_prefix_space == Some(true) && SPACE_BEFORE_WORDS.contains(&class) {
        return Pipeline::Unknown {
            why: "with add_prefix_space it puts spaces inside of text",
        };
    }
    let rebuilt = match class {
        "LlamaTokenizer" => llama(model, config),
        "CodeLlamaTokenizer" => code_llama(config),
        "GemmaTokenizer" => GEMMA,
        "Qwen2Tokenizer" => Rebuilt {
            plain_special_tokens: true,
            ..byte_level(
                "Qwen2Tokenizer",
                Some(NormalForm::Nfc),
                config,
                &QWEN_TOKENS,
            )
        },
        "Qwen3_5Tokenizer" => byte_level(
            "Qwen3_5Tokenizer",
            Some(NormalForm::Nfc),
            config,
            &QWEN_TOKENS,
        ),
        "GPT2Tokenizer" => byte_level("GPT2Tokenizer", None, config, &GPT2_TOKENS),
        "CodeGenTokenizer" => byte_level("CodeGenTokenizer", None, config, &GPT2_TOKENS),
        "CohereTokenizer" => byte_level(
            "CohereTokenizer",
            Some(NormalForm::Nfc),
            config,
            &COHERE_TOKENS,
        ),
        "GPTNeoXTokenizer" => Rebuilt {
            post: Post::Nothing,
            ..byte_level(
                "GPTNeoXTokenizer",
                Some(NormalForm::Nfc),
                config,
                &NEOX_TOKENS,
            )
        },
        // They build pipelines of other kinds: with lower case, for speech, for encoders.
        "BartTokenizer"
        | "BlenderbotTokenizer"
        | "CLIPTokenizer"
        | "DebertaTokenizer"
        | "EsmcTokenizer"
        | "HerbertTokenizer"
        | "LayoutLMv3Tokenizer"
        | "LEDTokenizer"
        | "LukeTokenizer"
        | "MarkupLMTokenizer"
        | "MvpTokenizer"
        | "NllbTokenizer"
        | "NougatTokenizer"
        | "OpenAIGPTTokenizer"
        | "ReformerTokenizer"
        | "RobertaTokenizer"
        | "SeamlessM4TTokenizer"
        | "Siglip2Tokenizer"
        | "Tipsv2Tokenizer"
        | "WhisperTokenizer" => {
            return Pipeline::Unknown {
                why: "its tokenizer class builds a pipeline that is not followed",
            };
        }
        _ => return Pipeline::File,
    };
    Pipeline::Rebuilt(rebuilt)
}

/// No normalizer, and Metaspace: it puts a space before the first segment or, with `legacy`, before every one.
fn llama(model: &ModelConfig, config: &TokenizerConfig) -> Rebuilt {
    let (first, every) = (
        Some(LeadingSpace::FirstUnlessPresent),
        Some(LeadingSpace::UnlessPresent),
    );
    let (leading_space, other_leading_space) = match (config.add_prefix_space, config.legacy) {
        (Some(false), _) => (None, None),
        (_, Some(true)) => (every, None),
        (_, Some(false)) => (first, None),
        // Not said: transformers 5 takes it for false, older releases for true. Where config.json is missing, the folder is an
        // excerpt whose tokenizer_config.json may be one too.
        (_, None) if model.is_given => (first, every),
        (_, None) => (every, first),
    };
    Rebuilt {
        class: "LlamaTokenizer",
        spelling: Spelling::SentencePiece,
        normalizes: false,
        normal_form: None,
        leading_space,
        other_leading_space,
        post: Post::File,
        special_tokens: &LLAMA_TOKENS,
        plain_special_tokens: false,
    }
}

fn code_llama(config: &TokenizerConfig) -> Rebuilt {
    Rebuilt {
        class: "CodeLlamaTokenizer",
        spelling: Spelling::SentencePiece,
        normalizes: false,
        normal_form: None,
        leading_space: (config.add_prefix_space != Some(false))
            .then_some(LeadingSpace::FirstUnlessPresent),
        other_leading_space: None,
        post: Post::Begin,
        special_tokens: &CODE_LLAMA_TOKENS,
        plain_special_tokens: false,
    }
}

const GEMMA: Rebuilt = Rebuilt {
    class: "GemmaTokenizer",
    spelling: Spelling::SentencePiece,
    normalizes: true,
    normal_form: None,
    leading_space: None,
    other_leading_space: None,
    post: Post::File,
    special_tokens: &GEMMA_TOKENS,
    plain_special_tokens: false,
};

fn byte_level(
    class: &'static str,
    normal_form: Option<NormalForm>,
    config: &TokenizerConfig,
    special_tokens: &'static [(&'static str, &'static str)],
) -> Rebuilt {
    Rebuilt {
        class,
        spelling: Spelling::ByteLevel,
        normalizes: normal_form.is_some(),
        normal_form,
        leading_space: (config.add_prefix_space == Some(true))
            .then_some(LeadingSpace::UnlessPresent),
        other_leading_space: None,
        post: Post::File,
        special_tokens,
        plain_special_tokens: false,
    }
}

const LLAMA_TOKENS: [(&str, &str); 3] = [
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
];
const CODE_LLAMA_TOKENS: [(&str, &str); 8] = [
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
    ("prefix_token", "▁<PRE>"),
    ("middle_token", "▁<MID>"),
    ("suffix_token", "▁<SUF>"),
    ("eot_token", "▁<EOT>"),
    ("fill_token", "<FILL_ME>"),
];
const GEMMA_TOKENS: [(&str, &str); 5] = [
    ("bos_token", "<bos>"),
    ("eos_token", "<eos>"),
    ("unk_token", "<unk>"),
    ("pad_token", "<pad>"),
    ("mask_token", "<mask>"),
];
const QWEN_TOKENS: [(&str, &str); 3] = [
    ("eos_token", "<|endoftext|>"),
    ("unk_token", "<|endoftext|>"),
    ("pad_token", "<|endoftext|>"),
];
const GPT2_TOKENS: [(&str, &str); 3] = [
    ("bos_token", "<|endoftext|>"),
    ("eos_token", "<|endoftext|>"),
    ("unk_token", "<|endoftext|>"),
];
const NEOX_TOKENS: [(&str, &str); 4] = [
    ("bos_token", "<|endoftext|>"),
    ("eos_token", "<|endoftext|>"),
    ("unk_token", "<|endoftext|>"),
    ("pad_token", "<|padding|>"),
];
const COHERE_TOKENS: [(&str, &str); 7] = [
    ("bos_token", "<BOS_TOKEN>"),
    ("eos_token", "<|END_OF_TURN_TOKEN|>"),
    ("unk_token", "<UNK>"),
    ("pad_token", "<PAD>"),
    ("cls_token", "<CLS>"),
    ("sep_token", "<SEP>"),
    ("mask_token", "<MASK_TOKEN>"),
];

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
            let rebuilt = llama(model, &TokenizerConfig::read(config).unwrap());
            (rebuilt.leading_space, rebuilt.other_leading_space)
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
