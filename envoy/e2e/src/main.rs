//! The same program as `prefixway`, for the tests of this crate to start.

fn main() -> std::process::ExitCode {
    prefixway::cli::run()
}
