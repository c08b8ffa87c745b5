//! `prefixway serve`: runs the indexer until it is told to stop.

use std::path::PathBuf;

use super::Failure;
use crate::config::{Config, Overrides};
use crate::serve;
use crate::shutdown;

/// Arguments of `serve`; each also an environment variable, and both over the file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  prefixway serve --config indexer.yaml
  PREFIXWAY_SEED_FILE=/run/secrets/seed prefixway serve --config indexer.yaml --grpc 0.0.0.0:9701

docs/configuration.md lists every key of the file.")]
pub struct Args {
    /// Settings, YAML
    #[arg(long, env = "PREFIXWAY_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// Address of health, metrics and API, in place of the file's
    #[arg(long, env = "PREFIXWAY_HTTP", value_name = "IP:PORT")]
    http: Option<String>,
    /// Address of the snapshot stream, in place of the file's
    #[arg(long, env = "PREFIXWAY_GRPC", value_name = "IP:PORT")]
    grpc: Option<String>,
    /// Folder for generated state, in place of the file's
    #[arg(long, env = "PREFIXWAY_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// File that holds the hash seed, in place of what the file says
    #[arg(long, env = "PREFIXWAY_SEED_FILE", value_name = "FILE")]
    seed_file: Option<PathBuf>,
    /// Name of this shard, in place of the file's
    #[arg(long, env = "PREFIXWAY_SHARD", value_name = "NAME")]
    shard: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// The configuration is wrong, or the indexer can't start.
pub fn run(args: &Args) -> Result<(), Failure> {
    let overrides = Overrides {
        http: args.http.clone(),
        grpc: args.grpc.clone(),
        state_dir: args.state_dir.clone(),
        seed_file: args.seed_file.clone(),
        shard: args.shard.clone(),
    };
    let config = Config::load(&args.config, &overrides).map_err(Failure::from_config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (trigger, shutdown) = shutdown::channel();
        let signals = tokio::spawn(async move {
            match shutdown::signal().await {
                Ok(()) => tracing::info!("stopping"),
                Err(error) => tracing::error!(%error, "can't wait for signals"),
            }
            trigger.shut_down();
        });
        let result = serve::run(config, shutdown).await;
        signals.abort();
        result.map_err(|error| Failure {
            hint: error.hint().map(str::to_owned),
            code: if error.is_about_configuration() { 2 } else { 1 },
            error: error.into(),
        })
    })
}
