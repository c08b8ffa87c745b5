use super::*;
use crate::text::{Api, LocalTime, Prompter, Unscorable, parse};

const TOKENIZER: &str =
    r#"{"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{},"merges":[]}}"#;

fn profile(config: &str, template: Option<&str>) -> PromptProfile {
    PromptProfile::from_model_files(&ModelFiles {
        tokenizer_json: TOKENIZER,
        tokenizer_config_json: config,
        chat_template: template,
    })
    .unwrap()
}

fn text(profile: &PromptProfile, body: &str) -> Result<String, Unscorable> {
    let prompter = Prompter::try_new(profile.clone()).unwrap();
    let request = parse(Api::Chat, body.as_bytes()).unwrap();
    let prompt = prompter.prompt(&request, LocalTime::from_date(2026, 1, 1))?;
    Ok(String::from_utf8(prompt.text).unwrap())
}

#[test]
fn revisions_differ_where_text_may() {
    let base = profile("{}", Some("a"));
    let mut others = vec![
        profile("{}", Some("b")),
        profile("{}", None),
        profile(r#"{"bos_token":"x"}"#, Some("a")),
    ];
    others.push(base.clone().with_default_kwargs(r#"{"a":1}"#).unwrap());
    let mut form = base.clone();
    form.canonicalisation.marker_is_space = true;
    others.push(form);
    for other in &others {
        assert_ne!(base.revision(), other.revision(), "{other:?}");
    }
    assert_eq!(base.revision(), profile("{}", Some("a")).revision());
    // The number itself is part of every scope: it only changes together with the rules' version.
    assert_eq!(base.revision(), 0x51a6_50e2_a940_d4ad);
}

#[test]
fn the_template_file_wins_and_tools_may_have_their_own() {
    let config = r#"{"chat_template":[{"name":"default","template":"d"},{"name":"tool_use","template":"t"}]}"#;
    let chat = r#"{"messages":[]}"#;
    let with_tools = r#"{"messages":[],"tools":[{"type":"function","function":{"name":"f"}}]}"#;
    let named = profile(config, None);
    assert_eq!(text(&named, chat).unwrap(), "d");
    assert_eq!(text(&named, with_tools).unwrap(), "t");
    assert_eq!(text(&profile(config, Some("f")), chat).unwrap(), "f");
    assert_eq!(
        text(&profile(r#"{"chat_template":"c"}"#, None), chat).unwrap(),
        "c"
    );
    assert_eq!(
        text(&profile("{}", None), chat),
        Err(Unscorable::NoTemplate)
    );
}

#[test]
fn arguments_have_an_order_of_precedence() {
    let template = "{{ bos_token }}|{{ a }}|{{ b }}|{{ enable_thinking }}|{{ reasoning_effort }}|{{ documents }}|{{ tools }}";
    let profile = profile(r#"{"bos_token":{"content":"<s>"}}"#, Some(template))
        .with_default_kwargs(r#"{"a":"server","b":"server"}"#)
        .unwrap();
    for (fields, expected) in [
        ("", "<s>|server|server|||None|None"),
        (
            r#","chat_template_kwargs":{"a":"own","b":null}"#,
            "<s>|own|server|||None|None",
        ),
        (
            r#","chat_template_kwargs":{"a":"auto","bos_token":"B"}"#,
            "B|server|server|||None|None",
        ),
        (
            r#","reasoning_effort":"none""#,
            "<s>|server|server|False|none|None|None",
        ),
        (
            r#","reasoning_effort":"low""#,
            "<s>|server|server|True|low|None|None",
        ),
        (
            r#","reasoning_effort":"low","chat_template_kwargs":{"enable_thinking":false}"#,
            "<s>|server|server|False|low|None|None",
        ),
        (
            r#","documents":[{"t":"x"}],"chat_template_kwargs":{"documents":[]}"#,
            "<s>|server|server|||[{'t': 'x'}]|None",
        ),
        (
            r#","chat_template_kwargs":{"raise_exception":1,"unread":2}"#,
            "<s>|server|server|||None|None",
        ),
    ] {
        assert_eq!(
            text(&profile, &format!(r#"{{"messages":[]{fields}}}"#)).unwrap(),
            expected,
            "{fields}"
        );
    }
    let refused = r#"{"messages":[],"chat_template_kwargs":{"messages":1}}"#;
    assert_eq!(text(&profile, refused), Err(Unscorable::Invalid));
}

#[test]
fn tools_may_be_hidden_by_the_server() {
    let mut profile = profile("{}", Some("{{ tools is none }}"));
    let body = r#"{"messages":[],"tool_choice":"none","tools":[{"type":"function","function":{"name":"f"}}]}"#;
    assert_eq!(text(&profile, body).unwrap(), "False");
    profile.exclude_tools_when_tool_choice_none = true;
    assert_eq!(text(&profile, body).unwrap(), "True");
}

#[test]
fn the_final_message_is_cut_where_it_is_continued() {
    let body = |content: &str| {
        format!(
            r#"{{"messages":[{{"role":"assistant","content":"{content}"}}],"add_generation_prompt":false,"continue_final_message":true}}"#
        )
    };
    let keeps = profile("{}", Some("<{{ messages[-1].content }}>"));
    assert_eq!(text(&keeps, &body("a ")).unwrap(), "<a ");
    let trims = profile("{}", Some("<{{ messages[-1].content | trim }}>"));
    assert_eq!(text(&trims, &body("a ")).unwrap(), "<a");
    let ignores = profile("{}", Some("<>"));
    assert_eq!(text(&ignores, &body("a")), Err(Unscorable::Template));
}

#[test]
fn special_tokens_are_added_to_completions_by_default_and_to_chats_on_demand() {
    let mut profile = profile("{}", Some("chat"));
    profile.surrounding = ["<s>".into(), String::new()];
    let prompter = Prompter::try_new(profile.clone()).unwrap();
    let completion = |body: &str| {
        let request = parse(Api::Completions, body.as_bytes()).unwrap();
        let prompts = prompter
            .prompts(&request, LocalTime::from_date(2026, 1, 1))
            .unwrap();
        prompts
            .into_iter()
            .map(|prompt| String::from_utf8(prompt.text).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(completion(r#"{"prompt":["a","b"]}"#), ["<s>a", "<s>b"]);
    assert_eq!(
        completion(r#"{"prompt":"a","add_special_tokens":false}"#),
        ["a"]
    );
    assert_eq!(text(&profile, r#"{"messages":[]}"#).unwrap(), "chat");
    assert_eq!(
        text(&profile, r#"{"messages":[],"add_special_tokens":true}"#).unwrap(),
        "<s>chat"
    );
}

#[test]
fn default_arguments_must_be_an_object() {
    for json in ["[]", "{", "null", ""] {
        let error = profile("{}", None).with_default_kwargs(json).unwrap_err();
        assert!(matches!(error, ProfileError::DefaultKwargs));
    }
}
