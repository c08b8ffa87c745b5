//! Finding and compiling the module under test.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use wasmtime::{Config, Engine, Module, OptLevel, Result, format_err};

/// Environment variable that names the built module.
pub const MODULE_VARIABLE: &str = "PREFIXWAY_WASM";

/// Profiles looked for under the target folder; the newest build wins.
const PROFILES: [&str; 3] = ["wasm", "release", "debug"];

/// Where the built module is: [`MODULE_VARIABLE`], else the newest of the target folder's profiles.
///
/// # Errors
/// When there is none; the text names the command that builds it.
pub fn module_path() -> Result<PathBuf> {
    if let Some(path) = env::var_os(MODULE_VARIABLE) {
        return Ok(PathBuf::from(path));
    }
    newest(
        "prefixway-filter",
        "run `make wasm`, or name it in PREFIXWAY_WASM",
    )
}

/// The module of an example, by the name of its package.
///
/// # Errors
/// When it is missing or no valid module.
pub fn example_module(package: &str) -> Result<Module> {
    Module::from_file(engine()?, newest(package, "run `make examples`")?)
}

/// The newest build of a package's module.
fn newest(package: &str, hint: &str) -> Result<PathBuf> {
    let file = format!("{}.wasm", package.replace('-', "_"));
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
        PathBuf::from,
    );
    PROFILES
        .iter()
        .map(|profile| {
            target
                .join("wasm32-unknown-unknown")
                .join(profile)
                .join(&file)
        })
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max()
        .map(|(_, path)| path)
        .ok_or_else(|| {
            format_err!(
                "{file} was not found under {}\nhint: {hint}",
                target.display()
            )
        })
}

fn engine() -> Result<&'static Engine> {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    if let Some(engine) = ENGINE.get() {
        return Ok(engine);
    }
    let mut config = Config::new();
    config.cranelift_opt_level(OptLevel::Speed);
    let engine = Engine::new(&config)?;
    Ok(ENGINE.get_or_init(|| engine))
}

/// The built filter, compiled once for each process.
///
/// # Errors
/// When it is missing (see [`module_path()`]) or is no valid module.
pub fn built_module() -> Result<Module> {
    static MODULE: OnceLock<std::result::Result<Module, String>> = OnceLock::new();
    MODULE
        .get_or_init(|| {
            let compile = || Module::from_file(engine()?, module_path()?);
            compile().map_err(|error| format!("{error:#}"))
        })
        .clone()
        .map_err(|error| format_err!("{error}"))
}

/// The built filter, compiled with checks at which it can be looked at.
pub(crate) fn sampled_module() -> Result<Module> {
    let mut config = Config::new();
    config.cranelift_opt_level(OptLevel::Speed);
    config.epoch_interruption(true);
    Module::from_file(&Engine::new(&config)?, module_path()?)
}

/// A module from its binary form.
///
/// # Errors
/// When the bytes are no valid module.
pub fn module_from_bytes(bytes: &[u8]) -> Result<Module> {
    Module::new(engine()?, bytes)
}

/// A module from its text form, for tests of the host itself.
///
/// # Errors
/// When the text is no valid module.
pub fn module_from_wat(text: &str) -> Result<Module> {
    Module::new(engine()?, text)
}
