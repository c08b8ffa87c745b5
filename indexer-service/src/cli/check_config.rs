//! `prefixway check-config`: validates a configuration and says what it means.

use std::io::Write;
use std::path::PathBuf;

use super::Failure;
use crate::config::{Config, Overrides};
use crate::model_dir;
use crate::profile::Profile;

/// Arguments of `check-config`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  prefixway check-config indexer.yaml && prefixway serve --config indexer.yaml"
)]
pub struct Args {
    /// Configuration, YAML
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the indexer shard whose part is described, in place of `shard`
    #[arg(long, value_name = "NAME", env = "PREFIXWAY_SHARD")]
    shard: Option<String>,
    /// Check only the text, without looking at the model folders
    #[arg(long)]
    no_files: bool,
}

/// Runs the command.
///
/// # Errors
/// The configuration is wrong, or a model can't be loaded.
pub fn run(args: &Args) -> Result<(), Failure> {
    let overrides = Overrides {
        shard: args.shard.clone(),
        ..Overrides::default()
    };
    let config = Config::load(&args.file, &overrides).map_err(Failure::from_config)?;
    if !args.no_files {
        for model in &config.models {
            let loaded = Profile::load(model).map_err(|error| Failure {
                hint: Some(model_dir::HINT.to_owned()),
                error: error.into(),
                code: 2,
            })?;
            if let Some(reason) = loaded.approximate_reason {
                writeln!(
                    std::io::stderr(),
                    "warning: model {}: the engine's prompt text is not known, routed by decisions alone: {reason}",
                    model.id
                )?;
            }
        }
    }
    write!(std::io::stdout(), "{}", config.describe())?;
    Ok(())
}
