//! Random chats and random templates, rendered by both sides.
//!
//! `PREFIXWAY_CONFORMANCE_CHATS` and `PREFIXWAY_CONFORMANCE_TEMPLATES` set how many, `PREFIXWAY_CONFORMANCE_SEED` which.

use std::collections::BTreeMap;
use std::path::Path;

use prefixway_core::text::Prompter;

use crate::compare::{self, Outcome};
use crate::oracle::Oracle;
use crate::set;
use crate::tree::{Rng, Tree};
use crate::{chats, expressions};

/// Chats by default.
const CHATS: usize = 2_000;

/// Templates by default.
const TEMPLATES: usize = 2_000;

/// Jobs that go to the other side at once.
const BATCH: usize = 250;

/// Differences after which a run ends.
const ENOUGH: usize = 8;

fn setting(name: &str, default: usize) -> usize {
    match std::env::var(name) {
        Ok(value) => value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value} is no number")),
        Err(_) => default,
    }
}

/// The set's templates, and those of captures.
fn templates() -> Vec<(String, String)> {
    let mut found = set::templates();
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        crate_root.join("tests/fixtures/vllm"),
        std::env::var_os("PREFIXWAY_FIXTURES")
            .map_or_else(|| crate_root.join("../../shared/fixtures/vllm"), Into::into),
    ];
    for folder in folders {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            println!("no captures in {}", folder.display());
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = format!("capture {}", path.file_name().unwrap().display());
            let Ok(source) = std::fs::read_to_string(path.join("model/chat_template.jinja")) else {
                continue;
            };
            if found.iter().all(|(_, other)| *other != source) {
                found.push((name, source));
            }
        }
    }
    found
}

/// One chat for one template.
struct Case {
    template: usize,
    body: Tree,
}

#[test]
fn random_chats_are_rendered_as_jinja2_renders_them() {
    let Some(mut oracle) = Oracle::start() else {
        return;
    };
    let templates = templates();
    let sources: Vec<&str> = templates
        .iter()
        .map(|(_, source)| source.as_str())
        .collect();
    let prompters: Vec<Prompter> = templates
        .iter()
        .map(|(name, source)| {
            compare::prompter(source).unwrap_or_else(|error| panic!("{name}: {error}"))
        })
        .collect();
    let (count, seed) = (
        setting("PREFIXWAY_CONFORMANCE_CHATS", CHATS),
        setting("PREFIXWAY_CONFORMANCE_SEED", 1),
    );
    let mut rng = Rng(seed as u64);
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    let mut differences = Vec::new();
    let mut done = 0;
    while done < count && differences.len() < ENOUGH {
        let cases: Vec<Case> = (0..BATCH.min(count - done))
            .map(|_| {
                let template = rng.below(templates.len());
                let body = chats::body(&mut rng, sources[template].contains("'image'"));
                Case { template, body }
            })
            .collect();
        done += cases.len();
        let bodies: Vec<String> = cases.iter().map(|case| case.body.json()).collect();
        let jobs: Vec<(usize, &str)> = cases
            .iter()
            .zip(&bodies)
            .map(|(case, body)| (case.template, body.as_str()))
            .collect();
        let all_theirs = oracle.render(&sources, &jobs);
        for ((case, body), theirs) in cases.iter().zip(&bodies).zip(&all_theirs) {
            let ours = compare::render(&prompters[case.template], body);
            *tally.entry(kind(&ours, theirs)).or_default() += 1;
            if !compare::agree(&ours, theirs) {
                let difference = smallest(&mut oracle, &templates, &prompters, case);
                if !differences.contains(&difference) {
                    differences.push(difference);
                }
                if differences.len() >= ENOUGH {
                    break;
                }
            }
        }
    }
    println!(
        "{done} random chats, {} templates, seed {seed}: {tally:?}",
        templates.len()
    );
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

fn kind(ours: &Outcome, theirs: &Outcome) -> &'static str {
    match (ours, theirs) {
        (Outcome::Skips(_), _) | (_, Outcome::Skips(_)) => "skipped",
        (_, Outcome::Invalid(_)) => "no valid request",
        (Outcome::Refuses(_), Outcome::Refuses(_)) => "both refuse",
        (Outcome::Refuses(_), _) => "only we refuse",
        (_, Outcome::Refuses(_)) => "only jinja2 refuses",
        _ if compare::agree(ours, theirs) => "equal",
        _ => "different",
    }
}

/// The smallest request that still shows a difference.
fn smallest(
    oracle: &mut Oracle,
    templates: &[(String, String)],
    prompters: &[Prompter],
    case: &Case,
) -> String {
    let (name, source) = &templates[case.template];
    let prompter = &prompters[case.template];
    let mut both = |body: &Tree| {
        let body = body.json();
        let ours = compare::render(prompter, &body);
        let theirs = oracle.render(&[source], &[(0, &body)]).remove(0);
        (ours, theirs)
    };
    let (ours, theirs) = both(&case.body);
    let wanted = kind(&ours, &theirs);
    let body = case.body.clone().shrink(|body| {
        let (ours, theirs) = both(body);
        kind(&ours, &theirs) == wanted
    });
    let (ours, theirs) = both(&body);
    format!(
        "{name}: {}\n{}",
        body.json(),
        compare::describe(&ours, &theirs)
    )
}

#[test]
fn random_templates_give_the_text_of_jinja2_or_none() {
    let Some(mut oracle) = Oracle::start() else {
        return;
    };
    let (count, seed) = (
        setting("PREFIXWAY_CONFORMANCE_TEMPLATES", TEMPLATES),
        setting("PREFIXWAY_CONFORMANCE_SEED", 1),
    );
    let mut rng = Rng(seed as u64);
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    let mut refused: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut differences = Vec::new();
    let mut done = 0;
    while done < count && differences.len() < ENOUGH {
        let sources: Vec<String> = (0..BATCH.min(count - done))
            .map(|_| expressions::template(&mut rng))
            .collect();
        done += sources.len();
        let body = expressions::body(&mut rng).json();
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        let jobs: Vec<(usize, &str)> = (0..sources.len()).map(|i| (i, body.as_str())).collect();
        let all_theirs = oracle.render(&sources, &jobs);
        for (source, theirs) in sources.iter().zip(&all_theirs) {
            let ours = expressions::render(source, &body);
            let kind = kind(&ours, theirs);
            *tally.entry(kind).or_default() += 1;
            match (&ours, kind) {
                (Outcome::Refuses(why), "only we refuse") => {
                    let entry = refused
                        .entry(why.clone())
                        .or_insert_with(|| (0, (*source).to_owned()));
                    entry.0 += 1;
                    if source.len() < entry.1.len() {
                        (*source).clone_into(&mut entry.1);
                    }
                }
                (_, "different") => {
                    differences.push(format!(
                        "{source}\n{body}\n{}",
                        compare::describe(&ours, theirs)
                    ));
                }
                (_, "only jinja2 refuses")
                    if std::env::var_os("PREFIXWAY_CONFORMANCE_STRICT").is_some() =>
                {
                    differences.push(format!("{source}\n{}", compare::describe(&ours, theirs)));
                }
                _ => {}
            }
        }
    }
    println!("{done} random templates, seed {seed}: {tally:?}");
    let mut refused: Vec<_> = refused.into_iter().collect();
    refused.sort_by_key(|(_, (count, _))| core::cmp::Reverse(*count));
    for (why, (count, example)) in refused
        .into_iter()
        .take(setting("PREFIXWAY_CONFORMANCE_SHOW", 0))
    {
        println!("refused {count} times: {why}\n    {example:?}");
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}
