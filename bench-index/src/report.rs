//! Rows on the terminal and in a file.

use serde_json::{Value, json};

#[derive(Default)]
pub struct Report(Vec<Value>);

impl Report {
    /// One measured value beside those of others that were measured too.
    pub fn row(&mut self, name: &str, value: f64, unit: &str, peers: &[(&str, Option<f64>)]) {
        let mut line = format!("{name:<78} {value:>9.2} {unit:<10}");
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        let mut any = false;
        for &(peer, peer_value) in peers {
            let Some(peer_value) = peer_value else {
                continue;
            };
            any = true;
            line.push_str(&format!(
                " | {peer} {peer_value:.2}, ratio {:.2}",
                value / peer_value
            ));
            self.0.push(json!({
                "name": name, "value": rounded(value), "unit": unit,
                "peer": peer, "peer_value": rounded(peer_value), "ratio": rounded(value / peer_value),
            }));
        }
        if !any {
            self.0.push(json!({
                "name": name, "value": rounded(value), "unit": unit,
                "peer": null, "peer_value": null, "ratio": null,
            }));
        }
        println!("{line}");
    }

    pub fn write(&self, path: &str) {
        if let Some(folder) = std::path::Path::new(path).parent() {
            std::fs::create_dir_all(folder).expect("can make the folder of the report");
        }
        let text = serde_json::to_string_pretty(&self.0).expect("rows are plain values");
        std::fs::write(path, text).expect("can write the report");
        println!("rows written to {path}");
    }
}
