use super::*;

fn apply(rules: Canonicalisation, text: &str) -> String {
    let canonicaliser = Canonicaliser::compile(rules).unwrap();
    String::from_utf8(canonicaliser.apply(text.as_bytes().to_vec())).unwrap()
}

fn literal(text: &str) -> Literal {
    Literal {
        text: text.into(),
        lstrip: false,
        rstrip: false,
        special: true,
    }
}

fn literals() -> Vec<Literal> {
    vec![
        literal("<s>"),
        literal("</s>"),
        literal("</s><s>"),
        Literal {
            lstrip: true,
            ..literal("<l>")
        },
        Literal {
            rstrip: true,
            ..literal("<r>")
        },
        Literal {
            special: false,
            ..literal("▁▁")
        },
    ]
}

#[test]
fn without_rules_nothing_changes() {
    for text in ["", "plain", "e\u{301} ▁ \u{212b} <s> "] {
        assert_eq!(apply(Canonicalisation::default(), text), text);
    }
}

#[test]
fn normal_forms_apply_to_each_segment() {
    let nfc = |text| {
        let rules = Canonicalisation {
            normal_form: Some(NormalForm::Nfc),
            literals: vec![literal("e"), literal("<s>")],
            ..Canonicalisation::default()
        };
        apply(rules, text)
    };
    assert_eq!(nfc("a\u{301}<s>u\u{308} 中文"), "á<s>ü 中文");
    // The literal keeps the accent from its letter.
    assert_eq!(nfc("e\u{301}a\u{301}"), "e\u{301}á");
    let nfkc = Canonicalisation {
        normal_form: Some(NormalForm::Nfkc),
        ..Canonicalisation::default()
    };
    assert_eq!(apply(nfkc, "ﬁ ① ａ"), "fi 1 a");
}

#[test]
fn the_marker_is_a_space_except_in_special_literals() {
    let rules = Canonicalisation {
        marker_is_space: true,
        literals: vec![
            literal("<▁>"),
            Literal {
                special: false,
                ..literal("▁▁")
            },
        ],
        ..Canonicalisation::default()
    };
    assert_eq!(apply(rules, "a▁b<▁>▁▁c▁"), "a b<▁>  c ");
}

#[test]
fn segments_get_a_leading_space() {
    let with = |leading_space, text| {
        let rules = Canonicalisation {
            leading_space: Some(leading_space),
            marker_is_space: true,
            literals: literals(),
            ..Canonicalisation::default()
        };
        apply(rules, text)
    };
    for (text, unless_present, always, first) in [
        ("", "", "", ""),
        ("a", " a", " a", " a"),
        (" a", " a", "  a", " a"),
        ("▁a", " a", "  a", " a"),
        ("<s>a</s> b", "<s> a</s> b", "<s> a</s>  b", "<s>a</s> b"),
        ("a<s><s>b", " a<s><s> b", " a<s><s> b", " a<s><s>b"),
        ("</s><s>", "</s><s>", "</s><s>", "</s><s>"),
    ] {
        assert_eq!(
            with(LeadingSpace::UnlessPresent, text),
            unless_present,
            "{text:?}"
        );
        assert_eq!(with(LeadingSpace::Always, text), always, "{text:?}");
        assert_eq!(
            with(LeadingSpace::FirstUnlessPresent, text),
            first,
            "{text:?}"
        );
    }
}

#[test]
fn literals_take_the_space_beside_them() {
    let rules = Canonicalisation {
        literals: literals(),
        ..Canonicalisation::default()
    };
    assert_eq!(
        apply(rules.clone(), "a \n<l> b<r> \u{a0} c <r><s> "),
        "a<l> b<r>c <r><s> "
    );
    assert_eq!(apply(rules, " <r>  <l>  "), " <r><l>  ");
}

mod derived {
    use super::super::*;
    use crate::text::ProfileError;
    use crate::text::tokenizer::Tokenizer;
    use crate::text::tokenizer_file::{ModelConfig, TokenizerConfig, TokenizerFile};

    const BYTE_LEVEL: &str =
        r#""decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{},"merges":[]}"#;
    const PIECES: &str = r#""decoder":{"type":"Fuse"},"model":{"type":"BPE","vocab":{},"merges":[],"unk_token":"<unk>","byte_fallback":true}"#;

    fn derive(
        steps: &str,
        model: &str,
        config: &str,
    ) -> Result<(Canonicalisation, [String; 2]), ProfileError> {
        let json = format!("{{{steps}{model}}}");
        let file = TokenizerFile::read(&json)?;
        let config = TokenizerConfig::read(config)?;
        let tokenizer = Tokenizer::load(&file, &config, &ModelConfig::default())?;
        Ok((
            Canonicalisation::derive(&tokenizer)?,
            surrounding(&tokenizer)?,
        ))
    }

    fn space(steps: &str, model: &str, config: &str) -> Option<LeadingSpace> {
        derive(steps, model, config).unwrap().0.leading_space
    }

    #[test]
    fn spaces_come_from_the_pipeline_or_from_the_class() {
        let prepend = r#""normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"#;
        assert_eq!(space(prepend, PIECES, "{}"), Some(LeadingSpace::Always));
        let llama = r#"{"tokenizer_class":"LlamaTokenizer"}"#;
        assert_eq!(
            space(prepend, PIECES, llama),
            Some(LeadingSpace::UnlessPresent)
        );
        assert_eq!(
            space(
                prepend,
                PIECES,
                r#"{"tokenizer_class":"LlamaTokenizer","add_prefix_space":false}"#
            ),
            None
        );
        // A byte-level tokenizer of that class stays as it is.
        assert_eq!(space("", BYTE_LEVEL, llama), None);
        for (step, expected) in [
            (
                r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"}"#,
                Some(LeadingSpace::UnlessPresent),
            ),
            (
                r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}"#,
                Some(LeadingSpace::FirstUnlessPresent),
            ),
            (
                r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"never"}"#,
                None,
            ),
            (
                r#"{"type":"Metaspace","replacement":"▁","add_prefix_space":true}"#,
                Some(LeadingSpace::UnlessPresent),
            ),
            (
                r#"{"type":"Metaspace","replacement":"▁","add_prefix_space":false}"#,
                None,
            ),
            (
                r#"{"type":"ByteLevel","add_prefix_space":true}"#,
                Some(LeadingSpace::UnlessPresent),
            ),
            (r#"{"type":"ByteLevel","add_prefix_space":false}"#, None),
        ] {
            assert_eq!(
                space(&format!("\"pre_tokenizer\":{step},"), PIECES, "{}"),
                expected,
                "{step}"
            );
        }
    }

    #[test]
    fn steps_that_change_text_otherwise_are_refused() {
        for step in [
            r#""normalizer":{"type":"Lowercase"},"#,
            r#""normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"StripAccents"}]},"#,
            r#""normalizer":{"type":"Strip","strip_left":true},"#,
            r#""normalizer":{"type":"Replace","pattern":{"Regex":" +"},"content":" "},"#,
            r#""normalizer":{"type":"Replace","pattern":{"String":"a"},"content":"b"},"#,
            r#""normalizer":{"type":"Precompiled"},"#,
            r#""pre_tokenizer":{"type":"Whitespace"},"#,
            r#""pre_tokenizer":{"type":"Split","pattern":{"String":" "},"behavior":"Removed"},"#,
            r#""pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits"},{"type":"ByteLevel","add_prefix_space":true}]},"#,
            r#""post_processor":{"type":"SomeProcessing"},"#,
        ] {
            assert!(
                matches!(
                    derive(step, BYTE_LEVEL, "{}"),
                    Err(ProfileError::Step { .. })
                ),
                "{step}"
            );
        }
    }

    #[test]
    fn added_tokens_whose_place_depends_on_more_than_their_literal_are_refused() {
        let prepend = r#""normalizer":{"type":"Prepend","prepend":"▁"},"#;
        let llama = r#"{"tokenizer_class":"LlamaTokenizer"}"#;
        let added = |tokens: &str| format!(r#""added_tokens":[{tokens}],"#);
        let normalized = added(r#"{"id":1,"content":"x","normalized":true}"#);
        let refused = |steps: &str, config: &str| {
            let refusal = derive(steps, PIECES, config).err();
            matches!(refusal, Some(ProfileError::AddedToken { .. }))
        };
        assert!(refused(&format!("{normalized}{prepend}"), "{}"));
        assert!(refused(
            &added(r#"{"id":1,"content":"x","single_word":true}"#),
            llama
        ));
        assert!(refused(
            &added(r#"{"id":1,"content":"<x>","normalized":true},{"id":2,"content":">>"}"#),
            llama
        ));
        // Where nothing is normalised, looking for it later makes no difference.
        let (rules, _) = derive(&normalized, PIECES, llama).unwrap();
        assert_eq!(rules.literals.len(), 4);
        assert!(derive(&normalized, BYTE_LEVEL, "{}").is_ok());
    }

    #[test]
    fn flags_of_the_configuration_win_over_those_of_the_file() {
        let file = r#""added_tokens":[{"id":7,"content":"<x>"},{"id":8,"content":"<y>"}],"#;
        let strips = |config: &str| {
            let (rules, _) = derive(file, BYTE_LEVEL, config).unwrap();
            let texts = |literal: &Literal| (literal.text.clone(), literal.rstrip);
            rules.literals.iter().map(texts).collect::<Vec<_>>()
        };
        let decoder =
            r#""added_tokens_decoder":{"9":{"content":"<x>","rstrip":true,"special":true}}"#;
        assert_eq!(
            strips(&format!("{{{decoder}}}")),
            [("<x>".to_owned(), true), ("<y>".to_owned(), false)]
        );
        // A class that builds the pipeline anew sees the configuration's list only, and Qwen's makes special tokens plain.
        let class = |class: &str| {
            strips(&format!(
                r#"{{{decoder},"tokenizer_class":"{class}","eos_token":"<x>","pad_token":null,"unk_token":null}}"#
            ))
        };
        assert_eq!(class("Qwen2Tokenizer"), [("<x>".to_owned(), false)]);
        assert_eq!(class("Qwen3_5Tokenizer"), [("<x>".to_owned(), true)]);
    }

    #[test]
    fn the_begin_token_comes_from_the_processor() {
        let processor = r#""post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
            "single":[{"SpecialToken":{"id":"B","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],
            "special_tokens":{"B":{"id":"B","ids":[1,2],"tokens":["[g]","<s>"]}}}]},"#;
        let around = |config| derive(processor, BYTE_LEVEL, config).unwrap().1;
        assert_eq!(around("{}"), ["[g]<s>", "</s>"]);
        // transformers 5 takes no notice of the flags where there is a tokenizer.json.
        assert_eq!(
            around(r#"{"add_bos_token":false,"add_eos_token":true,"bos_token":"<b>"}"#),
            ["[g]<s>", "</s>"]
        );
        // One class drops the processor.
        assert_eq!(
            around(r#"{"tokenizer_class":"GPTNeoXTokenizer"}"#),
            ["", ""]
        );
        assert_eq!(derive("", BYTE_LEVEL, "{}").unwrap().1, ["", ""]);
        assert_eq!(
            derive("", PIECES, r#"{"tokenizer_class":"CodeLlamaTokenizer"}"#)
                .unwrap()
                .1,
            ["<s>", ""]
        );
        for kind in ["RobertaProcessing", "BertProcessing"] {
            let step = format!(
                r#""post_processor":{{"type":"{kind}","cls":["<s>",0],"sep":["</s>",2]}},"#
            );
            assert_eq!(derive(&step, BYTE_LEVEL, "{}").unwrap().1, ["<s>", "</s>"]);
        }
    }

    #[test]
    fn literals_are_kept_only_where_a_rule_needs_them() {
        let added = r#""added_tokens":[{"id":1,"content":"<x>","special":true}],"#;
        assert!(
            derive(added, BYTE_LEVEL, "{}")
                .unwrap()
                .0
                .literals
                .is_empty()
        );
        let nfc = format!(r#"{added}"normalizer":{{"type":"NFC"}},"#);
        assert_eq!(derive(&nfc, BYTE_LEVEL, "{}").unwrap().0.literals.len(), 1);
    }
}
