//! Request bodies of a given size.

use serde_json::json;

/// Bodies of each size; as many conversations, so that caches of one text are no help.
const BODIES: u64 = 16;
const WORDS: [&str; 16] = [
    "the", "harbour", "log", "says", "that", "wind", "and", "tide", "were", "fair", "when",
    "ships", "came", "in", "at", "dawn",
];

/// Chats of `bytes` bytes each: a system prompt and turns of prose.
pub(crate) fn bodies(model: &str, bytes: usize) -> Vec<String> {
    (0..BODIES)
        .map(|number| body(model, bytes, number))
        .collect()
}

fn body(model: &str, bytes: usize, number: u64) -> String {
    let mut random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut prose = |bytes: usize| {
        let mut text = String::with_capacity(bytes + 16);
        while text.len() < bytes {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            text.push_str(WORDS.get((random >> 60) as usize).copied().unwrap_or("so"));
            text.push(' ');
        }
        text.truncate(bytes);
        text
    };
    let turns = 19;
    let frame = 200 + turns * 36;
    let each = bytes.saturating_sub(frame) / (turns + 1);
    let mut messages =
        vec![json!({"role": "system", "content": format!("{number:04} {}", prose(each))})];
    for turn in 0..turns {
        let role = if turn % 2 == 0 { "user" } else { "assistant" };
        messages.push(json!({"role": role, "content": prose(each)}));
    }
    json!({"model": model, "max_tokens": 1, "temperature": 0, "messages": messages}).to_string()
}
