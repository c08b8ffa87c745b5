//! Adapters in an engine, from `vllm:lora_requests_info`.
//!
//! ```text
//!  vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters="c"} 1.7e9
//! ```
//!
//! The value is the time at which it was so. Lines of other times stay on the page, so the newest counts.

use std::collections::{BTreeMap, BTreeSet};

use super::{MAX_RANKS, Series};

/// Most names that are read of a line.
const MAX_ADAPTERS: usize = 1024;
/// Longest name that is read, as in the settings.
const MAX_NAME_BYTES: usize = 512;

/// Adapters of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adapters {
    /// Those of running requests: they are loaded.
    pub running: BTreeSet<String>,
    /// Those of waiting requests that no running one has.
    pub waiting: BTreeSet<String>,
    /// How many can be loaded at once; 0 when the page does not say.
    pub max: u32,
}

impl Adapters {
    /// Those of ranks that are routed to as one.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.running.extend(other.running.iter().cloned());
        self.waiting.extend(other.waiting.iter().cloned());
        let Self {
            running, waiting, ..
        } = &mut self;
        waiting.retain(|name| !running.contains(name));
        self.max = self.max.saturating_add(other.max);
        self
    }
}

/// Adapters per rank, as [`super::figures`]; ranks of which the page says nothing are not in it.
pub fn adapters(page: &str) -> BTreeMap<u32, Adapters> {
    let mut newest: BTreeMap<u32, (f64, Adapters)> = BTreeMap::new();
    let lines = page
        .lines()
        .filter(|line| line.starts_with("vllm:lora_requests_info{"));
    for series in lines.filter_map(Series::parse) {
        let rank = series.rank();
        let is_newer = |(at, _): &(f64, Adapters)| series.value > *at;
        if rank < MAX_RANKS && newest.get(&rank).is_none_or(is_newer) {
            newest.insert(rank, (series.value, read(&series)));
        }
    }
    let ranks = newest.into_iter();
    ranks
        .map(|(rank, (_, adapters))| (rank, adapters))
        .collect()
}

fn read(series: &Series<'_>) -> Adapters {
    let running = names(series.label("running_lora_adapters"));
    let mut waiting = names(series.label("waiting_lora_adapters"));
    waiting.retain(|name| !running.contains(name));
    let max = series.label("max_lora").and_then(|max| max.parse().ok());
    Adapters {
        running,
        waiting,
        max: max.unwrap_or(0),
    }
}

fn names(label: Option<&str>) -> BTreeSet<String> {
    let names = label.unwrap_or_default().split(',').map(str::trim);
    let names = names.filter(|name| (1..=MAX_NAME_BYTES).contains(&name.len()));
    names.take(MAX_ADAPTERS).map(unescaped).collect()
}

/// A label's value without the escapes of the text form: `\\`, `\"` and `\n`.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            (c, false) => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn the_newest_line_of_a_rank_counts() {
        let page = r#"
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="2",running_lora_adapters="old",waiting_lora_adapters=""} 1.7e9
vllm:lora_requests_info{max_lora="2",running_lora_adapters="sql, chat",waiting_lora_adapters="sql,\"x\""} 1.700000001e9
vllm:lora_requests_info{max_lora="2",running_lora_adapters="",waiting_lora_adapters="old"} 1.6999e9
vllm:lora_requests_info{engine="1",running_lora_adapters="",waiting_lora_adapters=""} 5
vllm:lora_requests_info{engine="4096",running_lora_adapters="a"} 5
vllm:num_requests_running 3
"#;
        let ranks = adapters(page);
        let first = Adapters {
            running: set(&["sql", "chat"]),
            waiting: set(&["\"x\""]),
            max: 2,
        };
        assert_eq!(ranks.get(&0), Some(&first));
        assert_eq!(ranks.get(&1), Some(&Adapters::default()));
        assert_eq!(ranks.len(), 2);
    }

    #[test]
    fn ranks_that_are_one_endpoint_have_what_any_of_them_has() {
        let of = |running: &[&str], waiting: &[&str]| Adapters {
            running: set(running),
            waiting: set(waiting),
            max: 2,
        };
        let both = of(&["a"], &["b"]).plus(&of(&["b"], &["c"]));
        assert_eq!(
            both,
            Adapters {
                max: 4,
                ..of(&["a", "b"], &["c"])
            }
        );
    }

    #[test]
    fn names_are_bounded() {
        let long = "a".repeat(MAX_NAME_BYTES + 1);
        let many: Vec<String> = (0..MAX_ADAPTERS + 5).map(|n| n.to_string()).collect();
        let page = format!(
            "vllm:lora_requests_info{{running_lora_adapters=\"{long},,{}\",max_lora=\"no\"}} 1",
            many.join(",")
        );
        let read = &adapters(&page)[&0];
        assert_eq!((read.running.len(), read.max), (MAX_ADAPTERS, 0));
    }
}
