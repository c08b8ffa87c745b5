//! The request cases that concern prompt text.

use std::path::Path;

use prefixway_core::hash::{Scope, Seed, chunk_hashes};
use prefixway_core::text::{
    Api, BodyError, LocalTime, Prompt, Prompter, Request, Unscorable, parse,
};
use serde_json::Value;

use crate::inputs::{self, prompter};

/// Cases whose parsing and text are checked here; the others concern headers, transport or endpoints.
const CASES: [&str; 15] = [
    "adapter-as-model",
    "assistant-tool-calls-without-content",
    "cache-salt",
    "content-as-parts",
    "deep-nesting",
    "developer-role-names-reasoning",
    "image-6mib",
    "image-in-tool-message",
    "lone-surrogate",
    "malformed-json",
    "messages-with-query",
    "nulls-and-zeros",
    "prompt-array-of-strings",
    "prompt-token-ids",
    "unknown-fields",
];

/// The body of a case's `request`.
fn body(request: &Value) -> Vec<u8> {
    if let Some(text) = request["body_text"].as_str() {
        return text.as_bytes().to_vec();
    }
    if let Some(parts) = request["body_parts"].as_array() {
        return parts
            .iter()
            .map(|part| match part["text"].as_str() {
                Some(text) => text.to_owned(),
                None => part["repeat"]
                    .as_str()
                    .unwrap()
                    .repeat(usize::try_from(part["times"].as_u64().unwrap()).unwrap()),
            })
            .collect::<String>()
            .into_bytes();
    }
    serde_json::to_vec(&request["body"]).unwrap()
}

fn api(request: &Value) -> Api {
    Api::from_path(request["path"].as_str().unwrap()).unwrap()
}

/// Everything that tells prompts apart.
#[derive(Debug, PartialEq)]
struct Identity {
    model: String,
    salt: String,
    prompts: Vec<Prompt>,
}

fn identity(prompter: &Prompter, api: Api, body: &[u8]) -> Result<Identity, Unscorable> {
    let request: Request<'_> = parse(api, body).unwrap();
    Ok(Identity {
        model: request.model.as_deref().unwrap_or_default().to_owned(),
        salt: request.cache_salt.as_deref().unwrap_or_default().to_owned(),
        prompts: prompter.prompts(&request, LocalTime::from_date(2026, 1, 1))?,
    })
}

impl Identity {
    fn first_hashes(&self) -> Vec<u64> {
        let seed = Seed(7);
        let prompt = &self.prompts[0];
        let scope = Scope {
            space: prompt.space,
            profile: "p",
            revision: 1,
            adapter: &self.model,
            salt: &self.salt,
        };
        chunk_hashes(scope.hash(seed), &prompt.text, seed)
            .map(|hash| hash.0)
            .collect()
    }

    /// Checks `relation` of a case's `compare` list.
    fn check(&self, relation: &str, twin: &Self, name: &str) {
        let shared = self.prompts[0]
            .text
            .iter()
            .zip(&twin.prompts[0].text)
            .take_while(|(a, b)| a == b)
            .count();
        match relation {
            "same_prefix" => assert_eq!(self, twin, "{name}"),
            "different_prefix" => {
                let (ours, theirs) = (self.first_hashes(), twin.first_hashes());
                let equal = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
                let same_scope = self.model == twin.model && self.salt == twin.salt;
                assert!(
                    if same_scope {
                        equal <= shared / 64
                    } else {
                        equal == 0
                    },
                    "{name}"
                );
                // An image that isn't looked at ends the text before it.
                let truncated = self.prompts[0].truncated && twin.prompts[0].truncated;
                assert!(self != twin || truncated, "{name}");
            }
            "common_prefix_kept" => {
                // Only what is written for the turn that ends differently may differ.
                assert!(shared > 0, "{name}");
            }
            other => panic!("{name}: unknown relation {other}"),
        }
    }
}

fn run(name: &str, case: &Value, prompter: &Prompter) {
    let mut variants = vec![case];
    variants.extend(case["variants"].as_array().into_iter().flatten());
    for variant in variants {
        let request = &variant["request"];
        if request.is_null() {
            continue;
        }
        let expect = if variant["expect"].is_null() {
            &case["expect"]
        } else {
            &variant["expect"]
        };
        let (api, body) = (api(request), body(request));
        let parsed = parse(api, &body);
        match expect["result"].as_str().unwrap_or("route") {
            "reject" => assert!(parsed.is_err(), "{name}: {expect}"),
            "route" => {
                let parsed = parsed.unwrap_or_else(|error| panic!("{name}: {error}"));
                if let Some(streaming) = expect["streaming"].as_bool() {
                    assert_eq!(parsed.stream, streaming, "{name}");
                }
                if let Some(units) = expect["load_units"].as_u64() {
                    assert_eq!(u64::from(parsed.load_units), units, "{name}");
                }
            }
            _ => continue,
        }
        if expect["result"] == "reject" {
            continue;
        }
        let ours = identity(prompter, api, &body);
        match expect["prefix"].as_str() {
            Some("use") => assert!(ours.is_ok(), "{name}: {ours:?}"),
            Some("none") => assert!(ours.is_err(), "{name}"),
            _ => {}
        }
        for compare in variant["compare"].as_array().into_iter().flatten() {
            let twin = &compare["request"];
            let twin = identity(prompter, self::api(twin), &self::body(twin));
            if let (Ok(ours), Ok(twin)) = (&ours, &twin) {
                ours.check(compare["relation"].as_str().unwrap(), twin, name);
            }
        }
    }
}

fn read_case(folder: &Path, name: &str) -> Value {
    let path = folder.join(format!("requests/{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap()
}

#[test]
fn requests_of_the_cases_are_read_as_expected() {
    let Some(folder) = inputs::folder("PREFIXWAY_CASES", "shared/cases") else {
        return;
    };
    for model in ["tinybpe", "llama3_1"] {
        let prompter = prompter(model);
        for name in CASES {
            if folder.join(format!("requests/{name}.json")).is_file() {
                run(
                    &format!("{model} {name}"),
                    &read_case(&folder, name),
                    &prompter,
                );
            }
        }
    }
}

#[test]
fn a_byte_order_mark_changes_nothing() {
    let Some(folder) = inputs::folder("PREFIXWAY_CASES", "shared/cases") else {
        return;
    };
    let Ok(raw) = std::fs::read(folder.join("requests/byte-order-mark.http")) else {
        return;
    };
    let at = raw
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap()
        + 4;
    let body = &raw[at..];
    let plain = body.strip_prefix(b"\xef\xbb\xbf").unwrap();
    let prompter = prompter("tinybpe");
    assert_eq!(
        identity(&prompter, Api::Chat, body),
        identity(&prompter, Api::Chat, plain)
    );
}

#[test]
fn deep_nesting_is_refused_fast() {
    let body = format!("{{\"x\":{}", "[".repeat(8 << 20));
    let started = std::time::Instant::now();
    assert!(matches!(
        parse(Api::Chat, body.as_bytes()),
        Err(BodyError::Json(_))
    ));
    assert!(started.elapsed().as_millis() < 50);
}

#[test]
fn text_ends_before_the_first_image() {
    let prompter = prompter("llama3_1");
    let body = br#"{"messages":[{"role":"user","content":[{"type":"text","text":"Look at this:"},
        {"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}},{"type":"text","text":"What is it?"}]}]}"#;
    let prompt = prompter
        .prompt(
            &parse(Api::Chat, body).unwrap(),
            LocalTime::from_date(2026, 1, 1),
        )
        .unwrap();
    assert!(prompt.truncated);
    assert!(
        String::from_utf8(prompt.text)
            .unwrap()
            .ends_with("Look at this:")
    );
}
