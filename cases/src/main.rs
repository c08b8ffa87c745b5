//! Runs all cases and prints one line each. Exit code 0: none failed, 1: one did, 2: there are no cases.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report is what the program is for"
)]

use std::process::ExitCode;

use prefixway_cases::{Report, events, folder};

fn main() -> ExitCode {
    let folder = match folder::find() {
        Ok(folder) => folder,
        Err(why) => {
            eprintln!("skipped: {why}");
            return ExitCode::from(2);
        }
    };
    let report = Report {
        lines: events::run(&folder.join("events")),
    };
    println!("{report}");
    if report.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
