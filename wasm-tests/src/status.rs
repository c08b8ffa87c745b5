//! Numbers of the ABI that tests name.

/// Result of a host call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// Nothing there.
    NotFound = 1,
    /// Not legal now, or malformed.
    BadArgument = 2,
    /// A value could not be serialised.
    SerializationFailure = 3,
    /// A value could not be read.
    ParseFailure = 4,
    /// The compare-and-swap number does not fit.
    CasMismatch = 8,
    /// Anything else.
    InternalFailure = 10,
    /// The host lacks the function.
    Unimplemented = 12,
}

/// Level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// For whoever looks for a fault.
    Debug,
    /// Events worth knowing.
    Info,
    /// Degraded.
    Warn,
    /// Someone must act.
    Error,
    /// The SDK's panic hook writes here.
    Critical,
}

impl LogLevel {
    pub(crate) fn from_abi(level: u32) -> Self {
        match level {
            0 => Self::Trace,
            1 => Self::Debug,
            2 => Self::Info,
            3 => Self::Warn,
            4 => Self::Error,
            _ => Self::Critical,
        }
    }
}
