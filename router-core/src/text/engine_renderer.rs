//! Whether an engine renders a model's chats through its Jinja template.
//!
//! Follows vLLM 0.32: the tokenizer mode comes from `--tokenizer-mode`, else from the architecture in config.json (`config/model.py`),
//! else from the files of the folder (`tokenizers/registry.py`), and names the renderer (`renderers/registry.py`). Models of type
//! `gpt_oss` go through Harmony whatever the mode (`renderers/online_renderer.py`).

use super::error::ProfileError;
use super::tokenizer_file::ModelConfig;

/// Tokenizer modes with a renderer that is no template, and what they do.
const NATIVE: [(&str, &str); 10] = [
    ("cohere", "Cohere's own renderer makes the prompt"),
    (
        "deepseek_v32",
        "DeepSeek V3.2's own encoding makes the prompt",
    ),
    ("deepseek_v4", "DeepSeek V4's own encoding makes the prompt"),
    (
        "deepseek_v41",
        "DeepSeek V4.1's own encoding makes the prompt",
    ),
    (
        "inkling",
        "Inkling's own renderer makes token ids, not text",
    ),
    ("kimi_audio", "Kimi Audio has a tokenizer of its own"),
    ("kimi_k3", "Kimi K3's own renderer makes the prompt"),
    ("mistral", "mistral-common makes token ids, not text"),
    ("terratorch", "TerraTorch models have no text prompt"),
    ("slow", "slow tokenizers are not followed"),
];

/// The mode of an architecture where none is given.
fn mode_of(architecture: &str) -> Option<&'static str> {
    Some(match architecture {
        "MoonshotKimiaForCausalLM" => "kimi_audio",
        "KimiK3ForConditionalGeneration" => "kimi_k3",
        "DeepseekV32ForCausalLM" => "deepseek_v32",
        "DeepseekV4ForCausalLM" | "DeepseekV4ForConditionalGeneration" => "deepseek_v4",
        "DeepseekV41ForCausalLM" => "deepseek_v41",
        "InklingForCausalLM" | "InklingForConditionalGeneration" => "inkling",
        _ => return None,
    })
}

/// Passes where the engine renders chats through Jinja and tokenizes them with the Hugging Face tokenizer.
///
/// `files` are the names in the model's folder, `mode` is the server's `--tokenizer-mode`.
///
/// # Errors
///
/// The model's chats become a prompt in another way, which the error names.
pub(super) fn check_jinja(
    model: &ModelConfig,
    files: &[&str],
    mode: Option<&str>,
) -> Result<(), ProfileError> {
    if model.model_type.as_deref() == Some("gpt_oss") {
        return Err(ProfileError::Renderer {
            renderer: "harmony".into(),
            why: "OpenAI's Harmony library makes token ids, not text",
        });
    }
    let mode = mode.map(str::to_ascii_lowercase);
    let mode = match mode.as_deref() {
        None | Some("auto") => model
            .architectures
            .iter()
            .flatten()
            .find_map(|architecture| mode_of(architecture))
            .unwrap_or_else(|| mode_by_files(files)),
        Some(given) => given,
    };
    if mode == "hf" {
        return Ok(());
    }
    let why = NATIVE
        .iter()
        .find(|(name, _)| *name == mode)
        .map_or("this tokenizer mode is not known", |(_, why)| *why);
    Err(ProfileError::Renderer {
        renderer: mode.to_owned(),
        why,
    })
}

/// Mistral's own tokenizer is used where the folder holds weights in Mistral's format and a tokenizer of theirs.
fn mode_by_files(files: &[&str]) -> &'static str {
    let has = |is_one: fn(&str) -> bool| files.iter().any(|name| is_one(name));
    let weights = |name: &str| name.starts_with("consolidated") && name.ends_with(".safetensors");
    let tokenizer = |name: &str| name == "tekken.json" || name.starts_with("tokenizer.model.v");
    if has(weights) && has(tokenizer) {
        "mistral"
    } else {
        "hf"
    }
}

/// Model types for which the engine has a template of its own where the model brings none.
pub(super) fn has_built_in_template(model: &ModelConfig) -> bool {
    const TYPES: [&str; 14] = [
        "blip-2",
        "clip",
        "colpali",
        "deepseek_ocr",
        "deepseek_ocr2",
        "deepseek_vl_v2",
        "minicpmv",
        "minicpmv4_6",
        "minicpmv4_7",
        "paligemma",
        "siglip",
        "siglip2",
        "unlimited-ocr",
        "unlimited_ocr",
    ];
    model
        .model_type
        .as_deref()
        .is_some_and(|found| TYPES.contains(&found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renderer(config: &str, files: &[&str], mode: Option<&str>) -> String {
        let model = ModelConfig::read(config).unwrap();
        match check_jinja(&model, files, mode) {
            Ok(()) => "jinja".to_owned(),
            Err(ProfileError::Renderer { renderer, .. }) => renderer,
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn the_renderer_follows_from_flag_architecture_and_files() {
        let mistral = ["consolidated-00001-of-2.safetensors", "tekken.json"];
        let old_mistral = ["consolidated.safetensors", "tokenizer.model.v3"];
        for (config, files, mode, expected) in [
            ("{}", &[][..], None, "jinja"),
            (
                r#"{"architectures":["LlamaForCausalLM"]}"#,
                &[],
                None,
                "jinja",
            ),
            (
                r#"{"architectures":["DeepseekV32ForCausalLM"]}"#,
                &[],
                None,
                "deepseek_v32",
            ),
            (
                r#"{"architectures":["DeepseekV32ForCausalLM"]}"#,
                &[],
                Some("auto"),
                "deepseek_v32",
            ),
            (
                r#"{"architectures":["DeepseekV32ForCausalLM"]}"#,
                &[],
                Some("HF"),
                "jinja",
            ),
            (
                r#"{"architectures":["DeepseekV4ForConditionalGeneration"]}"#,
                &[],
                None,
                "deepseek_v4",
            ),
            (
                r#"{"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3"}"#,
                &[],
                None,
                "jinja",
            ),
            (
                r#"{"architectures":["KimiK3ForConditionalGeneration"]}"#,
                &[],
                None,
                "kimi_k3",
            ),
            (
                r#"{"architectures":["InklingForCausalLM"]}"#,
                &[],
                None,
                "inkling",
            ),
            (
                r#"{"architectures":["GptOssForCausalLM"],"model_type":"gpt_oss"}"#,
                &[],
                None,
                "harmony",
            ),
            (r#"{"model_type":"gpt_oss"}"#, &[], Some("hf"), "harmony"),
            ("{}", &mistral, None, "mistral"),
            ("{}", &old_mistral, None, "mistral"),
            ("{}", &mistral[..1], None, "jinja"),
            ("{}", &mistral[1..], None, "jinja"),
            ("{}", &mistral, Some("hf"), "jinja"),
            ("{}", &[], Some("mistral"), "mistral"),
            ("{}", &[], Some("new"), "new"),
        ] {
            assert_eq!(
                renderer(config, files, mode),
                expected,
                "{config} {files:?} {mode:?}"
            );
        }
    }
}
