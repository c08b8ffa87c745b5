use super::*;

fn chat(body: &str) -> Request<'_> {
    parse(Api::Chat, body.as_bytes()).unwrap()
}

fn prompts(body: &str) -> (Vec<Given<'_>>, u32) {
    let request = parse(Api::Completions, body.as_bytes()).unwrap();
    let Ok(Input::Given { prompts, .. }) = request.input else {
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
        r#"{"messages":[],"tools":[]}"#,
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
    let odd = chat(r#"{"messages":[],"user":"u-\udcad"}"#);
    assert!(odd.input.is_ok() && odd.user.is_some());
    for (user, read) in [
        ("\"ann\"", Some("ann")),
        ("\"\"", None),
        ("7", None),
        ("[\"a\"]", None),
    ] {
        let body = format!("{{\"messages\":[],\"user\":{user}}}");
        assert_eq!(chat(&body).user.as_deref(), read, "{user}");
    }
    for (api, body, reason) in [
        (
            Api::Completions,
            r#"{"prompt_embeds":"AA"}"#,
            Unscorable::Embeddings,
        ),
        (
            Api::Completions,
            r#"{"prompt":"a","suffix":"b"}"#,
            Unscorable::Api,
        ),
        (
            Api::Responses,
            r#"{"input":"a","previous_response_id":"resp_1"}"#,
            Unscorable::StoredState,
        ),
        (Api::ChatBatch, r#"{"messages":[[],[]]}"#, Unscorable::Api),
    ] {
        let request = parse(api, body.as_bytes()).unwrap();
        assert_eq!(request.input.unwrap_err(), reason, "{body}");
    }
    let messages = parse(
        Api::Messages,
        br#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"\ud83d"}],"stream":true}"#,
    )
    .unwrap();
    assert_eq!((messages.max_tokens, messages.stream), (Some(5), true));
    assert_eq!(messages.input.unwrap_err(), Unscorable::LoneSurrogate);
}

#[test]
fn a_cut_of_what_would_be_refused_is_no_cut() {
    assert!(
        chat(r#"{"messages":[],"truncate_prompt_tokens":-1}"#)
            .input
            .is_ok()
    );
    for truncation in ["null", "\"auto\"", "\"disabled\""] {
        let body = format!(r#"{{"input":"a","truncation":{truncation}}}"#);
        let request = parse(Api::Responses, body.as_bytes()).unwrap();
        assert!(request.input.is_ok());
    }
}

#[test]
fn an_echo_with_log_probabilities_does_not_read_the_cache() {
    let reason = |api, body: &str| parse(api, body.as_bytes()).unwrap().input.err();
    let no_read = Some(Unscorable::NoCacheRead);
    for (api, body, expected) in [
        (Api::Chat, r#"{"messages":[],"echo":true}"#, no_read),
        (Api::Chat, r#"{"messages":[],"echo":false}"#, None),
        (Api::Completions, r#"{"prompt":"a","echo":true}"#, None),
        (Api::Completions, r#"{"prompt":"a","logprobs":1}"#, None),
        (
            Api::Completions,
            r#"{"prompt":"a","echo":true,"logprobs":0}"#,
            no_read,
        ),
    ] {
        assert_eq!(reason(api, body), expected, "{body}");
    }
}

#[test]
fn forwarded_ids_take_the_place_of_text_but_not_of_media() {
    let reason = |content: &str| {
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":{content}}}],"kv_transfer_params":{{"prompt_token_ids":[1]}}}}"#
        );
        chat(&body).input.err()
    };
    let forwarded = Some(Unscorable::ForwardedTokens);
    assert_eq!(reason(r#""a""#), forwarded);
    assert_eq!(reason(r#"["a",{"type":"text","text":"b"},{}]"#), forwarded);
    assert_eq!(reason(r#"[{"image_url":"u"}]"#), None);
    assert_eq!(reason(r#"[{"type":"input_audio","input_audio":{}}]"#), None);
    assert_eq!(reason(r#"[{"type":null}]"#), None);
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
fn apis_know_what_they_are_for() {
    for api in Api::ALL {
        if api.body_format() == BodyFormat::Json {
            let request = parse(api, br#"{"model":"m","stream":true}"#).unwrap();
            assert_eq!(request.model.as_deref(), Some("m"));
            assert_eq!(request.prefill_bytes > 0, api.runs_model(), "{api:?}");
            let is_read = request.input.unwrap_err() != Unscorable::Api;
            assert_eq!(is_read, api.has_prompt(), "{api:?}");
            assert!(api.runs_model() || !api.has_prompt());
        }
    }
}

/// The prompts of an input that needs no template.
fn given(api: Api, body: &str) -> Result<(Vec<Given<'_>>, bool), Unscorable> {
    match parse(api, body.as_bytes()).unwrap().input? {
        Input::Given {
            prompts,
            add_special_tokens,
        } => Ok((prompts, add_special_tokens)),
        Input::Chat(chat) => panic!("a chat: {chat:?}"),
    }
}

fn tokens(ids: &[u32]) -> Given<'static> {
    Given::Tokens {
        ids: ids.to_vec(),
        truncated: false,
    }
}

#[test]
fn embeddings_take_prompts_and_chats() {
    let text = |text: &'static str| Given::Text(text.into());
    for (body, prompts) in [
        (r#"{"input":"a"}"#, vec![text("a")]),
        (r#"{"input":["a","b"]}"#, vec![text("a"), text("b")]),
        (r#"{"input":[1,2]}"#, vec![tokens(&[1, 2])]),
        (r#"{"input":[[1],[2]]}"#, vec![tokens(&[1]), tokens(&[2])]),
    ] {
        assert_eq!(given(Api::Embeddings, body), Ok((prompts, true)), "{body}");
    }
    for body in [
        r#"{"messages":[{"role":"user","content":"a"}]}"#,
        r#"{"input":[{"role":"user","content":"a"}]}"#,
    ] {
        let request = parse(Api::Embeddings, body.as_bytes()).unwrap();
        let Ok(Input::Chat(chat)) = request.input else {
            panic!("no chat: {body}")
        };
        assert_eq!(chat.messages.len(), 1);
        assert!(!chat.add_generation_prompt && !chat.add_special_tokens);
        assert!(!chat.takes_default_kwargs);
    }
    for (body, reason) in [
        (r#"{"input":[]}"#, Unscorable::Invalid),
        (r#"{"input":[{}]}"#, Unscorable::Invalid),
        (r#"{"input":"a","messages":[]}"#, Unscorable::Invalid),
        (r#"{"messages":[[{"role":"user"}]]}"#, Unscorable::Batch),
    ] {
        assert_eq!(given(Api::Embeddings, body), Err(reason), "{body}");
    }
}

#[test]
fn generate_takes_token_ids_up_to_the_first_media() {
    let generate = |fields: &str| {
        let body = format!(r#"{{"token_ids":[5,6,7],"sampling_params":{{}}{fields}}}"#);
        let (prompts, _) = given(Api::Generate, &body)?;
        match &prompts[..] {
            [Given::Tokens { ids, truncated }] => Ok((ids.clone(), *truncated)),
            other => panic!("not one list of ids: {other:?}"),
        }
    };
    let whole = (vec![5, 6, 7], false);
    assert_eq!(generate(""), Ok(whole.clone()));
    assert_eq!(generate(r#","features":{"mm_placeholders":{}}"#), Ok(whole));
    let media = r#","features":{"mm_placeholders":{"image":[{"offset":2,"length":1}],"audio":[{"offset":1,"length":1}]}}"#;
    assert_eq!(generate(media), Ok((vec![5], true)));
    for (fields, reason) in [
        (r#","content_parts":[{}]"#, Unscorable::Media),
        (
            r#","features":{"mm_placeholders":{"image":[{"offset":0,"length":1}]}}"#,
            Unscorable::Media,
        ),
        (r#","features":3"#, Unscorable::Invalid),
        (
            r#","features":{"mm_placeholders":{"image":[{}]}}"#,
            Unscorable::Invalid,
        ),
        (r#","token_ids":"a""#, Unscorable::Invalid),
        (
            r#","sampling_params":{"prompt_logprobs":1}"#,
            Unscorable::NoCacheRead,
        ),
        (
            r#","sampling_params":{"skip_reading_prefix_cache":true}"#,
            Unscorable::NoCacheRead,
        ),
    ] {
        assert_eq!(generate(fields), Err(reason), "{fields}");
    }
    let reads = r#","sampling_params":{"skip_reading_prefix_cache":false,"prompt_logprobs":1}"#;
    assert!(generate(reads).is_ok());
}

#[test]
fn load_counts_the_sequences_that_the_engine_runs() {
    for (api, body, units) in [
        (Api::ChatBatch, r#"{"messages":[[],[],[]]}"#, 3),
        (Api::Embeddings, r#"{"input":["a","b"]}"#, 2),
        (Api::Embeddings, r#"{"input":[1,2,3]}"#, 1),
        (
            Api::Embeddings,
            r#"{"input":[{"role":"user"},{"role":"user"}]}"#,
            1,
        ),
        (Api::Embeddings, r#"{"messages":[[],[]]}"#, 2),
        (Api::Pooling, r#"{"input":["a","b"]}"#, 2),
        (Api::Score, r#"{"text_1":"a","text_2":["b","c"]}"#, 2),
        (
            Api::Score,
            r#"{"queries":"a","documents":["b","c","d"]}"#,
            3,
        ),
        (Api::Rerank, r#"{"query":"a","documents":["b","c"]}"#, 2),
        (Api::Generate, r#"{"sampling_params":{"n":4}}"#, 4),
        (Api::Messages, r#"{"n":4}"#, 1),
        (Api::Responses, r#"{"n":4}"#, 1),
        (Api::Tokenize, r#"{"prompt":"a"}"#, 1),
    ] {
        let request = parse(api, body.as_bytes()).unwrap();
        assert_eq!(request.load_units, units, "{body}");
    }
}

#[test]
fn media_is_no_text_to_prefill() {
    let data = "A".repeat(5000);
    let parts = [
        (
            Api::Chat,
            format!(r#"{{"type":"image_url","image_url":{{"url":"{data}"}}}}"#),
        ),
        (
            Api::Messages,
            format!(r#"{{"type":"image","source":{{"type":"base64","data":"{data}"}}}}"#),
        ),
        (
            Api::Messages,
            format!(
                r#"{{"type":"tool_result","content":[{{"type":"image","source":{{"data":"{data}"}}}}]}}"#
            ),
        ),
    ];
    for (api, part) in parts {
        let body = format!(r#"{{"messages":[{{"role":"user","content":["a",{part}]}}]}}"#);
        let request = parse(api, body.as_bytes()).unwrap();
        assert!(request.prefill_bytes < 300, "{}", request.prefill_bytes);
        let body = body
            .replace("\"image\"", "\"text\"")
            .replace("\"image_url\"", "\"text\"");
        let request = parse(api, body.as_bytes()).unwrap();
        assert_eq!(request.prefill_bytes, body.len() as u64);
    }
    let body = format!(
        r#"{{"input":[{{"role":"user","content":[{{"type":"input_image","image_url":"{data}"}}]}}]}}"#
    );
    let request = parse(Api::Responses, body.as_bytes()).unwrap();
    assert!(request.prefill_bytes < 300);
}
