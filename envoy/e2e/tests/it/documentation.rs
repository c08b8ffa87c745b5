//! What the documents name exists, and what exists is named.

use std::collections::BTreeSet;

use prefixway_e2e::{Pool, Rig};

use crate::{repository, system_prompt};

fn read(file: &str) -> String {
    std::fs::read_to_string(repository().join(file)).unwrap()
}

/// Texts between backticks.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_path_in_the_documents_exists() {
    for file in ["README.md", "docs/metrics.md"] {
        let text = read(file);
        for name in quoted(&text) {
            let is_path =
                name.contains('/') && !name.starts_with('/') && !name.contains([' ', '$', ':']);
            if is_path {
                assert!(repository().join(name).exists(), "{file} names {name}");
            }
        }
    }
}

#[test]
fn every_target_in_the_readme_is_in_the_makefile() {
    let makefile = read("Makefile");
    for word in read("README.md").split("make ").skip(1) {
        let target: String = word.chars().take_while(char::is_ascii_lowercase).collect();
        assert!(
            target.is_empty() || makefile.contains(&format!("\n{target}: ")),
            "make {target}"
        );
    }
}

/// Names of metrics in a section of a document, without labels.
fn documented(file: &str, section: &str) -> BTreeSet<String> {
    let text = read(file);
    let section = text
        .split("\n## ")
        .find(|part| part.starts_with(section))
        .unwrap();
    let bare = quoted(section)
        .into_iter()
        .map(|name| name.split('{').next().unwrap());
    let is_metric = |name: &&str| {
        let rest = name.strip_prefix("prefixway_").unwrap_or_default();
        !rest.is_empty() && rest.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    bare.filter(is_metric).map(str::to_owned).collect()
}

/// Name of an exported series: without labels and without what a histogram appends.
fn family(series: &str) -> String {
    let name = series.split(['{', ' ']).next().unwrap_or_default();
    let ends = ["_bucket", "_sum", "_count"];
    ends.iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name)
        .to_owned()
}

async fn exported(url: String) -> BTreeSet<String> {
    let text = reqwest::get(url).await.unwrap().text().await.unwrap();
    let series = text.lines().filter(|line| line.starts_with("prefixway_"));
    series.map(family).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exported_metrics_are_the_documented_ones() {
    let rig = Rig::start(Pool::Binding(2), "on").await.unwrap();
    for turn in ["one", "two"] {
        rig.chat(&system_prompt(0), turn).await.unwrap();
        rig.settle().await.unwrap();
    }
    let envoy = exported(format!("http://{}/stats/prometheus", rig.envoy.admin())).await;
    assert_eq!(envoy, documented("docs/filter.md", "Metrics"));

    let indexer = rig.indexer.as_ref().unwrap();
    let text = reqwest::get(format!("http://{}/metrics", indexer.http()))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let types = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let families: BTreeSet<String> = types.map(str::to_owned).collect();
    // Type lines lack the endings of counters and infos.
    let bare = |name: &String| {
        name.trim_end_matches("_total")
            .trim_end_matches("_info")
            .to_owned()
    };
    let documented: BTreeSet<String> = documented("docs/metrics.md", "Indexer")
        .iter()
        .map(bare)
        .collect();
    let unnamed: Vec<&String> = families.difference(&documented).collect();
    assert_eq!(unnamed, Vec::<&String>::new());
    // A family without a series has no type line: then its declaration has to do.
    let source = read("indexer-service/src/metrics.rs");
    for name in documented.difference(&families) {
        let declared = format!("\"{}\"", name.trim_start_matches("prefixway_"));
        assert!(source.contains(&declared), "{name} is not declared");
    }
}
