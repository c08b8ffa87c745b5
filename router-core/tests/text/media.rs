//! Text counts up to the first media item, whatever its kind and API; what follows doesn't.

use prefixway_core::text::{
    Api, LocalTime, ModelFiles, Prompt, PromptProfile, Prompter, Unscorable, parse,
};

use crate::inputs::prompter;

const CHAT_PARTS: [&str; 12] = [
    r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,%"}}"#,
    r#"{"type":"image_url","image_url":{"url":"%","detail":"high"},"uuid":"u"}"#,
    r#"{"type":"input_image","image_url":"%"}"#,
    r#"{"image_url":"%"}"#,
    r#"{"image_url":null,"uuid":"%"}"#,
    r#"{"type":"image_embeds","image_embeds":{"image_embeds":"%"}}"#,
    r#"{"type":"audio_url","audio_url":{"url":"%"}}"#,
    r#"{"type":"input_audio","input_audio":{"data":"%","format":"wav"}}"#,
    r#"{"type":"audio_embeds","audio_embeds":"%"}"#,
    r#"{"type":"video_url","video_url":{"url":"%"}}"#,
    r#"{"type":"video_embeds","video_embeds":"%"}"#,
    r#"{"type":"prompt_embeds","data":"%"}"#,
];

fn prompt(model: &str, api: Api, body: &str) -> Result<Prompt, Unscorable> {
    let request = parse(api, body.as_bytes()).unwrap();
    prompter(model).prompt(&request, LocalTime::from_date(2026, 1, 1))
}

/// Bodies with a question around a media part; `%` in the part is what the media is.
fn bodies(part: &str, around: &str) -> impl Fn(&str) -> String {
    let around = around.replace('@', part);
    move |media| around.replace('%', media)
}

fn check(api: Api, part: &str, around: &str) {
    let body = bodies(part, around);
    for (model, end) in [("llama3_1", "Look:"), ("tinybpe", "")] {
        let one = prompt(model, api, &body("b25l")).unwrap();
        let other = prompt(model, api, &body("b3RoZXI=")).unwrap();
        assert_eq!(one, other, "{part}");
        assert!(one.truncated, "{part}");
        let text = String::from_utf8(one.text).unwrap();
        assert!(
            text.contains("Be kind.") && text.ends_with(end) && !text.contains("What is it?"),
            "{part}: {text}"
        );
    }
}

#[test]
fn chats_end_at_their_first_media() {
    let around = r#"{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":[{"type":"text","text":"Look:"},@,{"type":"text","text":"What is it?"}]}]}"#;
    for part in CHAT_PARTS {
        check(Api::Chat, part, around);
        check(Api::Embeddings, part, around);
    }
}

#[test]
fn messages_end_at_their_first_media() {
    let image =
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%"}}"#;
    let around = r#"{"system":"Be kind.","messages":[{"role":"user","content":[{"type":"text","text":"Look:"},@,{"type":"text","text":"What is it?"}]}]}"#;
    check(Api::Messages, image, around);
    // An image in a tool's result stands in a message of its own.
    let around = r#"{"system":"Be kind.","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"Look:"},@]}]},{"role":"user","content":"What is it?"}]}"#;
    let body = bodies(image, around);
    let one = prompt("llama3_1", Api::Messages, &body("b25l")).unwrap();
    assert_eq!(
        one,
        prompt("llama3_1", Api::Messages, &body("b3RoZXI=")).unwrap()
    );
    let text = String::from_utf8(one.text).unwrap();
    assert!(one.truncated && text.contains("Look:") && !text.contains("What is it?"));
}

#[test]
fn responses_end_at_their_first_media() {
    let around = r#"{"instructions":"Be kind.","input":[{"role":"user","content":[{"type":"input_text","text":"Look:"},@,{"type":"input_text","text":"What is it?"}]}]}"#;
    check(
        Api::Responses,
        r#"{"type":"input_image","image_url":"data:image/png;base64,%","detail":"auto"}"#,
        around,
    );
}

#[test]
fn files_have_no_text() {
    let body =
        r#"{"messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"x"}}]}]}"#;
    assert_eq!(
        prompt("llama3_1", Api::Chat, body),
        Err(Unscorable::Invalid)
    );
}

/// The text of a chat with two texts around an image, and one text before them.
fn rendered(template: &str, parts: &str, further: &str) -> Result<String, Unscorable> {
    let profile = PromptProfile::from_model_files(&ModelFiles {
        tokenizer_json: r#"{"added_tokens":[],"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{},"merges":[]}}"#,
        tokenizer_config_json: "{}",
        chat_template: Some(template),
    });
    let prompter = Prompter::try_new(profile.unwrap()).unwrap();
    let body = format!(
        r#"{{"messages":[{{"role":"system","content":"S"}},{{"role":"user","content":{parts}}}]{further}}}"#
    );
    let request = parse(Api::Chat, body.as_bytes()).unwrap();
    let prompt = prompter.prompt(&request, LocalTime::from_date(2026, 1, 1))?;
    assert!(prompt.truncated);
    Ok(String::from_utf8(prompt.text).unwrap())
}

const IMAGE: &str = r#"{"type":"image_url","image_url":{"url":"u"}}"#;

#[test]
fn what_a_template_makes_of_media_elsewhere_is_not_text() {
    let parts = format!(r#"["a",{IMAGE},"b"]"#);
    let each = "{% for m in messages %}{% for c in m.content %}";
    let end = "{% endfor %}{% endfor %}";
    for (template, expected) in [
        // Counts and places are the engine's.
        (format!("{{{{ messages[1].content | length }}}}{each}{{{{ loop.index }}}}{{{{ c.text }}}}{end}"), "31S1a2"),
        // Images first: the text ends where one is shown.
        ("S{% for m in messages %}{% for c in m.content if c.type == 'image' %}<i>{% endfor %}{% for c in m.content if c.type == 'text' %}{{ c.text }}{% endfor %}{% endfor %}".into(), "SS"),
        // Their number: the text ends there, as it depends on media.
        ("S{{ messages[1].content | selectattr('type', 'equalto', 'image') | list | length }}{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}".into(), "S"),
        // Shown by its place, not by its type.
        (format!("{each}{{% if c.type != 'text' %}}<i>{{% else %}}{{{{ c.text }}}}{{% endif %}}{end}"), "Sa"),
    ] {
        assert_eq!(
            rendered(&template, &parts, "").as_deref(),
            Ok(expected),
            "{template}"
        );
    }
    let first = "{% for m in messages %}{% for c in m.content %}{% if c.type == 'image' %}<i>{% endif %}{% endfor %}{% endfor %}";
    assert_eq!(rendered(first, &parts, ""), Err(Unscorable::Media));
    // A string: what stands for media is not known, nor what a template makes of it.
    for (template, expected) in [
        (
            "{% for m in messages %}[{{ m.content }}]{% endfor %}",
            "[S][",
        ),
        (
            "{% for m in messages %}{{ m.content | length }}[{{ m.content }}]{% endfor %}",
            "1[S]",
        ),
        (
            "{% for m in messages %}[{% if m.content == 'a\\nb' %}x{% endif %}{{ m.content }}]{% endfor %}",
            "[S][",
        ),
    ] {
        assert_eq!(
            rendered(template, &parts, "").as_deref(),
            Ok(expected),
            "{template}"
        );
    }
}

#[test]
fn no_media_item_is_shown_before_a_later_one() {
    let images_first = "{{ messages[1].role }}: {% for m in messages %}{% for c in m.content if c.type == 'image' %}<i>{% endfor %}{% endfor %}{% for c in messages[1].content if c.type == 'text' %}{{ c.text }}{% endfor %}";
    for parts in [
        format!(r#"[{IMAGE},{IMAGE},"b"]"#),
        format!(r#"[{IMAGE},"b",{IMAGE},{IMAGE}]"#),
    ] {
        let text = rendered(images_first, &parts, "").unwrap();
        assert_eq!(text, "user: ");
    }
}

#[test]
fn media_in_a_message_that_goes_on() {
    let each = "{% for m in messages %}[{{ m.role }}]{% for c in m.content %}{% if c.type == 'image' %}<i>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endfor %}";
    let whole = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    let further = r#","continue_final_message":true,"add_generation_prompt":false"#;
    let go_on =
        |template: &str, parts: &str| rendered(template, &parts.replace('@', IMAGE), further);
    // The last text is continued, so the prompt ends behind the image.
    assert_eq!(
        go_on(each, r#"["a",@,"b"]"#).as_deref(),
        Ok("[system]S[user]a")
    );
    assert_eq!(go_on(each, r#"[@,"b"]"#).as_deref(), Ok("[system]S[user]"));
    assert_eq!(go_on(whole, r#"["a",@]"#).as_deref(), Ok("[system]S[user]"));
    // It ends before the image: the engine has no place for it.
    assert_eq!(go_on(each, r#"["a",@]"#), Err(Unscorable::Media));
    // No text to continue.
    assert_eq!(go_on(each, "[@]"), Err(Unscorable::Invalid));
}
