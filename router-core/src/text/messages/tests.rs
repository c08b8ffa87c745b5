use super::*;
use crate::text::tojson::{Style, write_datum};

/// Prepares messages and dumps them as JSON.
fn dump(messages: &str, how: Preparation) -> String {
    let (Json::Array(messages), _) = Json::parse(messages).unwrap() else {
        panic!("not a list")
    };
    let prepared = prepare(messages.iter(), how).unwrap().messages;
    let mut out = String::new();
    write_datum(&mut out, &prepared, &Style::default()).unwrap();
    out
}

const STRING: Preparation = Preparation {
    format: ContentFormat::String,
    knows_developer: false,
    continue_final_message: false,
    first_media: FirstMedia::Mark,
    is_validated: true,
};
const PARTS: Preparation = Preparation {
    format: ContentFormat::OpenAi,
    ..STRING
};

#[test]
fn content_becomes_a_string() {
    for (content, expected) in [
        (r#""a""#, r#""a""#),
        ("null", r#""""#),
        ("[]", r#""""#),
        (
            r#"[{"type":"text","text":"a"},"b",{"type":"text","text":""},{"type":"refusal","refusal":"c"}]"#,
            r#""a\nb\nc""#,
        ),
        (r#"[{"type":"thinking","thinking":"t"}]"#, r#""t""#),
    ] {
        let message = format!(r#"[{{"role":"user","content":{content}}}]"#);
        assert_eq!(
            dump(&message, STRING),
            format!(r#"[{{"role": "user", "content": {expected}}}]"#)
        );
    }
}

#[test]
fn content_becomes_parts() {
    for (content, expected) in [
        (r#""a""#, r#"[{"type": "text", "text": "a"}]"#),
        (r#""""#, r#"[{"type": "text", "text": ""}]"#),
        ("null", "[]"),
        (
            r#"[{"text":"a","type":"text","cache_control":{}},"b"]"#,
            r#"[{"type": "text", "text": "a", "cache_control": {}}, {"type": "text", "text": "b"}]"#,
        ),
    ] {
        let message = format!(r#"[{{"content":{content},"role":"user"}}]"#);
        assert_eq!(
            dump(&message, PARTS),
            format!(r#"[{{"role": "user", "content": {expected}}}]"#)
        );
    }
    // The tool role is given a string all the same.
    assert_eq!(
        dump(
            r#"[{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"a"},{"type":"text","text":""}],"name":"n"}]"#,
            PARTS
        ),
        r#"[{"role": "tool", "content": "a\n", "tool_call_id": "c", "name": "n"}]"#
    );
}

#[test]
fn tool_calls_get_objects_as_arguments_and_a_fixed_key_order() {
    let call = |arguments: &str| {
        dump(
            &format!(
                r#"[{{"role":"assistant","tool_calls":[{{"type":"function","id":"c","function":{{"name":"f","arguments":{arguments}}}}}]}}]"#
            ),
            STRING,
        )
    };
    let expected = |arguments: &str| {
        format!(
            r#"[{{"role": "assistant", "content": "", "tool_calls": [{{"id": "c", "function": {{"arguments": {arguments}, "name": "f"}}, "type": "function"}}]}}]"#
        )
    };
    for (given, read) in [
        (
            r#""{\"b\": 1.0, \"a\": [1e3, 12345678901234567890123]}""#,
            r#"{"b": 1.0, "a": [1000.0, 12345678901234567890123]}"#,
        ),
        (r#"{"b":1}"#, r#"{"b": 1}"#),
        (r#""""#, "{}"),
        (r#""[1]""#, "{}"),
        (r#""{broken""#, "{}"),
        ("null", "{}"),
    ] {
        assert_eq!(call(given), expected(read));
    }
    assert_eq!(
        dump(
            r#"[{"role":"assistant","content":"a","tool_calls":[]}]"#,
            STRING
        ),
        r#"[{"role": "assistant", "content": "a"}]"#
    );
}

#[test]
fn reasoning_is_kept_whatever_stands_beside_it() {
    let dumped = |fields: &str| dump(&format!(r#"[{{"role":"assistant",{fields}}}]"#), STRING);
    let calls =
        r#""tool_calls":[{"type":"function","id":"c","function":{"name":"f","arguments":"{}"}}]"#;
    for fields in [
        r#""content":"a","reasoning":"y""#,
        r#""content":"a","reasoning_content":"y""#,
        r#""content":"a","reasoning":null,"reasoning_content":"y""#,
        r#""content":"a","reasoning":"y","reasoning_content":"z""#,
        &format!(r#"{calls},"reasoning":"y""#),
        &format!(r#"{calls},"content":null,"reasoning":"y""#),
        r#""content":"a","reasoning":"y","refusal":null,"audio":null,"function_call":null"#,
        r#""content":[{"type":"text","text":"a"}],"reasoning":"y""#,
    ] {
        let dumped = dumped(fields);
        assert!(
            dumped.ends_with(r#""reasoning": "y", "reasoning_content": "y"}]"#),
            "{dumped}"
        );
    }
    // The engine looks at its type as little as a template does.
    assert_eq!(
        dumped(r#""reasoning":[1.0]"#),
        r#"[{"role": "assistant", "content": "", "reasoning": [1.0], "reasoning_content": [1.0]}]"#
    );
}

#[test]
fn further_fields_of_parts_and_calls_follow_the_known_ones() {
    assert_eq!(
        dump(
            r#"[{"role":"user","content":[{"b":1,"text":"a","a":{"c":[]},"type":"text","name":"n","cache_control":null}]}]"#,
            PARTS
        ),
        r#"[{"role": "user", "content": [{"type": "text", "text": "a", "b": 1, "a": {"c": []}, "cache_control": null}]}]"#
    );
    assert_eq!(
        dump(
            r#"[{"role":"assistant","tool_calls":[{"index":0,"type":"function","function":{"x":1,"name":"f","arguments":"{}"},"id":"c"}]}]"#,
            STRING
        ),
        r#"[{"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"arguments": {}, "name": "f", "x": 1}, "type": "function", "index": 0}]}]"#
    );
}

#[test]
fn parts_without_text_are_passed_over() {
    for content in [
        r#"[{"type":"text","text":null},"a"]"#,
        r#"[{"type":"refusal"},"a"]"#,
    ] {
        let message = format!(r#"[{{"role":"user","content":{content}}}]"#);
        assert_eq!(
            dump(&message, PARTS),
            r#"[{"role": "user", "content": [{"type": "text", "text": "a"}]}]"#
        );
    }
}

#[test]
fn unknown_keys_go_and_names_stay() {
    assert_eq!(
        dump(
            r#"[{"role":"user","x":1,"name":"kai","content":"a","task":"t"},{"role":"user","name":3,"content":"b"}]"#,
            STRING
        ),
        r#"[{"role": "user", "content": "a", "name": "kai", "task": "t"}, {"role": "user", "content": "b"}]"#
    );
}

#[test]
fn developer_messages_become_one_system_message() {
    let messages = r#"[{"role":"system","content":"a"},{"role":"user","content":"u"},{"role":"developer","content":"b"},{"role":"developer","content":""}]"#;
    let merged = r#"[{"role": "system", "content": "a\n\nb"}, {"role": "user", "content": "u"}]"#;
    assert_eq!(dump(messages, STRING), merged);
    assert_eq!(
        dump(messages, PARTS),
        merged.replace(r#""u""#, r#"[{"type": "text", "text": "u"}]"#)
    );
    assert_eq!(
        dump(r#"[{"role":"developer","content":"a","name":"n"}]"#, STRING),
        r#"[{"role": "system", "content": "a", "name": "n"}]"#
    );
    // Without a developer message, system messages stay where they are.
    assert_eq!(
        dump(
            r#"[{"role":"user","content":"u"},{"role":"system","content":"a"}]"#,
            STRING
        ),
        r#"[{"role": "user", "content": "u"}, {"role": "system", "content": "a"}]"#
    );
    let knows = Preparation {
        knows_developer: true,
        ..STRING
    };
    assert_eq!(
        dump(
            r#"[{"role":"user","content":"u"},{"role":"developer","content":"a"}]"#,
            knows
        ),
        r#"[{"role": "user", "content": "u"}, {"role": "developer", "content": "a", "tools": null}]"#
    );
}

#[test]
fn a_billing_header_goes_from_system_messages_only() {
    let messages = r#"[{"role":"system","content":[{"type":"text","text":"x-anthropic-billing-header: cch=1;\nrest"},{"type":"text","text":"x-anthropic-billing-header"},"b",{"type":"input_text","text":"x-anthropic-billing-header"}]},
        {"role":"user","content":"x-anthropic-billing-header\nu"}]"#;
    assert_eq!(
        dump(messages, STRING),
        r#"[{"role": "system", "content": "rest\nb\nx-anthropic-billing-header"}, {"role": "user", "content": "x-anthropic-billing-header\nu"}]"#
    );
}

#[test]
fn media_is_marked_once() {
    let image = r#"{"type":"image_url","image_url":{"url":"u"},"x":1}"#;
    let messages = format!(
        r#"[{{"role":"user","content":[{{"type":"text","text":"a"}},{image},{image}]}},{{"role":"user","content":[{image}]}}]"#
    );
    let template_sees = r#"{"type": "image", "x": 1}"#;
    let marked = format!(
        r#"[{{"role": "user", "content": [{{"type": "text", "text": "a"}}, {{"type": "text", "text": "{MEDIA_TAG}", "x": 1}}, {template_sees}]}}, {{"role": "user", "content": [{template_sees}]}}]"#
    );
    assert_eq!(dump(&messages, PARTS), marked);
    let plain = Preparation {
        first_media: FirstMedia::Item,
        ..PARTS
    };
    let mark = format!(r#"{{"type": "text", "text": "{MEDIA_TAG}", "x": 1}}"#);
    assert_eq!(dump(&messages, plain), marked.replace(&mark, template_sees));
    // In a string the engine puts placeholders first, or finds them in the text.
    assert_eq!(
        dump(&messages, STRING),
        format!(
            r#"[{{"role": "user", "content": "{MEDIA_TAG}\na"}}, {{"role": "user", "content": ""}}]"#
        )
    );
    let plain = Preparation {
        first_media: FirstMedia::Item,
        ..STRING
    };
    assert_eq!(
        dump(&messages, plain),
        r#"[{"role": "user", "content": "a"}, {"role": "user", "content": "<media>"}]"#
    );
}

#[test]
fn embeddings_are_text_where_they_stand() {
    let messages = r#"[{"role":"user","content":["a",{"type":"prompt_embeds","data":"x"},"b",{"type":"prompt_embeds","data":"y"}]}]"#;
    let plain = |how| Preparation {
        first_media: FirstMedia::Item,
        ..how
    };
    assert_eq!(
        dump(messages, plain(STRING)),
        r#"[{"role": "user", "content": "a\n<prompt_embeds>\nb\n<prompt_embeds>"}]"#
    );
    assert_eq!(
        dump(messages, STRING),
        format!(r#"[{{"role": "user", "content": "a\n{MEDIA_TAG}\nb\n<prompt_embeds>"}}]"#)
    );
    let text = |text: &str| format!(r#"{{"type": "text", "text": "{text}"}}"#);
    let parts = |first: &str| {
        let parts = ["a", first, "b", "<prompt_embeds>"].map(text).join(", ");
        format!(r#"[{{"role": "user", "content": [{parts}]}}]"#)
    };
    assert_eq!(dump(messages, plain(PARTS)), parts("<prompt_embeds>"));
    assert_eq!(dump(messages, PARTS), parts(MEDIA_TAG));
}

#[test]
fn the_final_message_is_tagged_where_it_is_continued() {
    let how = Preparation {
        continue_final_message: true,
        ..STRING
    };
    assert_eq!(
        dump(r#"[{"role":"assistant","content":"a "}]"#, how),
        r#"[{"role": "assistant", "content": "a CONTINUE_FINAL_MESSAGE_TAG "}]"#
    );
    let how = Preparation {
        format: ContentFormat::OpenAi,
        ..how
    };
    assert_eq!(
        dump(r#"[{"role":"assistant","content":["a","b"]}]"#, how),
        r#"[{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "bCONTINUE_FINAL_MESSAGE_TAG "}]}]"#
    );
    // The last part with text, also where media follows; without one, the engine refuses.
    let image = r#"{"type":"image_url","image_url":{"url":"u"}}"#;
    let messages = format!(r#"[{{"role":"assistant","content":["a",{image}]}}]"#);
    assert_eq!(
        dump(&messages, how),
        format!(
            r#"[{{"role": "assistant", "content": [{{"type": "text", "text": "aCONTINUE_FINAL_MESSAGE_TAG "}}, {{"type": "text", "text": "{MEDIA_TAG}"}}]}}]"#
        )
    );
    let messages = format!(r#"[{{"role":"assistant","content":[{image}]}}]"#);
    let (Json::Array(messages), _) = Json::parse(&messages).unwrap() else {
        panic!("not a list")
    };
    assert_eq!(
        prepare(messages.iter(), how).map(|_| ()),
        Err(Unscorable::Invalid)
    );
}

#[test]
fn shapes_that_the_engine_refuses_have_no_text() {
    for messages in [
        "[1]",
        "[{}]",
        r#"[{"role":1}]"#,
        r#"[{"role":"user","content":1}]"#,
        r#"[{"role":"user","content":[1]}]"#,
        r#"[{"role":"user","content":[{"type":"text","text":1}]}]"#,
        r#"[{"role":"user","content":[{"type":"thinking"}]}]"#,
        r#"[{"role":"user","content":[{"type":"file","file":{}}]}]"#,
        r#"[{"role":"user","content":[{"text":"a"}]}]"#,
        r#"[{"role":"user","content":[{"type":"hologram"}]}]"#,
        r#"[{"role":"assistant","tool_calls":{}}]"#,
        r#"[{"role":"assistant","tool_calls":[{}]}]"#,
        r#"[{"role":"assistant","tool_calls":[{"type":"custom","function":{}}]}]"#,
    ] {
        let (Json::Array(read), _) = Json::parse(messages).unwrap() else {
            panic!("not a list")
        };
        assert_eq!(
            prepare(read.iter(), STRING).unwrap_err(),
            Unscorable::Invalid,
            "{messages}"
        );
    }
}
