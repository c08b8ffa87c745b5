use super::*;

mod profiles;
pub(super) mod schema;
mod sharing;

const GOOD: &str = "
models:
  - {id: tiny, names: [tiny, small], adapters: [lora-a], model_dir: ./model}
endpoints:
  - address: 127.0.0.1:8000
    model: tiny
    events: {connect: 'tcp://127.0.0.1:5557', replay: 'tcp://127.0.0.1:5558'}
";

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/etc/prefixway"), &Overrides::default())
}

fn error(text: &str) -> String {
    parse(text).expect_err("this is wrong").to_string()
}

/// `GOOD` with one thing replaced.
fn with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    GOOD.replace(from, to)
}

#[test]
fn the_shortest_file_has_the_documented_defaults() {
    let config = parse(GOOD).unwrap();
    assert_eq!(config.listen.http.to_string(), DEFAULT_HTTP);
    assert_eq!(config.listen.grpc.to_string(), DEFAULT_GRPC);
    assert!(config.listen.http.ip().is_loopback() && config.listen.grpc.ip().is_loopback());
    assert_eq!(config.shard, DEFAULT_SHARD);
    assert_eq!(
        config.seed,
        SeedSource::Generated("/etc/prefixway/./state/seed".into())
    );
    assert_eq!(
        config.models[0].model_dir,
        Path::new("/etc/prefixway/./model")
    );
    assert_eq!(config.models[0].pool, DEFAULT_POOL);
    assert_eq!(config.endpoints[0].role, Role::Both);
    assert!(config.endpoints[0].scrape);
    assert_eq!(config.policy.max_age, DEFAULT_MAX_AGE);
    assert_eq!(config.policy.mode, Mode::On);
    assert!(config.policy.reject_bad_requests);
    assert_eq!(config.index.tick, DEFAULT_TICK);
    assert_eq!(config.index.token_space, Switch::On);
    assert_eq!(config.scrape.interval, DEFAULT_SCRAPE_INTERVAL);
}

#[test]
fn an_endpoint_has_all_adapters_some_or_none() {
    let adapters = |line: &str| {
        let text = with("    model: tiny\n", &format!("    model: tiny\n{line}"));
        parse(&text).unwrap().endpoints.remove(0).adapters
    };
    assert_eq!(adapters(""), None);
    assert_eq!(adapters("    adapters: []\n"), Some(Vec::new()));
    let one = Some(vec!["lora-a".to_owned()]);
    assert_eq!(adapters("    adapters: [lora-a]\n"), one);
}

#[test]
fn a_model_without_names_is_asked_for_by_its_id() {
    let config = parse(&with("names: [tiny, small], ", "")).unwrap();
    assert_eq!(config.models[0].names, ["tiny"]);
}

#[test]
fn a_model_says_how_its_engines_were_started() {
    use crate::time_zone::Clock;
    use prefixway_core::text::ContentFormat;
    let model = |more: &str| {
        let text = with("[lora-a]", &format!("[lora-a]{more}"));
        parse(&text).unwrap().models.remove(0)
    };
    let plain = model("");
    assert_eq!(plain.server, Server::default());
    assert_eq!((plain.clock, plain.calibration), (None, Switch::On));
    let flagged = model(
        ", tokenizer_mode: hf, content_format: openai, default_chat_template_kwargs: {enable_thinking: false, n: 1.0},
          exclude_tools_when_tool_choice_none: true, utc_offset_s: -3600, calibration: off",
    );
    assert_eq!(
        flagged.server,
        Server {
            tokenizer_mode: Some("hf".to_owned()),
            content_format: Some(ContentFormat::OpenAi),
            default_kwargs: Some(r#"{"enable_thinking":false,"n":1.0}"#.to_owned()),
            exclude_tools_when_tool_choice_none: true,
        }
    );
    assert_eq!(flagged.clock, Some(Clock::Offset(-3600)));
    assert_eq!(flagged.calibration, Switch::Off);
    let text = with(
        "[lora-a]",
        "[lora-a], tokenizer_mode: hf, content_format: openai, calibration: off",
    );
    let description = parse(&text).unwrap().describe();
    for line in [
        "  engines started with tokenizer mode hf, content format openai\n",
        "  prompts are as its files say, whatever its engines do (calibration off)\n",
    ] {
        assert!(description.contains(line), "{description}");
    }
    let zone = model(", time_zone: Europe/Zurich").clock;
    assert_eq!(zone, Clock::zone("Europe/Zurich"));
}

#[test]
fn the_description_says_whether_token_ids_are_known() {
    let off = parse(&format!("index: {{token_space: off}}{GOOD}")).unwrap();
    for (config, words) in [
        (parse(GOOD).unwrap(), "known by text and by token ids"),
        (off, "requests that carry token ids are routed by load"),
    ] {
        let description = config.describe();
        assert!(description.contains(words), "{description}");
    }
}

#[test]
fn flags_replace_the_file_and_their_paths_are_not_relative_to_it() {
    let text = format!("listen: {{http: '127.0.0.1:1'}}\nseed: 0x12\nshard: a\n{GOOD}");
    let overrides = Overrides {
        http: Some("127.0.0.1:2".to_owned()),
        grpc: Some("127.0.0.1:0".to_owned()),
        state_dir: Some("here".into()),
        seed_file: Some("secret".into()),
        shard: Some("b".to_owned()),
    };
    let config = Config::parse(&text, Path::new("/etc"), &overrides).unwrap();
    assert_eq!(config.listen.http.port(), 2);
    assert_eq!(config.listen.grpc.port(), 0);
    assert_eq!(config.state_dir, Path::new("here"));
    assert_eq!(config.seed, SeedSource::File("secret".into()));
    assert_eq!(config.shard, "b");
}

#[test]
fn a_seed_is_a_number_or_hexadecimal_text_and_never_shown() {
    use prefixway_core::hash::Seed;
    for text in [
        "0xdeadbeefdeadbeef",
        "'0xdeadbeefdeadbeef'",
        "16045690984503098046",
    ] {
        let config = parse(&format!("seed: {text}\n{GOOD}")).unwrap();
        let SeedSource::Given(seed) = config.seed else {
            panic!("{:?}", config.seed)
        };
        assert!(
            seed == Seed(0xdead_beef_dead_beef) || text.starts_with("1604"),
            "{text}"
        );
        assert!(
            !format!("{config:?}{}", config.describe())
                .to_lowercase()
                .contains("deadbeef")
        );
    }
    for text in [
        "0",
        "-3",
        "hexadecimal-secret",
        "0x",
        "0xdeadbeefdeadbeef00",
    ] {
        let message = error(&format!("seed: {text}\n{GOOD}"));
        assert!(
            message.contains("seed: is not a seed, allowed: 0x and 1 to 16"),
            "{message}"
        );
        assert!(
            !message.contains("deadbeef") && !message.contains("secret-"),
            "{message}"
        );
    }
}

#[test]
fn broken_rules_name_key_value_range_and_hint() {
    for (text, expected) in [
        (
            with("127.0.0.1:8000", "engine-0:8000"),
            "endpoints[0].address: \"engine-0:8000\" is not an address, allowed: ip:port, IPv6 in brackets\n  hint: ",
        ),
        (
            with("127.0.0.1:8000", "0.0.0.0:8000"),
            "endpoints[0].address: \"0.0.0.0:8000\" can't be connected to, allowed: ",
        ),
        (
            with("model: tiny\n", "model: small\n"),
            "endpoints[0].model: \"small\" is not a model, allowed: tiny\n  hint: ",
        ),
        (
            with("connect:", "bind: 'tcp://*:1', connect:"),
            "endpoints[0].events: has both connect and bind, allowed: one",
        ),
        (
            with("connect: 'tcp://127.0.0.1:5557', ", ""),
            "endpoints[0].events: has neither connect and bind",
        ),
        (
            with("tcp://127.0.0.1:5557", "tcp://*:5557"),
            "events.connect: \"tcp://*:5557\" is an address to bind, not to connect to",
        ),
        (
            with("tcp://127.0.0.1:5557", "127.0.0.1:5557"),
            "events.connect: \"127.0.0.1:5557\" is not a ZeroMQ address, allowed: ",
        ),
        (
            with("tcp://127.0.0.1:5558", "tcp://127.0.0.1"),
            "events.replay: \"tcp://127.0.0.1\" has no port, allowed: ",
        ),
        (
            with("[lora-a]", "[tiny]"),
            "models[0].adapters[0]: \"tiny\" is also models[0].names[0], allowed: each value once",
        ),
        (
            with(
                "model: tiny\n",
                "model: tiny\n    prefill_tokens_per_s: 0\n",
            ),
            "prefill_tokens_per_s: \"0\" is out of range, allowed: 1 to 1000000000",
        ),
        (
            with("model: tiny\n", "model: tiny\n    adapters: [lora-b]\n"),
            "adapters[0]: \"lora-b\" is not an adapter of model tiny, allowed: lora-a",
        ),
        (
            format!("policy: {{beta: -1}}{GOOD}"),
            "policy.beta: \"-1\" is out of range, allowed: 0 to 100",
        ),
        (
            format!("policy: {{beta: .nan}}{GOOD}"),
            "policy.beta: \"NaN\" is out of range",
        ),
        (
            format!("policy: {{max_age: 5}}{GOOD}"),
            "policy.max_age: \"5\" is not a duration, allowed: 100ms to 3600s\n  hint: write a whole number and a unit",
        ),
        (
            format!("policy: {{default_model: small}}{GOOD}"),
            "policy.default_model: \"small\" is not a model's id",
        ),
        (
            format!("index: {{tick: 50ms}}{GOOD}"),
            "index.tick: \"50ms\" is out of range, allowed: 1ms to 20ms",
        ),
        (
            format!("listen: {{http: localhost}}{GOOD}"),
            "listen.http: \"localhost\" is not an address, allowed: ip:port\n  hint: ",
        ),
        (
            format!("listen: {{http: '127.0.0.1:9701'}}{GOOD}"),
            "listen.grpc: \"127.0.0.1:9701\" is also listen.http",
        ),
        (
            format!("seed: 1\nseed_file: s{GOOD}"),
            "seed_file: \"s\" is given besides seed, allowed: one of them",
        ),
        (
            with("[lora-a]", "[lora-a], time_zone: Nowhere"),
            "models[0].time_zone: \"Nowhere\" is not a time zone, allowed: a name of the IANA database\n  hint: ",
        ),
        (
            with("[lora-a]", "[lora-a], time_zone: UTC, utc_offset_s: 0"),
            "models[0].time_zone: \"UTC\" is given besides utc_offset_s, allowed: one of them",
        ),
        (
            with("[lora-a]", "[lora-a], utc_offset_s: 60000"),
            "models[0].utc_offset_s: \"60000\" is out of range, allowed: -50400 to 50400",
        ),
        (
            "endpoints: []".to_owned(),
            "models: \"0\" models are configured, allowed: 1 to 256",
        ),
    ] {
        let message = error(&text);
        assert!(
            message.contains(expected),
            "expected {expected}\ngot {message}"
        );
    }
}

#[test]
fn every_broken_rule_is_reported_at_once() {
    let message = error(&format!(
        "policy: {{beta: -1, max_age: 1ms}}{}",
        with("model: tiny\n", "model: big\n")
    ));
    assert!(
        message.starts_with("configuration breaks 3 rules\n- "),
        "{message}"
    );
}

#[test]
fn an_address_belongs_to_one_endpoint_unless_ranks_tell_them_apart() {
    let endpoint = |rank: &str| format!("  - {{address: '[::1]:8000', model: tiny{rank}}}\n");
    let two = |a: &str, b: &str| format!("{GOOD}{}{}", endpoint(a), endpoint(b));
    assert!(
        error(&two("", ""))
            .contains("endpoints[2].address: \"[::1]:8000\" is also endpoints[1].address")
    );
    let respelled = two("", "").replacen("[::1]:8000", "[::0:1]:08000", 1);
    assert!(
        error(&respelled)
            .contains("endpoints[2].address: \"[::1]:8000\" is also endpoints[1].address")
    );
    let config = parse(&two(", rank: 0", ", rank: 1")).unwrap();
    assert_eq!(config.endpoints[1].address.to_string(), "[::1]:8000");
    assert_eq!(config.endpoints[2].rank, Some(1));
}

#[test]
fn admission_needs_a_bound_and_figures_outlive_an_idle_engines_rest() {
    let with = |text: &str| parse(&format!("{text}{GOOD}"));
    let text = with("policy: {admission: {retry_after: 2s}}")
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("policy.admission") && text.contains("max_waiting"),
        "{text}"
    );
    let text = with("policy: {admission: {max_kv_usage_ratio: 2}}")
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("policy.admission.max_kv_usage_ratio"),
        "{text}"
    );
    let config =
        with("policy: {admission: {max_waiting: 4, retry_after: 2s}, failure_mode: closed}")
            .unwrap();
    let admission = config.policy.admission.unwrap();
    assert_eq!(
        (admission.max_waiting, admission.max_in_flight),
        (Some(4), None)
    );
    assert_eq!(admission.retry_after, Duration::from_secs(2));
    assert_eq!(config.policy.failure_mode, Some(FailureMode::Closed));
    let config = with("scrape: {idle_interval: 20s}").unwrap();
    assert_eq!(config.scrape.max_age, Duration::from_secs(40));
    let text = with("scrape: {max_age: 1s}").unwrap_err().to_string();
    assert!(text.contains("scrape.max_age"), "{text}");
}

#[test]
fn unknown_keys_and_wrong_types_name_their_place() {
    let unknown = error(&with("model: tiny\n", "model: tiny\n    modle: x\n"));
    assert!(
        unknown.contains("modle") && unknown.contains("line 7"),
        "{unknown}"
    );
    let mode = error(&format!("policy: {{mode: maybe}}{GOOD}"));
    assert!(mode.contains("maybe") && mode.contains("shadow"), "{mode}");
    let missing = error("models: [{id: a}]");
    assert!(missing.contains("model_dir"), "{missing}");
}

#[test]
fn the_description_says_what_the_settings_mean() {
    let text = parse(&format!(
        "{GOOD}  - {{address: '127.0.0.1:8001', model: tiny}}\n"
    ))
    .unwrap()
    .describe();
    for expected in [
        "http://127.0.0.1:9700",
        "requests for tiny, small",
        "adapters lora-a",
        "endpoint 127.0.0.1:8000 (both, 8000 tokens/s): events from tcp://127.0.0.1:5557, lost ones replayed from tcp://127.0.0.1:5558",
        "endpoint 127.0.0.1:8001 (both, 8000 tokens/s): no events, known from decisions alone",
    ] {
        assert!(text.contains(expected), "expected {expected}\ngot {text}");
    }
}

const DOCUMENT: &str = include_str!("../../../docs/configuration.md");

#[test]
fn every_example_in_the_documentation_is_a_good_file() {
    let examples: Vec<&str> = DOCUMENT
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(examples.len() >= 3);
    for example in examples {
        if let Err(error) = parse(example) {
            panic!("{error}\nin\n{example}");
        }
    }
}

#[test]
fn the_documentation_lists_exactly_the_keys_that_are_read() {
    for (heading, text) in [
        ("## Top level", "zzz: 1"),
        ("## `listen`", "listen: {zzz: 1}"),
        ("## `models[]`", "models: [{zzz: 1}]"),
        ("## `endpoints[]`", "endpoints: [{zzz: 1}]"),
        ("## `endpoints[].events`", "endpoints: [{events: {zzz: 1}}]"),
        ("## `policy`", "policy: {zzz: 1}"),
        ("## `policy.admission`", "policy: {admission: {zzz: 1}}"),
        (
            "## `policy.objectives[]`",
            "policy: {objectives: [{zzz: 1}]}",
        ),
        (
            "## `policy.flow_control`",
            "policy: {flow_control: {zzz: 1}}",
        ),
        ("## `policy.profiles[]`", "policy: {profiles: [{zzz: 1}]}"),
        (
            "## `policy.profiles[].filters[]`",
            "policy: {profiles: [{filters: [{zzz: 1}]}]}",
        ),
        (
            "## `policy.profiles[].scorers[]`",
            "policy: {profiles: [{scorers: [{zzz: 1}]}]}",
        ),
        (
            "## `policy.profiles[].cost`",
            "policy: {profiles: [{cost: {zzz: 1}}]}",
        ),
        ("## `index`", "index: {zzz: 1}"),
        ("## `scrape`", "scrape: {zzz: 1}"),
    ] {
        let section = DOCUMENT
            .split(&format!("{heading}\n"))
            .nth(1)
            .unwrap()
            .split("\n## ")
            .next()
            .unwrap();
        let documented: Vec<&str> = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect();
        // Serde names the keys it knows when it meets one that it does not.
        let message = error(text);
        let known: Vec<&str> = message
            .split("expected one of ")
            .nth(1)
            .unwrap_or_else(|| panic!("{message}"))
            .split(" at line")
            .next()
            .unwrap()
            .split(", ")
            .map(|key| key.trim_matches(['`', ' ']))
            .collect();
        let sorted = |mut keys: Vec<&str>| {
            keys.sort_unstable();
            keys.join(" ")
        };
        assert_eq!(sorted(documented), sorted(known), "{heading}");
    }
}
