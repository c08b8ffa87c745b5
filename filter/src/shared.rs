//! The host's shared data as the core sees it.

use prefixway_core::shared::{SharedData, SharedError, Value};

use crate::host::{self, HostError};

/// Shared data of the proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostData;

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
        let value = host::shared(key)?;
        // Emptied keys stay in the host, and their CAS number is what the next writer must give.
        Ok(value
            .filter(|(bytes, _)| !bytes.is_empty())
            .map(|(bytes, cas)| (bytes, Some(cas).filter(|cas| *cas != 0))))
    }

    fn set(&self, key: &str, value: &[u8], cas: Option<u32>) -> Result<(), SharedError> {
        Ok(host::set_shared(key, value, cas.unwrap_or(0))?)
    }
}
