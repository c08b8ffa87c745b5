//! The host's functions as the ABI has them: every pointer is a guest address, every result a status number.
//!
//! They are declared here and not taken from the SDK, because the SDK panics on statuses it does not expect, and reads numbers outside its
//! enumeration as one of its variants. Off wasm every call answers [`UNAVAILABLE`], so that the crate's own tests link.

#![cfg_attr(
    not(target_arch = "wasm32"),
    expect(clippy::too_many_arguments, reason = "the ABI's signatures")
)]

/// Status of a build without a host.
#[cfg(not(target_arch = "wasm32"))]
pub(super) const UNAVAILABLE: u32 = 12;

macro_rules! host_functions {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        #[cfg(target_arch = "wasm32")]
        #[expect(unsafe_code, reason = "the ABI's imports")]
        #[link(wasm_import_module = "env")]
        unsafe extern "C" {
            $(pub(super) fn $name($($argument: $type),*) -> u32;)*
        }

        $(
            #[cfg(not(target_arch = "wasm32"))]
            #[expect(unsafe_code, reason = "same signature as the ABI's import")]
            pub(super) unsafe fn $name($(_: $type),*) -> u32 {
                UNAVAILABLE
            }
        )*
    };
}

host_functions! {
    fn proxy_log(level: u32, text: *const u8, text_size: usize);
    fn proxy_get_current_time_nanoseconds(time: *mut u64);
    fn proxy_set_tick_period_milliseconds(period: u32);
    fn proxy_get_buffer_bytes(
        kind: u32,
        start: usize,
        max: usize,
        data: *mut *mut u8,
        size: *mut usize,
    );
    fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize);
    fn proxy_replace_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        value_size: usize,
    );
    fn proxy_remove_header_map_value(map: u32, name: *const u8, name_size: usize);
    fn proxy_get_property(
        path: *const u8,
        path_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
    );
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    );
    fn proxy_set_property(path: *const u8, path_size: usize, value: *const u8, value_size: usize);
    fn proxy_get_shared_data(
        key: *const u8,
        key_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
        cas: *mut u32,
    );
    fn proxy_set_shared_data(
        key: *const u8,
        key_size: usize,
        value: *const u8,
        value_size: usize,
        cas: u32,
    );
    fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32);
    fn proxy_record_metric(id: u32, value: u64);
    fn proxy_increment_metric(id: u32, offset: i64);
    fn proxy_grpc_send(token: u32, message: *const u8, message_size: usize, end: u32);
    fn proxy_grpc_cancel(token: u32);
    fn proxy_set_effective_context(context: u32);
    fn proxy_continue_stream(kind: u32);
}
