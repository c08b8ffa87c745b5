//! `docs/configuration.schema.json`: made of the structures that are read, and of what `docs/configuration.md` says of their keys.
//!
//! `UPDATE_GENERATED=1 cargo test -p prefixway --lib schema` rewrites it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use prefixway_core::schedule::Registry;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::super::duration::RawDuration;
use super::super::seed::RawSeed;
use super::{DOCUMENT, Raw};

/// Sections of the document, and where their keys are in the schema.
const SECTIONS: [(&str, &str); 15] = [
    ("## Top level", ""),
    ("## `listen`", "listen"),
    ("## `models[]`", "models/*"),
    ("## `endpoints[]`", "endpoints/*"),
    ("## `endpoints[].events`", "endpoints/*/events"),
    ("## `policy`", "policy"),
    ("## `policy.admission`", "policy/admission"),
    ("## `policy.objectives[]`", "policy/objectives/*"),
    ("## `policy.flow_control`", "policy/flow_control"),
    ("## `policy.profiles[]`", "policy/profiles/*"),
    (
        "## `policy.profiles[].filters[]`",
        "policy/profiles/*/filters/*",
    ),
    (
        "## `policy.profiles[].scorers[]`",
        "policy/profiles/*/scorers/*",
    ),
    ("## `policy.profiles[].cost`", "policy/profiles/*/cost"),
    ("## `index`", "index"),
    ("## `scrape`", "scrape"),
];

impl JsonSchema for RawDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"})
    }
}

impl JsonSchema for RawSeed {
    fn schema_name() -> Cow<'static, str> {
        "Seed".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^0x[0-9a-fA-F]{1,16}$"}]})
    }
}

pub(in super::super) fn content_format(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "enum": ["string", "openai", null]})
}

pub(in super::super) fn failure_mode(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "enum": ["open", "closed", null]})
}

pub(in super::super) fn when_missed(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["best_effort", "cheaper_class", "queue", "refuse"]})
}

pub(in super::super) fn picker(_: &mut SchemaGenerator) -> Schema {
    let names = ["max-score", "weighted-random", "power-of-two", "random"];
    let known = names.map(|name| [name.to_owned(), format!("{name}-picker")]);
    json_schema!({"type": "string", "enum": known.concat()})
}

/// For completion; what is no name of these is refused by [`known_plugins`], where there are no own plugins.
fn names(known: &[&str]) -> Schema {
    json_schema!({"anyOf": [{"enum": known}, {"type": "string"}]})
}

fn filters() -> Vec<&'static str> {
    Registry::default().filter_names().collect()
}

fn scorers() -> Vec<&'static str> {
    Registry::default().scorer_names().collect()
}

pub(in super::super) fn filter(_: &mut SchemaGenerator) -> Schema {
    names(&filters())
}

pub(in super::super) fn scorer(_: &mut SchemaGenerator) -> Schema {
    names(&scorers())
}

/// Without `own_plugins`, types are those that are built in.
pub(in super::super) fn known_plugins(policy: &mut Schema) {
    let each = |names: &[&str]| json!({"items": {"properties": {"type": {"enum": names}}}});
    let profile = json!({"properties": {"filters": each(&filters()), "scorers": each(&scorers())}});
    policy.insert(
        "if".to_owned(),
        json!({"not": {"required": ["own_plugins"]}}),
    );
    policy.insert(
        "then".to_owned(),
        json!({"properties": {"profiles": {"items": profile}}}),
    );
}

/// The schema of a whole file.
fn schema() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<Raw>()
        .to_value();
    schema["title"] = "Configuration of prefixway serve".into();
    for (heading, place) in SECTIONS {
        let section = at(&mut schema, place);
        for (key, range, meaning) in rows(heading) {
            let of = &mut section["properties"][&key];
            assert!(of.is_object(), "{heading}: {key}");
            of["description"] = meaning.into();
            let is_number = ["integer", "number"]
                .iter()
                .any(|kind| of["type"] == **kind || of["type"][0] == **kind);
            if let Some([least, most]) = range.filter(|_| is_number) {
                of["minimum"] = least;
                of["maximum"] = most;
            }
        }
    }
    schema
}

/// A part of the schema; `*` is what a list has.
fn at<'s>(schema: &'s mut Value, place: &str) -> &'s mut Value {
    let keys = place.split('/').filter(|key| !key.is_empty());
    keys.fold(schema, |schema, key| match key {
        "*" => &mut schema["items"],
        key => &mut schema["properties"][key],
    })
}

/// Keys of a section with their range, where that is of numbers, and meaning.
fn rows(heading: &str) -> Vec<(String, Option<[Value; 2]>, String)> {
    let (_, section) = DOCUMENT.split_once(&format!("\n{heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    let read = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [key, kind, default, meaning] = cells[..] else {
            panic!("{heading}: {} cells in {line}", cells.len());
        };
        let meaning = match default {
            "" => plain(meaning),
            default => format!("{}. Default: {}", plain(meaning), plain(default)),
        };
        (key.trim_matches('`').to_owned(), range(kind), meaning)
    };
    lines.map(read).collect()
}

/// Text without its marks, and links as what they are called.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        match after.split_once("](") {
            Some((name, link)) if !name.contains('[') => {
                out.push_str(before);
                out.push_str(name);
                rest = link.split_once(')').map_or("", |(_, rest)| rest);
            }
            _ => {
                out.push_str(before);
                out.push('[');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out.replace('`', "").replace("**", "")
}

/// `1 to 1e9` as numbers.
fn range(kind: &str) -> Option<[Value; 2]> {
    let (least, most) = kind.split_once(" to ")?;
    let number = |text: &str| -> Option<Value> {
        let number: f64 = text.parse().ok()?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "whole numbers of the document"
        )]
        let whole = number as i64;
        Some(if number.fract() == 0.0 {
            whole.into()
        } else {
            number.into()
        })
    };
    Some([number(least)?, number(most)?])
}

/// A text as an editor reads it: `on` is no boolean.
fn yaml(text: &str) -> Value {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).unwrap()
}

/// What is wrong with a text by the schema; empty: nothing.
fn problems(text: &str) -> String {
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler
        .add_resource("configuration.json", schema())
        .unwrap();
    let compiled = compiler
        .compile("configuration.json", &mut schemas)
        .unwrap();
    match schemas.validate(&yaml(text), compiled) {
        Ok(()) => String::new(),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn the_published_schema_is_up_to_date() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/configuration.schema.json"
    );
    let made = format!("{:#}\n", schema());
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(path, made).unwrap();
    } else {
        let old = std::fs::read_to_string(path).unwrap_or_default();
        assert!(old == made, "{path} is stale: run with UPDATE_GENERATED=1");
    }
}

#[test]
fn every_key_has_a_description() {
    fn look(schema: &Value, place: &str, without: &mut BTreeSet<String>) {
        for (key, of) in schema["properties"].as_object().into_iter().flatten() {
            let place = format!("{place}/{key}");
            if of["description"].is_null() {
                without.insert(place.clone());
            }
            look(of, &place, without);
            look(&of["items"], &place, without);
        }
    }
    let mut without = BTreeSet::new();
    look(&schema(), "", &mut without);
    // These are described together with what they are in.
    without.retain(|place| {
        let of = ["/policy/tiers/", "/policy/routes/", "/policy/then/"];
        !of.iter().any(|of| place.starts_with(of))
    });
    assert_eq!(without, BTreeSet::new());
}

/// Files with configurations of the indexer in their examples.
const DOCUMENTS: [(&str, &str); 5] = [
    ("configuration.md", DOCUMENT),
    (
        "scheduling.md",
        include_str!("../../../../docs/scheduling.md"),
    ),
    ("filter.md", include_str!("../../../../docs/filter.md")),
    (
        "statefulset.yaml",
        include_str!("../../../../deploy/shards/statefulset.yaml"),
    ),
    ("README.md", include_str!("../../../../README.md")),
];

/// The configurations in a file: what is fenced as YAML, or the text of a `config.yaml: |` in it, and begins with a key of the top level.
fn examples(text: &str) -> Vec<String> {
    let blocks = ["```yaml\n", ".yaml: |\n"].map(|begin| text.split(begin).skip(1));
    let blocks = blocks.into_iter().flatten().map(dedented);
    let is_ours = |text: &String| {
        let first = text
            .lines()
            .find(|line| !line.is_empty() && !line.starts_with('#'));
        let key = first.and_then(|line| line.split_once(':'));
        key.is_some_and(|(key, _)| !schema()["properties"][key].is_null())
    };
    blocks.filter(is_ours).collect()
}

/// Lines as long as they are as far to the right as the first, without that indent; to the fence where there is one.
fn dedented(rest: &str) -> String {
    let rest = rest.split("```").next().unwrap_or_default();
    let indent = rest.len() - rest.trim_start_matches(' ').len();
    let margin = " ".repeat(indent);
    let is_inside = |line: &&str| line.trim().is_empty() || line.starts_with(&margin);
    let lines = rest.lines().take_while(is_inside);
    let lines = lines.map(|line| line.get(indent..).unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn configurations_in_documents_fit_the_schema() {
    let mut found = Vec::new();
    for (file, text) in DOCUMENTS {
        for example in examples(text) {
            assert_eq!(problems(&example), "", "{file}:\n{example}");
            found.push(file);
        }
    }
    for file in ["configuration.md", "scheduling.md", "statefulset.yaml"] {
        assert!(found.contains(&file), "no example in {file}");
    }
    assert_eq!(problems(super::GOOD), "");
}

#[test]
fn what_the_indexer_refuses_the_schema_refuses_too() {
    for (text, key) in [
        ("policy: {betta: 2}", "betta"),
        ("policy: {max_age: 5}", "/policy/max_age"),
        ("policy: {max_age: 5 s}", "/policy/max_age"),
        ("policy: {beta: 101}", "/policy/beta"),
        ("policy: {mode: maybe}", "/policy/mode"),
        ("policy: {learn_rates: true}", "/policy/learn_rates"),
        ("policy: {profiles: [{name: a, picker: best}]}", "/picker"),
        (
            "policy: {profiles: [{name: a, scorers: [{type: qeue}]}]}",
            "/scorers/0/type",
        ),
        (
            "policy: {profiles: [{name: a, filters: [{type: queue}]}]}",
            "/filters/0/type",
        ),
        ("policy: {profiles: [{filters: []}]}", "name"),
        ("models: [{id: a}]", "model_dir"),
        ("seed: 0x", "/seed"),
    ] {
        let problems = problems(text);
        assert!(problems.contains(key), "{text}: {problems}");
    }
    for text in [
        "policy: {profiles: [{name: a, scorers: [{type: queue-scorer, weight: 2}], picker: max-score-picker}]}",
        "policy: {own_plugins: [mine], profiles: [{name: a, scorers: [{type: mine, parameters: {any: thing}}]}]}",
        "policy: {learn_rates: off, failure_mode: closed}",
        "seed: 0x8d2f10a96b3c47e5",
    ] {
        assert_eq!(problems(text), "", "{text}");
    }
}
