//! Model types of config.json and the tokenizer classes that belong to them.

/// Model types whose tokenizer is `tokenizer.json` as it stands unless `tokenizer_config.json` names the registered class itself.
/// Mistral's are registered with Mistral's own tokenizer, which vLLM switches off for its `hf` tokenizer mode.
const TAKEN_AS_FILE: &str = "\
    arctic aria bigbird_pegasus canary chameleon chatlm cohere_asr deepseek_ocr deepseek_ocr2 deepseek_v2 deepseek_v3 deepseek_v32 \
    deepseek_v4 deepseek_vl deepseek_vl_hybrid deepseek_vl_v2 ernie4_5 ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe glm4_moe_lite \
    glm4v glm4v_moe glm_image glmasr got_ocr2 gpt_bigcode granite granitemoe granitemoehybrid granitemoeshared h2ovl_chat hyperclovax \
    hyperclovax_vlm internlm2 jamba janus kimi_k25 kimi_linear llava llava_next mimo_v2_flash minicpm3 minicpmv minicpmv4_6 \
    minicpmv4_7 minimax_m2 ministral ministral3 mistral mistral3 mixtral modernbert modernbert-decoder molmo molmo2 nemotron nvfp4 \
    nystromformer olmo2 olmo3 olmo_hybrid opencua openvla paddleocr_vl pegasus_x persimmon phi3 phi3_v phimoe pix2struct pixtral \
    smolvlm stablelm step3_vl step3p5 umt5 vipllava voxtral voxtral_realtime";

/// Model types for which vLLM itself takes `tokenizer.json` as it stands, whatever class is named.
const TAKEN_AS_FILE_BY_VLLM: &str = "internlm2 step3_vl step3p7 unlimited-ocr unlimited_ocr";

/// Model types whose published `tokenizer_config.json` names a wrong class; the second is taken.
const CORRECTED: [(&str, &str); 6] = [
    ("hyperclovax_vision_v2", "GPT2Tokenizer"),
    ("qwen2", "Qwen2Tokenizer"),
    ("qwen3_5", "Qwen3_5Tokenizer"),
    ("qwen3_5_moe", "Qwen3_5Tokenizer"),
    ("qwen3_5_moe_text", "Qwen3_5Tokenizer"),
    ("qwen4_exp", "Qwen3_5Tokenizer"),
];

/// The class that is loaded for a model type where the files name the class `named` (without `Fast`); `None`: the generic one.
pub(super) fn class<'a>(model_type: &str, named: Option<&'a str>) -> Option<&'a str> {
    let is_in = |list: &str| {
        list.split_ascii_whitespace()
            .any(|found| found == model_type)
    };
    let corrected = CORRECTED
        .iter()
        .find(|(found, _)| *found == model_type)
        .map(|(_, class)| *class);
    match named {
        _ if is_in(TAKEN_AS_FILE_BY_VLLM) => None,
        Some(_) if is_in(TAKEN_AS_FILE) => None,
        Some(named) => Some(corrected.unwrap_or(named)),
        None => corrected.or_else(|| registered(model_type)),
    }
}

/// The class of a model type where `tokenizer_config.json` names none.
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
        _ => return None,
    })
}
