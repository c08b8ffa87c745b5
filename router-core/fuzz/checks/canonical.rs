//! Texts through the rules of tokenizers, against an obvious model of them.

use std::sync::LazyLock;

use prefixway_core::text::{
    Api, Canonicalisation, LeadingSpace, Literal, LocalTime, ModelFiles, NormalForm, PromptProfile,
    Prompter, parse,
};
use unicode_normalization::UnicodeNormalization;

const TOKENIZER: &str = r#"{"added_tokens":[],"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{},"merges":[]}}"#;

static PROMPTERS: LazyLock<Vec<(Canonicalisation, Prompter)>> = LazyLock::new(|| {
    let profile = PromptProfile::from_model_files(&ModelFiles {
        tokenizer_json: TOKENIZER,
        tokenizer_config_json: "{}",
        chat_template: None,
    });
    let profile = profile.unwrap();
    rules()
        .into_iter()
        .map(|rules| {
            let mut profile = profile.clone();
            profile.canonicalisation = rules.clone();
            (rules, Prompter::try_new(profile).unwrap())
        })
        .collect()
});

/// Every combination of the rules that stand alone, with and without literals.
fn rules() -> Vec<Canonicalisation> {
    let literal = |text: &str, special| Literal {
        text: text.into(),
        lstrip: false,
        rstrip: false,
        special,
    };
    let literals = vec![
        literal("<s>", true),
        literal("</s>", true),
        literal("<s", false),
        literal("\u{2581}\u{2581}", false),
        literal("e\u{301}", true),
    ];
    let mut all = Vec::new();
    for normal_form in [None, Some(NormalForm::Nfc), Some(NormalForm::Nfkc)] {
        for marker_is_space in [false, true] {
            for leading_space in [
                None,
                Some(LeadingSpace::UnlessPresent),
                Some(LeadingSpace::Always),
                Some(LeadingSpace::FirstUnlessPresent),
            ] {
                for literals in [Vec::new(), literals.clone()] {
                    all.push(Canonicalisation {
                        normal_form,
                        marker_is_space,
                        leading_space,
                        literals,
                    });
                }
            }
        }
    }
    all
}

/// The first byte picks the rules, the others are the text.
pub(crate) fn check(data: &[u8]) {
    let Some((&first, text)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let (rules, prompter) = &PROMPTERS[usize::from(first) % PROMPTERS.len()];
    let body = serde_json::json!({"prompt": text, "add_special_tokens": false}).to_string();
    let request = parse(Api::Completions, body.as_bytes()).unwrap();
    let prompt = prompter
        .prompt(&request, LocalTime::from_unix(0, 0))
        .unwrap();
    let ours = String::from_utf8(prompt.text).unwrap();
    assert_eq!(ours, model(rules, text), "{rules:?}");
    // No form makes a character longer than this.
    assert!(ours.len() <= text.len().saturating_mul(12) + text.len() + 1);
}

fn model(rules: &Canonicalisation, text: &str) -> String {
    let mut canonical = String::new();
    let mut segment = String::new();
    let mut is_first = true;
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let found = rules
            .literals
            .iter()
            .filter(|literal| rest.starts_with(&literal.text))
            .max_by_key(|literal| literal.text.len());
        if let Some(literal) = found {
            write_segment(rules, &segment, is_first, &mut canonical);
            segment.clear();
            is_first = false;
            let spaces = rules.marker_is_space && !literal.special;
            canonical.push_str(&if spaces {
                unmark(&literal.text)
            } else {
                literal.text.clone()
            });
            rest = &rest[literal.text.len()..];
        } else {
            segment.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    write_segment(rules, &segment, is_first, &mut canonical);
    canonical
}

fn write_segment(rules: &Canonicalisation, segment: &str, is_first: bool, out: &mut String) {
    if segment.is_empty() {
        return;
    }
    let mut text: String = match rules.normal_form {
        None => segment.to_owned(),
        Some(NormalForm::Nfc) => segment.nfc().collect(),
        Some(NormalForm::Nfkc) => segment.nfkc().collect(),
    };
    if rules.marker_is_space {
        text = unmark(&text);
    }
    let leads = match rules.leading_space {
        None => false,
        Some(LeadingSpace::Always) => true,
        Some(LeadingSpace::UnlessPresent) => !text.starts_with(' '),
        Some(LeadingSpace::FirstUnlessPresent) => is_first && !text.starts_with(' '),
    };
    out.push_str(if leads { " " } else { "" });
    out.push_str(&text);
}

fn unmark(text: &str) -> String {
    text.replace('\u{2581}', " ")
}
