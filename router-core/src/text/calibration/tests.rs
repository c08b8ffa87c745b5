use super::*;
use crate::text::{ModelFiles, ModelFolder};

const TEMPLATE: &str =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}";

/// SentencePiece-style pieces for each byte, with two special tokens.
fn tokenizer() -> String {
    let mut vocab: Vec<String> = ["<unk>", "<s>", "</s>"]
        .iter()
        .map(|piece| (*piece).to_owned())
        .collect();
    vocab.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    let entries: Vec<String> = vocab
        .iter()
        .enumerate()
        .map(|(id, piece)| format!("{}:{id}", crate::text::json_text::quoted(piece)))
        .collect();
    format!(
        r#"{{"decoder":{{"type":"Fuse"}},"model":{{"type":"BPE","vocab":{{{}}},"merges":[],"unk_token":"<unk>","byte_fallback":true}},
        "normalizer":{{"type":"Prepend","prepend":"▁"}},
        "added_tokens":[{{"id":0,"content":"<unk>","special":true}},{{"id":1,"content":"<s>","special":true}},{{"id":2,"content":"</s>","special":true}}],
        "post_processor":{{"type":"TemplateProcessing","single":[{{"SpecialToken":{{"id":"<s>","type_id":0}}}},{{"Sequence":{{"id":"A","type_id":0}}}}],"special_tokens":{{}}}}}}"#,
        entries.join(",")
    )
}

const CONFIG: &str = r#"{"tokenizer_class":"LlamaTokenizer"}"#;

struct World {
    calibration: Calibration,
    tokens: TokenBytes,
    variants: Vec<Variant>,
}

fn world(template: Option<&str>) -> World {
    let tokenizer = tokenizer();
    let files = ModelFiles {
        tokenizer_json: &tokenizer,
        tokenizer_config_json: CONFIG,
        chat_template: template,
    };
    let variants = ModelFolder::from(files).variants().unwrap();
    World {
        calibration: Calibration::try_new(&variants).unwrap(),
        tokens: TokenBytes::from_model_files(&files).unwrap(),
        variants,
    }
}

fn now() -> LocalTime {
    LocalTime::from_date(2026, 1, 1)
}

impl World {
    /// The answers of an engine that spells prompts as `profile` does.
    fn answers(&self, profile: &PromptProfile, at: LocalTime) -> Vec<Option<Answer>> {
        let prompter = Prompter::try_new(profile.clone()).unwrap();
        self.calibration
            .probes()
            .iter()
            .map(|probe| {
                Some(match text(&prompter, probe, at) {
                    // Token 3 + b is byte b.
                    Ok(text) => {
                        Answer::Tokens(text.into_iter().map(|b| 3 + u32::from(b)).collect())
                    }
                    Err(_) => Answer::Refused,
                })
            })
            .collect()
    }

    fn verdict(&self, profile: &PromptProfile, at: LocalTime) -> Verdict {
        self.calibration
            .judge(&self.tokens, &self.answers(profile, at), &[now()])
    }

    fn difference(&self, profile: &PromptProfile, at: LocalTime) -> Difference {
        match self.verdict(profile, at) {
            Verdict::Differs(difference) => difference,
            other => panic!("{other:?}"),
        }
    }
}

fn with_template(variant: &Variant, source: &str) -> PromptProfile {
    let mut profile = variant.profile.clone();
    profile.template.as_mut().unwrap().source = source.to_owned();
    profile
}

#[test]
fn every_variant_is_found_out_by_its_answers() {
    let world = world(Some(TEMPLATE));
    let all: Vec<Variant> = world.calibration.variants().cloned().collect();
    assert_eq!(all.len(), 2 * world.variants.len());
    assert!(world.variants.len() >= 4);
    for (number, variant) in all.iter().enumerate() {
        let Verdict::Fits(fit) = world.verdict(&variant.profile, now()) else {
            panic!("{}", variant.assumes)
        };
        assert_eq!(fit, Fit::from_iter([number]), "{}", variant.assumes);
    }
}

#[test]
fn another_template_is_named_with_the_place_where_it_differs() {
    let world = world(Some(TEMPLATE));
    let other = with_template(
        &world.variants[0],
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}",
    );
    let difference = world.difference(&other, now());
    assert!(difference.is_chat);
    assert_eq!(difference.kind, DifferenceKind::Text);
    assert_eq!(difference.at, "<s> ".len());
    assert!(
        difference.engines.starts_with("<s> [user]Hello"),
        "{difference}"
    );
    let text = difference.to_string();
    assert!(
        text.contains("a chat with one message otherwise from byte 4 on"),
        "{text}"
    );
    assert!(text.contains("chat template"), "{text}");
}

#[test]
fn another_tokenizer_is_named_by_a_prompt() {
    let world = world(Some(TEMPLATE));
    let mut other = world.variants[0].profile.clone();
    other.canonicalisation.normal_form = Some(crate::text::NormalForm::Nfc);
    let difference = world.difference(&other, now());
    assert!(!difference.is_chat);
    assert_eq!(difference.probe, "decomposed letters");
    assert!(
        difference
            .to_string()
            .ends_with("tokenizer may differ from the model folder's")
    );
}

#[test]
fn a_date_of_another_zone_is_told_from_another_template() {
    let world = world(Some("{{ strftime_now('%d') }}{{ messages[0].content }}"));
    let own = world.variants[0].profile.clone();
    assert!(matches!(world.verdict(&own, now()), Verdict::Fits(_)));
    let difference = world.difference(&own, now().plus_seconds(-3600));
    assert_eq!(difference.kind, DifferenceKind::Date);
    assert!(difference.to_string().contains("time_zone"));
    // Either of two times will do, as around midnight.
    let answers = world.answers(&own, now().plus_seconds(-1));
    let times = [now().plus_seconds(-1), now()];
    let verdict = world.calibration.judge(&world.tokens, &answers, &times);
    assert!(matches!(verdict, Verdict::Fits(_)));
    let other = with_template(
        &world.variants[0],
        "{{ strftime_now('%d') }}!{{ messages[0].content }}",
    );
    let difference = world.difference(&other, now());
    assert_eq!(difference.kind, DifferenceKind::Text);
}

#[test]
fn chats_that_only_the_engine_renders_are_a_difference() {
    let served = world(Some(TEMPLATE));
    let without = world(None);
    let answers = served.answers(&served.variants[0].profile, now());
    let verdict = without
        .calibration
        .judge(&without.tokens, &answers, &[now()]);
    let Verdict::Differs(difference) = verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!(difference.kind, DifferenceKind::Unrendered);
    assert!(difference.to_string().contains("another template"));
    // Where the engine refuses chats too, its prompts are enough.
    let answers = without.answers(&without.variants[0].profile, now());
    let verdict = without
        .calibration
        .judge(&without.tokens, &answers, &[now()]);
    assert!(matches!(verdict, Verdict::Fits(_)));
}

#[test]
fn without_answers_nothing_is_said() {
    let world = world(Some(TEMPLATE));
    let judge =
        |answers: &[Option<Answer>]| world.calibration.judge(&world.tokens, answers, &[now()]);
    assert_eq!(judge(&[]), Verdict::Nothing);
    assert_eq!(judge(&[None, Some(Answer::Refused)]), Verdict::Nothing);
}

#[test]
fn most_engines_choose_and_the_first_variant_of_several_wins() {
    let fit = |variants: &[usize]| variants.iter().copied().collect::<Fit>();
    assert_eq!(choose(&[]), None);
    assert_eq!(choose(&[fit(&[])]), None);
    assert_eq!(choose(&[fit(&[2, 5])]), Some(2));
    assert_eq!(choose(&[fit(&[0, 1]), fit(&[1, 2])]), Some(1));
    assert_eq!(choose(&[fit(&[0]), fit(&[1]), fit(&[1])]), Some(1));
    assert_eq!(choose(&[fit(&[0]), fit(&[1])]), Some(0));
    assert!(!fit(&[99]).has(99));
}
