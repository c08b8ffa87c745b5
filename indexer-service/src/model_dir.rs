//! A model's folder, as on a hub: the small files that tell how prompts are made.

use std::io;
use std::path::{Path, PathBuf};

use prefixway_core::text::{ModelFiles, ModelFolder, ServerFlags};

/// What to do when a folder can't be used.
pub const HINT: &str = "the model folder needs tokenizer.json and tokenizer_config.json, config.json where the model has one, and chat_template.jinja where tokenizer_config.json has no template";

/// Largest file read.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Most names of a folder that are looked at.
const MAX_NAMES: usize = 4096;

/// A model file that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file can't be read.
    #[error("can't read {path}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is too large for what it should be.
    #[error("{path} is larger than {MAX_FILE_BYTES} bytes", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

/// The files of a folder.
#[derive(Clone, Debug)]
pub struct ModelDir {
    /// `None`: the model has a tokenizer of another format.
    tokenizer: Option<String>,
    tokenizer_config: String,
    config: Option<String>,
    chat_template: Option<String>,
    processor_template: Option<String>,
    names: Vec<String>,
}

impl ModelDir {
    /// Reads the folder. `chat_template` is a file that takes the place of the folder's own template.
    ///
    /// # Errors
    /// A file that has to be there isn't, or one can't be read.
    pub fn read(folder: &Path, chat_template: Option<&Path>) -> Result<Self, LoadError> {
        let in_folder = |name: &str| folder.join(name);
        let chat_template = match chat_template {
            Some(path) => Some(read(path)?),
            None => read_if_there(&in_folder("chat_template.jinja"))?,
        };
        let names = names(folder);
        let is_foreign = names.iter().any(|name| is_foreign_tokenizer(name));
        let (tokenizer, tokenizer_config) = if is_foreign {
            (
                read_if_there(&in_folder("tokenizer.json"))?,
                read_if_there(&in_folder("tokenizer_config.json"))?
                    .unwrap_or_else(|| "{}".to_owned()),
            )
        } else {
            (
                Some(read(&in_folder("tokenizer.json"))?),
                read(&in_folder("tokenizer_config.json"))?,
            )
        };
        Ok(Self {
            tokenizer,
            tokenizer_config,
            config: read_if_there(&in_folder("config.json"))?,
            chat_template,
            processor_template: read_if_there(&in_folder("chat_template.json"))?,
            names,
        })
    }

    /// Gives the files with the server's flags to `with`; `None`: there is no tokenizer.json.
    pub fn with_folder<T>(
        &self,
        server: ServerFlags<'_>,
        with: impl FnOnce(&ModelFolder<'_>) -> T,
    ) -> Option<T> {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let folder = ModelFolder {
            files: ModelFiles {
                tokenizer_json: self.tokenizer.as_deref()?,
                tokenizer_config_json: &self.tokenizer_config,
                chat_template: self.chat_template.as_deref(),
            },
            config_json: self.config.as_deref(),
            processor_template_json: self.processor_template.as_deref(),
            names: &names,
            server,
        };
        Some(with(&folder))
    }
}

/// Whether a file of this name is a tokenizer that needs no tokenizer.json.
fn is_foreign_tokenizer(name: &str) -> bool {
    name == "tekken.json"
        || name == "tiktoken.model"
        || name == "tokenizer.model"
        || name.starts_with("tokenizer.model.v")
}

/// Names in the folder; none where it can't be listed, which reading its files will tell.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .take(MAX_NAMES)
        .collect()
}

fn read(path: &Path) -> Result<String, LoadError> {
    let read = || -> io::Result<Option<String>> {
        if std::fs::metadata(path)?.len() > MAX_FILE_BYTES {
            return Ok(None);
        }
        std::fs::read_to_string(path).map(Some)
    };
    match read() {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(LoadError::TooLarge {
            path: path.to_owned(),
        }),
        Err(source) => Err(LoadError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

fn read_if_there(path: &Path) -> Result<Option<String>, LoadError> {
    match read(path) {
        Err(LoadError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn missing_files_are_named() {
        let folder = dir(&[("tokenizer.json", "{}")]);
        let error = ModelDir::read(folder.path(), None).unwrap_err();
        assert!(
            error.to_string().contains("tokenizer_config.json"),
            "{error}"
        );
    }

    #[test]
    fn a_tokenizer_of_another_format_is_no_missing_file() {
        let folder = dir(&[("tekken.json", "{}"), ("config.json", "{}")]);
        let read = ModelDir::read(folder.path(), None).unwrap();
        assert!(read.with_folder(ServerFlags::default(), |_| ()).is_none());
    }

    #[test]
    fn everything_in_the_folder_is_given() {
        let folder = dir(&[
            ("tokenizer.json", "t"),
            ("tokenizer_config.json", "tc"),
            ("config.json", "c"),
            ("chat_template.json", "p"),
            ("chat_template.jinja", "own"),
        ]);
        let other = folder.path().join("other.jinja");
        std::fs::write(&other, "given").unwrap();
        for (template, expected) in [(None, "own"), (Some(other.as_path()), "given")] {
            let read = ModelDir::read(folder.path(), template).unwrap();
            read.with_folder(ServerFlags::default(), |folder| {
                assert_eq!(folder.files.tokenizer_json, "t");
                assert_eq!(folder.files.tokenizer_config_json, "tc");
                assert_eq!(folder.files.chat_template, Some(expected));
                assert_eq!(folder.config_json, Some("c"));
                assert_eq!(folder.processor_template_json, Some("p"));
                assert!(folder.names.contains(&"tokenizer.json"));
            })
            .unwrap();
        }
    }
}
