//! Verdicts on requests, without any endpoints.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

const JSON: Option<&str> = Some("application/json");
const CHAT: &str = "/v1/chat/completions";

fn head(path: &'static str) -> Head<'static> {
    Head {
        method: "POST",
        path,
        content_type: JSON,
        ..Head::default()
    }
}

fn held(head: &Head<'_>) -> Held {
    match at_head(head, 1_000) {
        AtHead::Hold(held) => held,
        other => panic!("{head:?}: {other:?}"),
    }
}

fn models(count: usize) -> Vec<ModelProfile> {
    let profile = |number: usize| ModelProfile {
        id: format!("m{number}"),
        names: vec![format!("m{number}")],
        ..ModelProfile::default()
    };
    (0..count).map(profile).collect()
}

/// A lookup over names; no model is `Unsure`.
fn lookup<'a>(models: &'a [ModelProfile]) -> impl FnOnce(Option<&str>) -> Lookup<'a> {
    move |name| {
        let found = match name {
            Some(name) => models.iter().find(|model| model.id == name),
            None if models.len() == 1 => models.first(),
            None => None,
        };
        match found {
            Some(profile) => Lookup::Served(Served {
                profile,
                adapter: None,
            }),
            None if models.is_empty() => Lookup::Unsure,
            None => Lookup::NotServed {
                names: models.iter().map(|model| model.id.as_str()).collect(),
            },
        }
    }
}

fn judge<'a>(head: &Head<'_>, body: &'a [u8], models: &'a [ModelProfile]) -> Verdict<'a> {
    held(head).judge(Ok(body), lookup(models))
}

fn error(verdict: &Verdict<'_>) -> (u16, Value) {
    let Verdict::Refuse(refusal) = verdict else {
        panic!("{verdict:?}");
    };
    let reply = refusal.reply();
    assert_eq!(reply.headers, [("content-type", "application/json".into())]);
    assert!(Refusal::STATUSES.contains(&reply.status));
    (reply.status, serde_json::from_slice(&reply.body).unwrap())
}

#[test]
fn only_posts_on_known_paths_are_held() {
    assert!(matches!(at_head(&head(CHAT), 10), AtHead::Hold(_)));
    assert_eq!(at_head(&head("/v1/models"), 10), AtHead::Pass);
    for method in ["GET", "PUT", "post", ""] {
        let other = Head {
            method,
            ..head(CHAT)
        };
        assert_eq!(at_head(&other, 10), AtHead::Pass, "{method}");
    }
}

#[test]
fn a_length_over_the_cap_is_refused_before_the_body_comes() {
    let of = |content_length| Head {
        content_length,
        ..head(CHAT)
    };
    for fits in [None, Some("10"), Some(" 0 "), Some("x"), Some("-11")] {
        assert!(
            matches!(at_head(&of(fits), 10), AtHead::Hold(_)),
            "{fits:?}"
        );
    }
    for long in ["11", "18446744073709551615"] {
        let AtHead::Refuse(refusal) = at_head(&of(Some(long)), 10) else {
            panic!("{long}");
        };
        assert_eq!(refusal.cause(), Cause::TooLarge);
        assert_eq!(refusal.reply().status, 413);
    }
    assert!(held(&head(CHAT)).is_too_large(1_001));
    assert!(!held(&head(CHAT)).is_too_large(1_000));
}

#[test]
fn json_without_body_is_refused_and_a_form_is_left_to_the_engine() {
    let ends = |path| Head {
        ends: true,
        ..head(path)
    };
    assert!(matches!(at_head(&ends(CHAT), 10), AtHead::Refuse(_)));
    let audio = ends("/v1/audio/transcriptions");
    assert_eq!(at_head(&audio, 10), AtHead::Pass);
}

#[test]
fn bodies_that_engines_can_not_read_are_refused() {
    let models = models(1);
    for (body, code) in [
        (&b""[..], "body_required"),
        (b"{\"model\":\"m0\",\"messages\":[", "body_invalid"),
        (b"{\"model\":\"m0\",}", "body_invalid"),
        (b"hello", "body_invalid"),
        (b"[]", "body_invalid"),
        (b"\"m0\"", "body_invalid"),
        (b"null", "body_invalid"),
        (b"{\"model\":\"\xff\"}", "body_invalid"),
        (b"{\"model\":[\"m0\"]}", "model_invalid"),
    ] {
        let verdict = judge(&head(CHAT), body, &models);
        let (status, json) = error(&verdict);
        let shown = String::from_utf8_lossy(body);
        assert_eq!(
            (status, json["error"]["code"].as_str()),
            (400, Some(code)),
            "{shown}"
        );
        assert_eq!(json["error"]["type"], "BadRequestError", "{shown}");
    }
}

#[test]
fn what_does_not_claim_to_be_json_is_left_to_the_engine() {
    let models = models(1);
    for content_type in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let other = Head {
            content_type: Some(content_type),
            ..head(CHAT)
        };
        let passes = judge(&other, b"hello", &models);
        assert!(
            matches!(passes, Verdict::Pass(Cause::BadBody)),
            "{content_type}"
        );
        // It is routed all the same where it can be read.
        let routes = judge(&other, b"{\"model\":\"m0\"}", &models);
        assert!(matches!(routes, Verdict::Route(_)), "{content_type}");
    }
    for content_type in [
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/x+json",
    ] {
        let json = Head {
            content_type: Some(content_type),
            ..head(CHAT)
        };
        assert_eq!(error(&judge(&json, b"hello", &models)).0, 400);
    }
    let none = Head {
        content_type: None,
        ..head(CHAT)
    };
    assert_eq!(error(&judge(&none, b"hello", &models)).0, 400);
}

#[test]
fn a_model_is_needed_where_more_than_one_is_served() {
    let (one, two) = (models(1), models(2));
    for body in [&b"{}"[..], b"{\"model\":null}", b"{\"model\":\"\"}"] {
        assert!(matches!(judge(&head(CHAT), body, &one), Verdict::Route(_)));
        let (status, json) = error(&judge(&head(CHAT), body, &two));
        assert_eq!(status, 400);
        assert_eq!(json["error"]["param"], "model");
        assert_eq!(json["error"]["code"], "model_required");
        let message = json["error"]["message"].as_str().unwrap();
        assert!(message.contains("m0, m1"), "{message}");
    }
}

#[test]
fn an_unknown_model_does_not_exist_unless_something_is_unknown() {
    let two = models(2);
    let body = br#"{"model":"m\u0022<script>"}"#;
    let (status, json) = error(&judge(&head(CHAT), body, &two));
    assert_eq!(status, 404);
    assert_eq!(json["error"]["param"], "model");
    assert_eq!(json["error"]["code"], "model_not_found");
    assert_eq!(json["error"]["type"], "NotFoundError");
    assert_eq!(
        json["error"]["message"],
        "The model `m\"<script>` does not exist. Set `model` to one of: m0, m1."
    );
    let verdict = judge(&head(CHAT), body, &[]);
    assert!(matches!(verdict, Verdict::Pass(Cause::UnknownModel)));
    let verdict = judge(&head(CHAT), b"{}", &[]);
    assert!(matches!(verdict, Verdict::Pass(Cause::NoModel)));
}

#[test]
fn messages_do_not_grow_with_what_a_client_sends_or_an_operator_serves() {
    let many = models(1_000);
    let body = format!(r#"{{"model":"{}"}}"#, "ü".repeat(100_000));
    let verdict = judge(&head(CHAT), body.as_bytes(), &many);
    let (_, json) = error(&verdict);
    let message = json["error"]["message"].as_str().unwrap();
    assert!(
        message.len() < 1_000 && message.ends_with("m15, ...."),
        "{message}"
    );
}

#[test]
fn anthropic_clients_get_their_own_envelope() {
    let models = models(1);
    let messages = head("/v1/messages?beta=true");
    let verdict = judge(&messages, b"{\"model\":\"x\"}", &models);
    let (status, json) = error(&verdict);
    assert_eq!((status, &json["type"]), (404, &Value::from("error")));
    assert_eq!(json["error"]["type"], "not_found_error");
    assert!(json["error"]["message"].as_str().unwrap().contains("`x`"));
    assert_eq!(json["error"].as_object().unwrap().len(), 2);
}

#[test]
fn bodies_that_can_not_be_read_are_routed_by_load_where_the_model_is_certain() {
    let gzip = Head {
        content_encoding: Some("br"),
        ..head(CHAT)
    };
    let (one, two) = (models(1), models(2));
    let opened = held(&gzip).open(b"xyz");
    assert_eq!(opened, Err(LoadOnly::UnsupportedEncoding));
    let why = opened.unwrap_err();
    let Verdict::Route(route) = held(&gzip).judge(Err(why), lookup(&one)) else {
        panic!("not routed");
    };
    assert_eq!((route.load_units(), route.request.unwrap_err()), (1, why));
    let verdict = held(&gzip).judge(Err(why), lookup(&two));
    assert!(matches!(verdict, Verdict::Pass(Cause::NoModel)));
}

#[test]
fn what_python_decodes_is_never_refused_for_its_charset() {
    let models = models(1);
    let text = "{\"model\":\"m0\"}";
    let wide = |to_bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(to_bytes).collect();
    let mut marked: Vec<u8> = b"\xff\xfe".to_vec();
    marked.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    let bodies: [Vec<u8>; 5] = [
        wide(u16::to_le_bytes),
        wide(u16::to_be_bytes),
        marked,
        text.chars()
            .flat_map(|c| u32::from(c).to_le_bytes())
            .collect(),
        b"{\"user\":\"\xed\xa0\xbd\",\"model\":\"m0\"}".to_vec(),
    ];
    for body in bodies {
        let Verdict::Route(route) = judge(&head(CHAT), &body, &models) else {
            panic!("{body:?}");
        };
        assert_eq!(route.request.unwrap_err(), LoadOnly::Charset, "{body:?}");
    }
}

#[test]
fn bodies_are_decoded_up_to_the_cap() {
    let coded = |coding| Head {
        content_encoding: coding,
        ..head(CHAT)
    };
    for plain in [
        None,
        Some(""),
        Some("identity"),
        Some(" Identity , identity"),
    ] {
        let opened = held(&coded(plain)).open(b"{}").unwrap();
        assert_eq!(opened.as_ref(), b"{}", "{plain:?}");
    }
    // `{}` in a stored block.
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01\x02\0\xfd\xff{}\x43\xbf\xa6\xa3\x02\0\0\0";
    let opened = held(&coded(Some("gzip"))).open(gzip).map(Cow::into_owned);
    assert_eq!(opened, Ok(b"{}".to_vec()));
    let AtHead::Hold(small) = at_head(&coded(Some("gzip")), 1) else {
        panic!("not held");
    };
    assert_eq!(small.open(gzip), Err(LoadOnly::Undecodable));
    let cut = held(&coded(Some("gzip")))
        .open(&gzip[..20])
        .map(Cow::into_owned);
    assert_eq!(cut, Err(LoadOnly::Undecodable));
    for other in ["br", "identity, br", "compress"] {
        let opened = held(&coded(Some(other))).open(gzip).map(Cow::into_owned);
        assert_eq!(opened, Err(LoadOnly::UnsupportedEncoding), "{other}");
    }
}

#[test]
fn units_of_load_are_those_of_the_request() {
    let models = models(1);
    let body = br#"{"prompt":["a","b","c"],"n":2,"stream":true}"#;
    let Verdict::Route(route) = judge(&head("/v1/completions"), body, &models) else {
        panic!("not routed");
    };
    assert_eq!((route.load_units(), route.is_streamed()), (6, true));
}

#[test]
fn deep_nesting_is_refused() {
    let body = format!("{{\"x\":{}", "[".repeat(200_000));
    let verdict = judge(&head(CHAT), body.as_bytes(), &[]);
    let (status, json) = error(&verdict);
    assert_eq!(status, 400);
    let message = json["error"]["message"].as_str().unwrap();
    assert!(message.contains("nesting deeper"), "{message}");
}

/// Any JSON with keys that matter and others.
fn json() -> impl Strategy<Value = Value> {
    let key = proptest::sample::select(&["model", "messages", "prompt", "n", "x"][..]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z\u{e9}\u{1f6a2}\\\\\"]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((key.clone(), inner), 0..5).prop_map(|entries| {
                let entries = entries.into_iter();
                Value::Object(
                    entries
                        .map(|(key, value)| (key.to_owned(), value))
                        .collect(),
                )
            }),
        ]
    })
}

proptest! {
    #[test]
    fn an_object_is_never_a_bad_body_unless_its_model_is_no_name(body in json()) {
        let models = models(2);
        let text = body.to_string();
        let verdict = judge(&head(CHAT), text.as_bytes(), &models);
        let is_bad = matches!(&verdict, Verdict::Refuse(refusal) if refusal.cause() == Cause::BadBody);
        let has_name = matches!(body.get("model"), None | Some(Value::Null | Value::String(_)));
        prop_assert_eq!(is_bad, !(body.is_object() && has_name), "{}", text);
    }

    #[test]
    fn every_request_has_a_verdict(
        method in "(POST|GET|[a-z]{0,3})",
        path in "(/v1/chat/completions|/v1/messages|/v1/audio/translations|/[a-z/?]{0,9})",
        texts in proptest::collection::vec(proptest::option::of("(application/json|gzip|zstd|[0-9]{1,22}|.{0,9})"), 3),
        ends in any::<bool>(),
        body in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        let head = Head {
            method: &method,
            path: &path,
            content_type: texts[0].as_deref(),
            content_encoding: texts[1].as_deref(),
            content_length: texts[2].as_deref(),
            ends,
        };
        let models = models(1);
        match at_head(&head, 100) {
            AtHead::Pass => {}
            AtHead::Refuse(refusal) => prop_assert!(!refusal.reply().body.is_empty()),
            AtHead::Hold(held) => {
                let opened = held.open(&body);
                let opened = opened.as_ref().map(AsRef::as_ref).map_err(|why| *why);
                if let Verdict::Refuse(refusal) = held.judge(opened, lookup(&models)) {
                    let reply: Value = serde_json::from_slice(&refusal.reply().body).unwrap();
                    prop_assert!(reply["error"]["message"].is_string());
                }
            }
        }
    }
}
