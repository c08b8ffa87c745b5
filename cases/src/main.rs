//! Runs all cases and prints one line each. Exit code 0: none failed, 1: one did, 2: they could not be run.
//!
//! With `serve` as its first argument it is the indexer that the cases need, so that they never run with an old one.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report is what the program is for"
)]

use std::process::ExitCode;

use prefixway_cases::folder;

fn main() -> ExitCode {
    #[cfg(feature = "envoy")]
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == "serve")
    {
        return prefixway::cli::run();
    }
    let folder = match folder::find() {
        Ok(folder) => folder,
        Err(why) => {
            eprintln!("skipped: {why}");
            return ExitCode::from(2);
        }
    };
    match prefixway_cases::run(&folder) {
        Ok(report) => {
            println!("{report}");
            if report.is_good() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
