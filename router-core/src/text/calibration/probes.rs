//! Texts and chats on which tokenizers and templates differ.

use super::super::json_text::quoted;

/// One question to an engine's `/tokenize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    name: &'static str,
    fields: String,
    is_chat: bool,
}

impl Probe {
    /// What it is about, in a few words.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it is a chat; else a prompt.
    pub fn is_chat(&self) -> bool {
        self.is_chat
    }

    /// The body without the model's name: the text of a JSON object.
    pub fn body(&self) -> String {
        format!("{{{}}}", self.fields)
    }

    /// The body for an engine that serves the model by this name.
    pub fn body_for(&self, model: &str) -> String {
        format!("{{\"model\":{},{}}}", quoted(model), self.fields)
    }
}

/// Texts, by what is hard about them.
const TEXTS: [(&str, &str); 9] = [
    ("plain text", "Hello world, this is a test."),
    ("spaces", "  two  before, and   after   "),
    ("line ends", "one\n\n\n\ttwo\r\nthree\r\n \r\n"),
    ("a no-break space", "a\u{a0}b\u{3000}c\u{2009}d"),
    (
        "decomposed letters",
        "e\u{301}a\u{308}\u{323} \u{1112}\u{1161}\u{11ab} \u{212b} \u{fb01} \u{2460}",
    ),
    ("scripts", "中文字符 العربية हिन्दी ไทย 日本語"),
    ("emoji", "👩\u{200d}💻 🇫🇷 ❤\u{fe0f} 🏳\u{fe0f}\u{200d}🌈"),
    ("the space marker", "a\u{2581}b \u{2581}\u{2581} c\u{2581}"),
    ("code", "fn main() {\n    let x = 1_000.5e-3; // 100%\n}\n"),
];

/// Makes the probes: texts, texts around each of `literals`, and chats.
pub(super) fn make(literals: &[String]) -> Vec<Probe> {
    let mut probes: Vec<Probe> = TEXTS
        .iter()
        .map(|(name, text)| prompt(name, text, false))
        .collect();
    probes.push(prompt("special tokens added", "Hello world", true));
    probes.push(prompt(
        "special tokens added before a space",
        " Hello",
        true,
    ));
    for literal in literals {
        let text = format!("{literal} a{literal}b  {literal}\n{literal}{literal} \u{e9}");
        probes.push(prompt("special tokens in the text", &text, false));
        let text = format!("a \t{literal} b");
        probes.push(prompt("space around special tokens", &text, true));
    }
    probes.extend(CHATS.iter().map(|(name, fields)| Probe {
        name,
        fields: (*fields).to_owned(),
        is_chat: true,
    }));
    probes
}

fn prompt(name: &'static str, text: &str, add_special_tokens: bool) -> Probe {
    Probe {
        name,
        fields: format!(
            "\"prompt\":{},\"add_special_tokens\":{add_special_tokens}",
            quoted(text)
        ),
        is_chat: false,
    }
}

/// Chats, by what is special about them; a template may refuse some. vLLM prepares them for `/tokenize` as for a chat completion, except that
/// it renames `reasoning_content` only there: so the newer name is used.
const CHATS: [(&str, &str); 9] = [
    (
        "one message",
        r#""messages":[{"role":"user","content":"Hello there"}]"#,
    ),
    (
        "a conversation",
        r#""messages":[{"role":"user","content":" What's new?\n"},{"role":"assistant","content":"Nothing much: <b>1 & 2</b>. "},{"role":"user","content":"\n\tGo on é 中文 "}]"#,
    ),
    (
        "a system message",
        r#""messages":[{"role":"system","content":"You are\nhelpful. "},{"role":"user","content":"Hi"}]"#,
    ),
    (
        "content in parts",
        r#""messages":[{"role":"user","content":[{"type":"text","text":"first"},{"type":"text","text":" second "}]}]"#,
    ),
    (
        "tools",
        r#""messages":[{"role":"user","content":"Weather?"}],"tools":[{"type":"function","function":{"name":"weather","description":"Gives the \"weather\" <now>","parameters":{"type":"object","properties":{"city":{"type":"string","enum":["Zürich","Paris"]},"days":{"type":"number","default":1.0}},"required":["city"]}}}]"#,
    ),
    (
        "a tool call and its result",
        r#""messages":[{"role":"user","content":"Weather?"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\": \"Zürich\", \"days\": 2}"}}]},{"role":"tool","tool_call_id":"call_1","content":"{\"sun\": true}"}],"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{}}}}]"#,
    ),
    (
        "reasoning",
        r#""messages":[{"role":"user","content":"1+1"},{"role":"assistant","reasoning":"It is 2.","content":"<think>\nso\n</think>\n\n2"},{"role":"user","content":"and now?"}]"#,
    ),
    (
        "thinking switched off",
        r#""messages":[{"role":"user","content":"Hi"}],"chat_template_kwargs":{"enable_thinking":false}"#,
    ),
    (
        "no generation prompt",
        r#""messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}],"add_generation_prompt":false"#,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_is_a_body_with_a_name() {
        for probe in make(&["<\"s\">".to_owned()]) {
            for body in [probe.body(), probe.body_for("a \"model\"\n")] {
                let read: serde_json::Value = serde_json::from_str(&body).unwrap();
                let field = if probe.is_chat() {
                    "messages"
                } else {
                    "prompt"
                };
                assert!(!read[field].is_null(), "{body}");
            }
            assert!(!probe.name().is_empty());
        }
    }
}
