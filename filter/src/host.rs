//! The only module that talks to the host.
//!
//! Every call gives a [`HostError`] instead of a panic, whatever the host answers. Values that the host hands over are allocated inside the
//! module by an allocator that can't fail softly, so room for them is tried for first.

mod abi;
mod headers;

pub(crate) use headers::Headers;
use thiserror::Error;

/// Largest single value that is read from the host: a table segment of 1 MiB and its head.
const MAX_SHARED_VALUE_BYTES: usize = (1 << 20) + (1 << 16);

/// Why a host call did nothing.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum HostError {
    /// Nothing has this name.
    #[error("not found")]
    NotFound,
    /// Not legal in this phase, or malformed.
    #[error("bad argument")]
    BadArgument,
    /// Another VM wrote the key in between.
    #[error("compare-and-swap number does not fit")]
    CasMismatch,
    /// The VM has no room for the value.
    #[error("no memory for {bytes} bytes")]
    NoMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// Any other status.
    #[error("host status {0}")]
    Status(u32),
}

/// Header maps of a request.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Map {
    /// Request headers, until they have gone on.
    Request = 0,
    /// Response headers, until they have gone on.
    Response = 2,
}

/// Buffers that a callback can read.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Buffer {
    /// What is held of the request body.
    RequestBody = 0,
    /// The current piece of the response body.
    ResponseBody = 1,
    /// The current message of a gRPC stream.
    GrpcMessage = 5,
    /// The plugin's configuration.
    Configuration = 7,
}

/// Kinds of metrics.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum MetricKind {
    /// Only grows.
    Counter = 0,
    /// Goes up and down.
    Gauge = 1,
    /// Keeps a distribution.
    Histogram = 2,
}

/// A metric of this VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetricId(u32);

/// Maps a status number.
fn check(status: u32) -> Result<(), HostError> {
    match status {
        0 => Ok(()),
        1 => Err(HostError::NotFound),
        2 => Err(HostError::BadArgument),
        8 => Err(HostError::CasMismatch),
        other => Err(HostError::Status(other)),
    }
}

/// Whether the allocator could give `bytes` in one piece now.
pub(crate) fn has_room(bytes: usize) -> Result<(), HostError> {
    Vec::<u8>::new()
        .try_reserve_exact(bytes)
        .map_err(|_| HostError::NoMemory { bytes })
}

/// Takes over memory that the host allocated in the module for us.
#[expect(
    unsafe_code,
    reason = "the ABI hands over allocations as address and size"
)]
fn take(data: *mut u8, size: usize) -> Vec<u8> {
    if data.is_null() {
        Vec::new()
    } else {
        // SAFETY: the host filled `size` bytes that it got from this module's allocation export, which gives boxed slices of exactly that size.
        unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(data, size)) }.into_vec()
    }
}

/// Calls a function that gives bytes, and takes them over.
fn bytes(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Result<Vec<u8>, HostError> {
    let mut data = core::ptr::null_mut();
    let mut size = 0;
    check(call(&raw mut data, &raw mut size))?;
    Ok(take(data, size))
}

/// Writes a log line; a host that refuses it is not asked again.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn log(level: log::Level, text: &str) {
    let level = match level {
        log::Level::Trace => 0,
        log::Level::Debug => 1,
        log::Level::Info => 2,
        log::Level::Warn => 3,
        log::Level::Error => 4,
    };
    // SAFETY: the range is a live string.
    let _ = unsafe { abi::proxy_log(level, text.as_ptr(), text.len()) };
}

/// Time in nanoseconds since the Unix epoch; 0 when the host has no clock.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn now_ns() -> u64 {
    let mut time = 0;
    // SAFETY: the target is a live integer.
    match check(unsafe { abi::proxy_get_current_time_nanoseconds(&raw mut time) }) {
        Ok(()) => time,
        Err(_) => 0,
    }
}

/// Time in milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// Asks for a tick every `ms` milliseconds.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn set_tick_period_ms(ms: u32) -> Result<(), HostError> {
    // SAFETY: no memory is involved.
    check(unsafe { abi::proxy_set_tick_period_milliseconds(ms) })
}

/// Reads up to `max` bytes of a buffer from `start`. An absent buffer is [`HostError::NotFound`].
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn buffer(kind: Buffer, start: usize, max: usize) -> Result<Vec<u8>, HostError> {
    has_room(max)?;
    // SAFETY: both targets are live.
    bytes(|data, size| unsafe { abi::proxy_get_buffer_bytes(kind as u32, start, max, data, size) })
}

/// All headers of a map.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn headers(map: Map) -> Result<Headers, HostError> {
    // SAFETY: both targets are live.
    bytes(|data, size| unsafe { abi::proxy_get_header_map_pairs(map as u32, data, size) })
        .map(Headers::new)
}

/// Replaces every value of a header by one.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn set_header(map: Map, name: &str, value: &str) -> Result<(), HostError> {
    // SAFETY: name and value are live strings.
    check(unsafe {
        abi::proxy_replace_header_map_value(
            map as u32,
            name.as_ptr(),
            name.len(),
            value.as_ptr(),
            value.len(),
        )
    })
}

/// Removes every value of a header; an absent one is fine.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn remove_header(map: Map, name: &str) -> Result<(), HostError> {
    // SAFETY: the name is a live string.
    match check(unsafe {
        abi::proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len())
    }) {
        Err(HostError::NotFound) => Ok(()),
        other => other,
    }
}

/// Answers the request in the upstream's place. `details` is for Envoy's access log and has no spaces.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn reply(
    status: u16,
    headers: &[(&str, &str)],
    body: &[u8],
    details: &str,
) -> Result<(), HostError> {
    /// The ABI's "no gRPC status".
    const NO_GRPC: i32 = -1;
    let headers = pairs(headers);
    // SAFETY: all four ranges are live.
    check(unsafe {
        abi::proxy_send_local_response(
            u32::from(status),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            NO_GRPC,
        )
    })
}

/// The ABI's form of a header map: the number of headers, the sizes of each name and value, then names and values, each ended by a NUL.
fn pairs(headers: &[(&str, &str)]) -> Vec<u8> {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = number(headers.len()).to_vec();
    for (name, value) in headers {
        bytes.extend(number(name.len()));
        bytes.extend(number(value.len()));
    }
    for (name, value) in headers {
        for text in [name, value] {
            bytes.extend(text.bytes());
            bytes.push(0);
        }
    }
    bytes
}

/// A property of the request or connection, `None` when it has no such property now.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn property(path: &[&str]) -> Result<Option<Vec<u8>>, HostError> {
    let path = path.join("\0");
    // SAFETY: the path and both targets are live.
    let value = bytes(|data, size| unsafe {
        abi::proxy_get_property(path.as_ptr(), path.len(), data, size)
    });
    match value {
        Ok(value) => Ok(Some(value)),
        Err(HostError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sets a property of the request; stock filters read it as filter state `wasm.<name>`.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn set_property(name: &str, value: &str) -> Result<(), HostError> {
    // SAFETY: name and value are live.
    check(unsafe {
        abi::proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len())
    })
}

/// A shared value and its compare-and-swap number, `None` when the key was never written.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn shared(key: &str) -> Result<Option<(Vec<u8>, u32)>, HostError> {
    has_room(MAX_SHARED_VALUE_BYTES)?;
    let mut cas = 0;
    let cas_at = &raw mut cas;
    // SAFETY: the key and all targets are live.
    let value = bytes(|data, size| unsafe {
        abi::proxy_get_shared_data(key.as_ptr(), key.len(), data, size, cas_at)
    });
    match value {
        Ok(value) => Ok(Some((value, cas))),
        Err(HostError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a shared value; `cas` 0 writes whatever is there.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn set_shared(key: &str, value: &[u8], cas: u32) -> Result<(), HostError> {
    // SAFETY: key and value are live.
    check(unsafe {
        abi::proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), cas)
    })
}

/// Defines a metric of the process.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn define_metric(kind: MetricKind, name: &str) -> Result<MetricId, HostError> {
    let mut id = 0;
    // SAFETY: the name and the target are live.
    check(unsafe {
        abi::proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &raw mut id)
    })?;
    Ok(MetricId(id))
}

/// Sets a gauge, adds to a counter or observes a value.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn record(metric: MetricId, value: u64) -> Result<(), HostError> {
    // SAFETY: no memory is involved.
    check(unsafe { abi::proxy_record_metric(metric.0, value) })
}

/// Adds to a counter or gauge.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn increment(metric: MetricId, offset: i64) -> Result<(), HostError> {
    // SAFETY: no memory is involved.
    check(unsafe { abi::proxy_increment_metric(metric.0, offset) })
}

/// Opens a bidirectional gRPC stream; the SDK is asked, because it routes the stream's callbacks by the token.
#[cfg_attr(
    target_arch = "wasm32",
    expect(
        clippy::disallowed_methods,
        reason = "gives errors for the statuses that hosts answer here"
    )
)]
pub(crate) fn open_stream(cluster: &str, service: &str, method: &str) -> Result<u32, HostError> {
    #[cfg(target_arch = "wasm32")]
    return proxy_wasm::hostcalls::open_grpc_stream(cluster, service, method, Vec::new())
        .map_err(|status| HostError::Status(status as u32));
    #[cfg(not(target_arch = "wasm32"))]
    {
        let _ = (cluster, service, method);
        Err(HostError::Status(abi::UNAVAILABLE))
    }
}

/// Sends a message on a stream.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn send(token: u32, message: &[u8]) -> Result<(), HostError> {
    // SAFETY: the message is live.
    check(unsafe { abi::proxy_grpc_send(token, message.as_ptr(), message.len(), 0) })
}

/// Resets a stream; no close callback follows.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn cancel_stream(token: u32) -> Result<(), HostError> {
    // SAFETY: no memory is involved.
    check(unsafe { abi::proxy_grpc_cancel(token) })
}

/// Lets a held request go on, from a callback of the root context `root`, which calls are made for again afterwards.
pub(crate) fn resume_request(context: u32, root: u32) -> Result<(), HostError> {
    for_request(context, root, continue_request)?
}

/// Makes calls for a request, from a callback of the root context `root`, which calls are made for again afterwards.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn for_request<T>(
    context: u32,
    root: u32,
    calls: impl FnOnce() -> T,
) -> Result<T, HostError> {
    // SAFETY: no memory is involved.
    check(unsafe { abi::proxy_set_effective_context(context) })?;
    let result = calls();
    // SAFETY: no memory is involved.
    check(unsafe { abi::proxy_set_effective_context(root) })?;
    Ok(result)
}

/// Lets the request go on that calls are made for.
#[expect(unsafe_code, reason = "host call")]
pub(crate) fn continue_request() -> Result<(), HostError> {
    /// The ABI's request stream.
    const REQUEST: u32 = 0;
    // SAFETY: no memory is involved.
    check(unsafe { abi::proxy_continue_stream(REQUEST) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_an_error_or_success() {
        assert_eq!(check(0), Ok(()));
        assert_eq!(check(8), Err(HostError::CasMismatch));
        assert_eq!(check(99), Err(HostError::Status(99)));
    }

    #[test]
    fn header_maps_are_counts_sizes_and_texts() {
        assert_eq!(pairs(&[]), [0, 0, 0, 0]);
        assert_eq!(
            pairs(&[("a", "xy"), ("bc", "")]),
            b"\x02\0\0\0\x01\0\0\0\x02\0\0\0\x02\0\0\0\0\0\0\0a\0xy\0bc\0\0"
        );
    }

    #[test]
    fn room_is_refused_before_the_host_allocates() {
        assert!(has_room(1024).is_ok());
        assert_eq!(
            has_room(usize::MAX / 2),
            Err(HostError::NoMemory {
                bytes: usize::MAX / 2
            })
        );
    }

    #[test]
    fn without_a_host_calls_fail_softly() {
        assert_eq!(now_ns(), 0);
        assert_eq!(shared("k"), Err(HostError::Status(abi::UNAVAILABLE)));
        assert_eq!(
            set_header(Map::Request, "a", "b"),
            Err(HostError::Status(abi::UNAVAILABLE))
        );
    }
}
