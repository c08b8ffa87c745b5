//! Where the cases are.

use std::path::{Path, PathBuf};

use crate::error::CaseError;

/// Names the folder of cases.
pub const VARIABLE: &str = "PREFIXWAY_CASES";
/// Where they are otherwise: beside the workspace.
const DEFAULT: &str = "../shared/cases";

/// The folder of cases.
///
/// # Errors
/// Where it was looked for, when there is none; to be said to the user.
pub fn find() -> Result<PathBuf, String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let wanted = named.unwrap_or_else(|| PathBuf::from(DEFAULT));
    // A relative path is taken from the workspace: a test runner starts elsewhere.
    let folder = workspace.join(&wanted);
    if folder.is_dir() {
        Ok(folder)
    } else {
        Err(format!(
            "no folder {} with cases; set {VARIABLE} to use another",
            wanted.display()
        ))
    }
}

/// Files of a subfolder that end in one of `extensions`, by name; none where there is no such folder.
pub(crate) fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let fits = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(fits).collect();
    files.sort();
    files
}

/// A file's bytes.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, CaseError> {
    std::fs::read(path).map_err(|source| CaseError::File {
        path: path.to_owned(),
        source,
    })
}

/// A file's name without its folder.
pub(crate) fn name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The id in a file that can't be read otherwise; `?` where there is none.
pub(crate) fn id(path: &Path) -> String {
    let value = read(path).ok().and_then(|bytes| {
        let value: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
        Some(value.get("id")?.as_str()?.to_owned())
    });
    value.unwrap_or_else(|| "?".to_owned())
}
