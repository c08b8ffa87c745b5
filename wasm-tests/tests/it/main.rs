//! Scenarios on the built wasm filter, and tests of the host emulator itself.

mod emulator;
