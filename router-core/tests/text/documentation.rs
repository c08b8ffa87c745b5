//! `docs/requests.md` names every API, path and reason, and no path that isn't known.

use std::path::Path;

use prefixway_core::text::{Api, Unscorable};

#[test]
fn the_page_on_requests_is_complete() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/requests.md");
    let page = std::fs::read_to_string(path).unwrap();
    let tables: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
    for reason in Unscorable::ALL {
        let row = format!("| `{}` |", reason.reason());
        assert!(tables.iter().any(|line| line.starts_with(&row)), "{row}");
    }
    let quoted = |text: &str| -> Vec<String> {
        text.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    let mut found = Vec::new();
    for row in tables.iter().filter(|row| row.contains("`/")) {
        let cells: Vec<&str> = row.split('|').collect();
        let names = quoted(cells[1]);
        for path in quoted(cells[2]) {
            let api = Api::from_path(&path).unwrap_or_else(|| panic!("{path}"));
            assert!(names.iter().any(|name| name == api.name()), "{path}");
            found.push(api);
        }
    }
    for api in Api::ALL {
        assert!(found.contains(&api), "{api:?}");
    }
}
