//! Text counts up to the first media item, whatever its kind and API; what follows doesn't.

use prefixway_core::text::{Api, LocalTime, Prompt, Unscorable, parse};

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
