use std::path::Path;
use std::time::Duration;

use super::*;
use crate::config::Overrides;

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
