//! The host's shared data as the core sees it.

use std::borrow::Cow;

use prefixway_core::shared::{SharedData, SharedError, Value};

use crate::config::DEFAULT_SCOPE;
use crate::host::{self, HostError};

/// Shared data of the proxy, as far as one scope sees it.
#[derive(Clone, Debug)]
pub(crate) struct HostData {
    /// Put before every key; empty for the default scope.
    prefix: String,
}

impl HostData {
    /// The shared data of a scope of the plugin's configuration.
    pub(crate) fn new(scope: &str) -> Self {
        let prefix = if scope == DEFAULT_SCOPE {
            String::new()
        } else {
            format!("{scope}/")
        };
        Self { prefix }
    }

    fn key<'a>(&self, key: &'a str) -> Cow<'a, str> {
        if self.prefix.is_empty() {
            Cow::Borrowed(key)
        } else {
            Cow::Owned(format!("{}{key}", self.prefix))
        }
    }
}

/// Status that stands for "no memory in this VM": none of the ABI's.
const NO_MEMORY: u32 = u32::MAX;

impl From<HostError> for SharedError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::CasMismatch => Self::CasMismatch,
            HostError::NotFound => Self::Host { status: 1 },
            HostError::BadArgument => Self::Host { status: 2 },
            HostError::NoMemory { .. } => Self::Host { status: NO_MEMORY },
            HostError::Status(status) => Self::Host { status },
        }
    }
}

impl SharedData for HostData {
    fn get(&self, key: &str) -> Result<Option<Value>, SharedError> {
        let value = host::shared(&self.key(key))?;
        // Emptied keys stay in the host, and their CAS number is what the next writer must give.
        Ok(value
            .filter(|(bytes, _)| !bytes.is_empty())
            .map(|(bytes, cas)| (bytes, Some(cas).filter(|cas| *cas != 0))))
    }

    fn set(&self, key: &str, value: &[u8], cas: Option<u32>) -> Result<(), SharedError> {
        Ok(host::set_shared(&self.key(key), value, cas.unwrap_or(0))?)
    }
}
