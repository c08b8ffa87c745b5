//! The `prefixway` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    prefixway::cli::run()
}
