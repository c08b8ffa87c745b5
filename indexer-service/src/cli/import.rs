//! `prefixway import`: other systems' policies as ours.

use std::io::Write;
use std::path::PathBuf;

use super::Failure;
use crate::import::llm_d;

/// Arguments of `import`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  prefixway import llm-d epp-config.yaml > policy.yaml   # notes go to standard error"
)]
pub struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, clap::Subcommand)]
enum From {
    /// An `EndpointPickerConfig` of llm-d or the Gateway API inference extension
    LlmD {
        /// The file, YAML
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Runs the command.
///
/// # Errors
/// The file can't be read or used.
pub fn run(args: &Args) -> Result<(), Failure> {
    let From::LlmD { file } = &args.from;
    let wrong = |error: anyhow::Error, hint: &str| Failure {
        error,
        hint: Some(hint.to_owned()),
        code: 2,
    };
    let text = std::fs::read_to_string(file).map_err(|error| {
        let error = anyhow::Error::new(error).context(format!("can't read {}", file.display()));
        wrong(error, "give the path of an EndpointPickerConfig")
    })?;
    let import = llm_d::import(&text).map_err(|error| {
        wrong(
            error.into(),
            "docs/migrating-from-llm-d.md says what is read and what it becomes",
        )
    })?;
    for note in &import.notes {
        writeln!(std::io::stderr(), "note: {}: {}", note.what, note.why)?;
    }
    write!(std::io::stdout(), "{}", import.policy)?;
    Ok(())
}
