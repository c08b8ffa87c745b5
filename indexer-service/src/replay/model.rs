//! The model of a capture.

use std::path::{Path, PathBuf};

use prefixway_core::text::{ModelFolder, ProfileError, Prompter, ServerFlags, TokenBytes};

use crate::model_dir::{LoadError, ModelDir};

/// Why a model folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file can't be read.
    #[error(transparent)]
    File(#[from] LoadError),
    /// The model has a tokenizer of another format.
    #[error("there is no tokenizer.json in {path}", path = path.display())]
    NoTokenizer {
        /// The folder.
        path: PathBuf,
    },
    /// The model's prompts can't be derived.
    #[error("can't derive prompts from {path}", path = path.display())]
    Profile {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: ProfileError,
    },
}

/// What it takes to make prompts and to read token ids.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) prompter: Prompter,
    pub(super) tokens: TokenBytes,
    pub(super) revision: u64,
}

impl Model {
    pub(super) fn load(folder: &Path) -> Result<Self, ModelError> {
        let files = ModelDir::read(folder, None)?;
        let path = || folder.to_owned();
        files
            .with_folder(ServerFlags::default(), Self::derive)
            .ok_or_else(|| ModelError::NoTokenizer { path: path() })?
            .map_err(|source| ModelError::Profile {
                path: path(),
                source,
            })
    }

    fn derive(folder: &ModelFolder<'_>) -> Result<Self, ProfileError> {
        let profile = folder.profile()?;
        Ok(Self {
            revision: profile.revision(),
            prompter: Prompter::try_new(profile)?.keep_rendered(),
            tokens: TokenBytes::from_model_files(&folder.files)?,
        })
    }
}
