//! Takes over another policy while the service runs.
//!
//! The file of settings is read again every second. A policy that differs takes effect at once, in all gateways; a file that is refused, or that
//! differs in anything else, changes nothing and is said to.

use std::time::Duration;

use crate::config::{Config, Origin, Policy};
use crate::ingest::{Command, Handle};
use crate::metrics::{Metrics, Outcome, ResultLabel};
use crate::shutdown::Shutdown;
use std::sync::Arc;

/// Time between two looks at the file.
const INTERVAL: Duration = Duration::from_secs(1);

/// Follows the file that the settings came from.
#[derive(Debug)]
pub(crate) struct Reloader {
    origin: Origin,
    /// Settings that hold.
    config: Config,
    /// The text that was looked at last; `None`: none yet.
    text: Option<String>,
}

/// What another text of the file comes to.
#[derive(Clone, Debug, PartialEq)]
enum Reading {
    /// Nothing else than holds already.
    Same,
    /// Another policy.
    Policy(Box<Policy>),
    /// It does not count: keys that can't change, or why it is refused.
    Refused(String),
}

impl Reloader {
    /// A follower of the settings' own file; `None` where they come from none.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let origin = config.origin.clone()?;
        // The first look compares with the settings that hold: the file may have changed since they were read.
        Some(Self {
            text: None,
            config: config.clone(),
            origin,
        })
    }

    /// Runs until `shutdown`.
    pub(crate) async fn run(mut self, ingest: Handle, metrics: Arc<Metrics>, shutdown: Shutdown) {
        let stop = shutdown.wait();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            let text = tokio::fs::read_to_string(&self.origin.path).await.ok();
            let result = match self.read(text) {
                Reading::Same => continue,
                Reading::Policy(policy) => {
                    tracing::info!(mode = policy.mode.as_str(), "the policy has changed");
                    if ingest.send(Command::Policy(policy)).await.is_err() {
                        return;
                    }
                    Outcome::Ok
                }
                Reading::Refused(reason) => {
                    tracing::warn!(reason, "changed settings are refused, the former ones stay");
                    Outcome::Failed
                }
            };
            let label = ResultLabel { result };
            metrics.config_reloads.get_or_create_owned(&label).inc();
        }
    }

    /// Takes the file's text as it is now; `None`: it can't be read, as while it is replaced.
    fn read(&mut self, text: Option<String>) -> Reading {
        let Some(text) = text.filter(|text| self.text.as_ref() != Some(text)) else {
            return Reading::Same;
        };
        let base = self
            .origin
            .path
            .parent()
            .unwrap_or(std::path::Path::new(""));
        let config = Config::parse(&text, base, &self.origin.overrides);
        self.text = Some(text);
        let config = match config {
            Ok(config) => config,
            Err(error) => return Reading::Refused(error.to_string()),
        };
        let fixed = self.config.fixed_differences(&config);
        if !fixed.is_empty() {
            let keys = fixed.join(", ");
            return Reading::Refused(format!(
                "only policy can change without a restart, not {keys}"
            ));
        }
        if config.policy == self.config.policy {
            return Reading::Same;
        }
        self.config.policy = config.policy.clone();
        Reading::Policy(Box::new(config.policy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Mode, Overrides};

    const MODELS: &str = "models: [{id: tiny, model_dir: ./model}]\n";

    #[test]
    fn another_policy_counts_and_nothing_else_does() {
        let config =
            Config::parse(MODELS, std::path::Path::new(""), &Overrides::default()).unwrap();
        assert!(Reloader::new(&config).is_none(), "there is no file");
        let mut reloader = Reloader {
            origin: Origin {
                path: "indexer.yaml".into(),
                overrides: Overrides::default(),
            },
            config,
            text: None,
        };
        let mut read = |text: &str| reloader.read(Some(text.to_owned()));
        assert_eq!(read(MODELS), Reading::Same);
        assert_eq!(read(&format!("# said otherwise\n{MODELS}")), Reading::Same);
        let shadow = format!("{MODELS}policy: {{mode: shadow}}\n");
        match read(&shadow) {
            Reading::Policy(policy) => assert_eq!(policy.mode, Mode::Shadow),
            other => panic!("{other:?}"),
        }
        assert_eq!(read(&shadow), Reading::Same);
        // Whole or not at all.
        let more =
            format!("{MODELS}policy: {{mode: off}}\nindex: {{tick: 5ms}}\nready_grace: 1s\n");
        match read(&more) {
            Reading::Refused(reason) => assert!(reason.ends_with("index, ready_grace"), "{reason}"),
            other => panic!("{other:?}"),
        }
        match read("policy: {mode: sideways}") {
            Reading::Refused(reason) => assert!(reason.contains("sideways"), "{reason}"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(read(MODELS), Reading::Policy(_)), "and back");
        assert_eq!(reloader.read(None), Reading::Same);
        assert_eq!(reloader.read(Some(MODELS.to_owned())), Reading::Same);
    }
}
