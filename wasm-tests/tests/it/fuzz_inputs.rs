//! Inputs that fuzzing found, and hostile ones made by hand, as bodies of requests: the filter never traps, and each request goes on or is
//! answered.

use std::fs;
use std::path::Path;

use prefixway_wasm_tests::Rig;

const PATHS: [&str; 4] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/responses",
];

/// Files under a folder of the fuzz crate; none where there is no such folder.
fn files(folder: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../router-core/fuzz");
    let mut folders = vec![root.join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(fs::read(path).unwrap());
            }
        }
    }
    found.sort();
    found
}

/// Sends a body to a path, as it is and for the model that there is; what comes of it is an answer or a request that went on unchanged.
fn send(rig: &mut Rig, path: &str, body: &[u8]) {
    let headers = [(":method", "POST"), (":path", path)];
    let outcome = rig.host.vm(1).request(&headers).chunk(body).end();
    let shown = || String::from_utf8_lossy(body.get(..200).unwrap_or(body)).into_owned();
    assert_eq!(outcome.trap, None, "{path} {}", shown());
    assert!(
        outcome.forwarded != outcome.reply.is_some(),
        "{path} {}",
        shown()
    );
    if outcome.forwarded {
        assert!(outcome.body == body, "{path} {}", shown());
        rig.answer(1, &outcome, 0);
    }
}

/// The same body for the model that there is, where it may be an object.
fn for_the_model(body: &[u8]) -> Option<Vec<u8>> {
    let at = body.iter().position(|byte| *byte == b'{')?;
    let rest = String::from_utf8_lossy(body.get(at + 1..)?).replace("\"model\"", "\"models\"");
    Some(format!("{{\"model\":\"tiny\",{rest}").into_bytes())
}

fn send_to_all(rig: &mut Rig, body: &[u8]) {
    let with_model = for_the_model(body);
    for path in PATHS {
        send(rig, path, body);
        if let Some(body) = &with_model {
            send(rig, path, body);
        }
    }
}

#[test]
fn no_input_of_fuzzing_traps_the_filter() {
    let mut rig = Rig::new();
    // Most targets take their first byte for themselves.
    let body = |input: &[u8]| input.get(1..).unwrap_or_default().to_vec();
    let bodies = [
        files("corpus/request"),
        files("corpus/renderer"),
        files("crashes"),
    ];
    assert!(bodies[0].len() > 500 && bodies[1].len() > 500);
    for input in bodies.iter().flatten() {
        send_to_all(&mut rig, &body(input));
    }
    // Inputs of the other targets are no bodies, but bytes.
    let others =
        ["canonical", "encoding", "event", "replica"].map(|target| format!("corpus/{target}"));
    for (input, path) in others
        .iter()
        .flat_map(|folder| files(folder))
        .zip(PATHS.iter().cycle())
    {
        send(&mut rig, path, &body(&input));
    }
    rig.assert_healthy();
}

#[test]
fn no_hostile_input_traps_the_filter() {
    let mut rig = Rig::new();
    for body in hostile() {
        send_to_all(&mut rig, &body);
    }
    rig.assert_healthy();
}

/// Bodies that are large, deep, broken or odd in one way each.
fn hostile() -> Vec<Vec<u8>> {
    let chat = |content: &str| format!(r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#);
    let key = "k".repeat(1 << 20);
    let mut texts = vec![
        // Nesting, closed and not.
        format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
        chat(&"[".repeat(100_000)),
        chat(&format!("{}{}", "[".repeat(510), "]".repeat(510))),
        chat(&format!(
            "{}1{}",
            "{\"a\":".repeat(100_000),
            "}".repeat(100_000)
        )),
        // Numbers.
        format!(r#"{{"n":{},"prompt":"a"}}"#, "9".repeat(100_000)),
        format!(r#"{{"n":1e{},"prompt":"a"}}"#, "9".repeat(1000)),
        r#"{"n":-9223372036854775808,"prompt":"a","logprobs":1e400,"seed":NaN}"#.into(),
        format!(
            r#"{{"prompt":[{}]}}"#,
            "18446744073709551615,".repeat(9) + "0"
        ),
        format!(r#"{{"prompt":[{}0]}}"#, "1,".repeat(600_000)),
        // Halves of surrogate pairs, NULs, escapes.
        chat(r#""\ud83d""#),
        chat(r#""\ude00\ud83d a""#),
        chat(r#""\u0000\u0000""#),
        chat(&format!("\"{}\"", "\\u00e9".repeat(100_000))),
        "{\"prompt\":\"\0\"}".into(),
        "\0{\0\"\0".into(),
        // Keys.
        format!(r#"{{"{key}":1,"prompt":"a"}}"#),
        format!(r#"{{"chat_template_kwargs":{{"{key}":1}},"messages":[{{"role":"user","content":"a"}}]}}"#),
        format!("{{{}\"prompt\":\"a\"}}", "\"prompt\":\"b\",".repeat(50_000)),
        format!(
            "{{{}\"prompt\":\"a\"}}",
            (0..50_000).map(|i| format!("\"k{i}\":{i},")).collect::<Vec<_>>().concat()
        ),
        format!(
            r#"{{"chat_template_kwargs":{{{}"a":1}},"messages":[{{"role":"user","content":"a"}}]}}"#,
            (0..50_000).map(|i| format!("\"k{i}\":{i},")).collect::<Vec<_>>().concat()
        ),
        // Shapes.
        r#"{"messages":{"role":"user"},"prompt":{"a":1},"input":[[]]}"#.into(),
        r#"{"messages":[null,1,"a",[],{}],"prompt":[[],[1],["a"],null],"input":[null,{"type":[]}]}"#.into(),
        r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":null},{"type":"text"}]}]}"#.into(),
        chat(&format!("[{}1]", r#"{"type":"text","text":"a"},"#.repeat(20_000))),
        format!(
            r#"{{"messages":[{}{{"role":"user","content":"a"}}]}}"#,
            r#"{"role":"assistant","content":"b","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":[[[["}}]},"#.repeat(5_000)
        ),
        format!(r#"{{"prompt":"{}"}}"#, "<|im_start|>".repeat(50_000)),
        format!(r#"{{"prompt":"{}"}}"#, "e\u{301}\u{327}\u{323}".repeat(50_000)),
    ];
    // One body, cut at each place.
    let whole = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"\u00e9\n"}]}],"tools":null,"n":1.5e3,"stream":true}"#;
    texts.extend((0..whole.len()).map(|end| whole.chars().take(end).collect()));
    let mut bodies: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
    for bytes in [
        &b"{\"prompt\":\"\xff\xfe\"}"[..],
        b"{\"prompt\":\"\xed\xa0\x80\"}",
        b"\xff\xfe{\0}\0",
        b"\xef\xbb\xbf{\"prompt\":\"a\"}",
        b"{\"prompt\":\"\xf4\x90\x80\x80\"}",
    ] {
        bodies.push(bytes.to_vec());
    }
    bodies
}
