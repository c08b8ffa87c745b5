use super::*;

fn chat(body: &str) -> Request<'_> {
    parse(Api::Chat, body.as_bytes()).unwrap()
}

fn prompts(body: &str) -> (Vec<Given<'_>>, u32) {
    let request = parse(Api::Completions, body.as_bytes()).unwrap();
    let Ok(Input::Completions { prompts, .. }) = request.input else {
        panic!("no prompts: {request:?}")
    };
    (prompts, request.load_units)
}

#[test]
fn null_counts_as_absent() {
    let request = chat(
        r#"{"model":null,"messages":[],"stream":null,"n":null,"max_tokens":null,"tools":null,"cache_salt":null,
            "truncate_prompt_tokens":null,"prompt_logprobs":null,"add_generation_prompt":null,"chat_template":null}"#,
    );
    assert_eq!(request.model, None);
    assert!(!request.stream);
    assert_eq!(
        (request.load_units, request.max_tokens, &request.cache_salt),
        (1, None, &None)
    );
    assert!(
        matches!(&request.input, Ok(Input::Chat(chat)) if chat.add_generation_prompt && chat.tools == Json::Null)
    );
}

#[test]
fn simple_fields_are_read_and_borrow() {
    let request = chat(
        r#" {"messages":[{}],"model":"m","stream":true,"n":3,"max_tokens":9,"max_completion_tokens":16.0,"cache_salt":"s","x":[[{}]]} "#,
    );
    assert!(matches!(request.model, Some(Cow::Borrowed("m"))));
    assert!(matches!(request.cache_salt, Some(Cow::Borrowed("s"))));
    assert_eq!(
        (request.stream, request.load_units, request.max_tokens),
        (true, 3, Some(16))
    );
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    let request = parse(Api::Chat, b"\xef\xbb\xbf{\"model\":\"m\",\"messages\":[]}").unwrap();
    assert_eq!(request.model.as_deref(), Some("m"));
}

#[test]
fn bodies_that_are_no_request_are_errors() {
    let error = |body: &[u8]| parse(Api::Chat, body).unwrap_err();
    for body in [
        &b""[..],
        b"hello",
        b"{\"model\":\"m\"",
        b"{\"model\":\"m\",}",
        b"{} x",
    ] {
        assert!(matches!(error(body), BodyError::Json(_)), "{body:?}");
    }
    for body in [&b"[]"[..], b"\"m\"", b"null", b"3"] {
        assert_eq!(error(body), BodyError::NotObject, "{body:?}");
    }
    assert_eq!(error(b"{\"a\":\"\xff\"}"), BodyError::Utf8 { at: 6 });
    assert_eq!(error(b"{\"model\":[\"m\"]}").param(), Some("model"));
}

#[test]
fn wrong_types_elsewhere_leave_a_request_without_prompt() {
    for body in [
        r#"{"messages":"hi"}"#,
        r#"{"model":"m"}"#,
        r#"{"messages":[],"documents":3}"#,
        r#"{"messages":[],"cache_salt":3}"#,
        r#"{"messages":[],"add_generation_prompt":[]}"#,
        r#"{"messages":[],"continue_final_message":true}"#,
    ] {
        assert_eq!(chat(body).input.unwrap_err(), Unscorable::Invalid, "{body}");
    }
}

#[test]
fn fields_that_change_the_prompt_unpredictably_are_named() {
    for (body, reason) in [
        (
            r#"{"messages":[],"chat_template":"x"}"#,
            Unscorable::RequestTemplate,
        ),
        (
            r#"{"messages":[],"chat_template_kwargs":{"chat_template":"x"}}"#,
            Unscorable::RequestTemplate,
        ),
        (
            r#"{"messages":[],"truncate_prompt_tokens":5}"#,
            Unscorable::Truncation,
        ),
        (
            r#"{"messages":[],"prompt_logprobs":0}"#,
            Unscorable::NoCacheRead,
        ),
        (
            r#"{"messages":[],"kv_transfer_params":{"prompt_token_ids":[1]}}"#,
            Unscorable::ForwardedTokens,
        ),
        (
            r#"{"messages":[{"content":"\ud83d"}]}"#,
            Unscorable::LoneSurrogate,
        ),
    ] {
        assert_eq!(chat(body).input.unwrap_err(), reason, "{body}");
    }
    assert!(chat(r#"{"messages":[],"user":"u-\udcad"}"#).input.is_ok());
    let embeds = parse(Api::Completions, br#"{"prompt_embeds":"AA"}"#).unwrap();
    assert_eq!(embeds.input.unwrap_err(), Unscorable::Embeddings);
    let messages = parse(
        Api::Messages,
        br#"{"model":"m","max_tokens":5,"messages":[{"content":"\ud83d"}],"stream":true}"#,
    )
    .unwrap();
    assert_eq!((messages.max_tokens, messages.stream), (Some(5), true));
    assert_eq!(messages.input.unwrap_err(), Unscorable::Api);
}

#[test]
fn completion_prompts_come_in_four_forms() {
    assert_eq!(
        prompts(r#"{"prompt":"a"}"#),
        (vec![Given::Text("a".into())], 1)
    );
    assert_eq!(
        prompts(r#"{"prompt":["a","b","c"],"n":2}"#),
        (
            vec![
                Given::Text("a".into()),
                Given::Text("b".into()),
                Given::Text("c".into())
            ],
            6
        )
    );
    assert_eq!(
        prompts(r#"{"prompt":[1,2]}"#),
        prompts(r#"{"prompt":[[1,2]]}"#)
    );
    assert_eq!(prompts(r#"{"prompt":[[1],[2]]}"#).1, 2);
    for bad in [
        "[]",
        "{}",
        "[1,\"a\"]",
        "[-1]",
        "[1.5]",
        "[4294967296]",
        "[[],{}]",
    ] {
        let body = format!("{{\"prompt\":{bad}}}");
        let request = parse(Api::Completions, body.as_bytes()).unwrap();
        assert_eq!(request.input.unwrap_err(), Unscorable::Invalid, "{bad}");
    }
}

#[test]
fn claimed_load_is_bounded() {
    assert_eq!(
        chat(r#"{"messages":[],"n":1000000000000}"#).load_units,
        MAX_LOAD_UNITS
    );
    assert_eq!(chat(r#"{"messages":[],"n":0}"#).load_units, 1);
    assert_eq!(chat(r#"{"messages":[],"n":-5}"#).load_units, 1);
}

#[test]
fn forms_give_model_and_one_unit_of_load() {
    let body = b"--b\r\nContent-Disposition: form-data; name=\"stream\"\r\n\r\nTrue\r\n\
        --b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n";
    for api in [Api::Transcriptions, Api::Translations] {
        let request = parse(api, body).unwrap();
        assert_eq!(
            (request.model.as_deref(), request.stream),
            (Some("m"), true)
        );
        assert_eq!((request.load_units, request.prefill_bytes), (1, 0));
        assert_eq!(request.input.unwrap_err(), Unscorable::Api);
        assert_eq!(parse(api, b"\xff{").unwrap().model, None);
    }
}

#[test]
fn apis_that_run_no_model_prefill_nothing() {
    for api in Api::ALL {
        if api.body_format() == BodyFormat::Json {
            let request = parse(api, br#"{"model":"m","stream":true}"#).unwrap();
            assert_eq!(request.model.as_deref(), Some("m"));
            assert_eq!(request.prefill_bytes > 0, api.runs_model(), "{api:?}");
        }
    }
}
