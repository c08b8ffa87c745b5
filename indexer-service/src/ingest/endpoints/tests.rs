use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::config::Overrides;
use crate::scrape::parse;

const CONFIG: &str = "
models:
  - {id: a, model_dir: /m}
  - {id: b, model_dir: /m}
endpoints:
  - {address: '10.0.0.1:8000', model: a}
  - {address: '10.0.0.2:8000', model: a}
  - {address: '10.0.0.3:8000', model: b}
";

/// What gateways are told of each endpoint's health, after looks at some.
fn told(looks: &[(u8, Health)]) -> Vec<bool> {
    let config = Config::parse(CONFIG, Path::new("/"), &Overrides::default()).unwrap();
    let mut ids = HolderIds::new(Duration::from_secs(5));
    let mut endpoints = Endpoints::new(&config, &mut ids);
    for &(number, health) in looks {
        let sample = Sample {
            address: ([10, 0, 0, number], 8000).into(),
            health,
            figures: None,
            adapters: BTreeMap::new(),
        };
        endpoints.scraped(&sample, &Totals::default(), Instant::now());
    }
    let message = endpoints.message(&config, &[]);
    message.endpoints.iter().map(|of| of.healthy).collect()
}

#[test]
fn silence_of_all_is_not_the_end_of_all() {
    let [well, down, silent] = [Health::Well, Health::Down, Health::Silent];
    let looks = |one, two| {
        let told = told(&[(1, one), (2, two)]);
        assert!(told[2], "another model's");
        (told[0], told[1])
    };
    assert_eq!(looks(well, well), (true, true));
    assert_eq!(looks(well, silent), (true, false));
    assert_eq!(looks(silent, well), (false, true));
    assert_eq!(looks(silent, silent), (true, true));
    assert_eq!(looks(down, silent), (false, true));
    assert_eq!(looks(down, down), (false, false));
}

#[test]
fn adapters_are_told_when_they_change_and_not_too_often() {
    let config = Config::parse(CONFIG, Path::new("/"), &Overrides::default()).unwrap();
    let mut ids = HolderIds::new(Duration::from_secs(5));
    let mut endpoints = Endpoints::new(&config, &mut ids);
    let start = Instant::now();
    let mut at = |ms, line: &str| {
        let page = format!("vllm:num_requests_running 1\n{line}");
        let sample = Sample {
            address: ([10, 0, 0, 1], 8000).into(),
            health: Health::Well,
            figures: Some(parse::figures(&page)),
            adapters: parse::adapters(&page),
        };
        let now = start + Duration::from_millis(ms);
        endpoints.scraped(&sample, &Totals::default(), now);
        let is_told = endpoints.take_changed(now);
        let message = endpoints.message(&config, &[]).endpoints.remove(0);
        (is_told, message)
    };
    let info = |running, at_s| {
        format!(
            "vllm:lora_requests_info{{max_lora=\"2\",running_lora_adapters=\"{running}\",waiting_lora_adapters=\"c\"}} {at_s}"
        )
    };
    let (is_told, message) = at(0, &info("a,b", 1));
    assert!(is_told);
    assert_eq!(message.running_adapters, ["a", "b"]);
    assert_eq!(message.waiting_adapters, ["c"]);
    assert_eq!(message.max_adapters, 2);
    assert!(!at(600, &info("a,b", 2)).0, "as it was");
    assert!(at(1_200, &info("a", 3)).0);
    let (is_told, message) = at(1_300, &info("b", 4));
    assert!(!is_told, "too soon");
    assert_eq!(message.running_adapters, ["b"]);
    assert!(at(1_700, &info("b", 5)).0, "now");
    // A page without the line: the engine has no adapters any more, or says nothing of them.
    let (is_told, message) = at(2_300, "");
    assert!(is_told);
    assert_eq!(
        (message.running_adapters.len(), message.max_adapters),
        (0, 0)
    );
}
