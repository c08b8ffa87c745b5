//! The pipelines that tokenizer classes build, and the special tokens that they have of their own.

use super::{Pipeline, Post, Rebuilt};
use crate::text::canonical::{LeadingSpace, NormalForm};
use crate::text::tokenizer_file::{ModelConfig, Spelling, TokenizerConfig};

/// Classes that put `add_prefix_space`'s space before each word.
const SPACE_BEFORE_WORDS: [&str; 3] = ["CohereTokenizer", "Qwen2Tokenizer", "Qwen3_5Tokenizer"];

/// Classes that build pipelines of other kinds: with lower case, for speech, for encoders.
const NOT_FOLLOWED: &str = "\
    BartTokenizer BlenderbotTokenizer CLIPTokenizer DebertaTokenizer EsmcTokenizer HerbertTokenizer LayoutLMv3Tokenizer LEDTokenizer \
    LukeTokenizer MarkupLMTokenizer MvpTokenizer NllbTokenizer NougatTokenizer OpenAIGPTTokenizer ReformerTokenizer RobertaTokenizer \
    SeamlessM4TTokenizer Siglip2Tokenizer Tipsv2Tokenizer WhisperTokenizer";

/// What a class does, by its name without `Fast`. A name that transformers does not know stands for the generic class.
pub(super) fn by_class(class: &str, model: &ModelConfig, config: &TokenizerConfig) -> Pipeline {
    let unknown = |why| Pipeline::Unknown { why };
    if config.add_prefix_space == Some(true) && SPACE_BEFORE_WORDS.contains(&class) {
        return unknown("with add_prefix_space it puts spaces inside of text");
    }
    if NOT_FOLLOWED
        .split_ascii_whitespace()
        .any(|found| found == class)
    {
        return unknown("its tokenizer class builds a pipeline that is not followed");
    }
    let nfc = Some(NormalForm::Nfc);
    let byte_level = |class, form, tokens| byte_level(class, form, config, tokens);
    Pipeline::Rebuilt(match class {
        "LlamaTokenizer" => llama(model, config),
        "CodeLlamaTokenizer" => code_llama(config),
        "GemmaTokenizer" => GEMMA,
        "Qwen2Tokenizer" => Rebuilt {
            plain_special_tokens: true,
            ..byte_level("Qwen2Tokenizer", nfc, &QWEN_TOKENS)
        },
        "Qwen3_5Tokenizer" => byte_level("Qwen3_5Tokenizer", nfc, &QWEN_TOKENS),
        "GPT2Tokenizer" => byte_level("GPT2Tokenizer", None, &GPT2_TOKENS),
        "CodeGenTokenizer" => byte_level("CodeGenTokenizer", None, &GPT2_TOKENS),
        "CohereTokenizer" => byte_level("CohereTokenizer", nfc, &COHERE_TOKENS),
        "GPTNeoXTokenizer" => Rebuilt {
            post: Post::Nothing,
            ..byte_level("GPTNeoXTokenizer", nfc, &NEOX_TOKENS)
        },
        _ => return Pipeline::File,
    })
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
    special_tokens: SpecialTokens,
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

/// Names and literals.
type SpecialTokens = &'static [(&'static str, &'static str)];

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
