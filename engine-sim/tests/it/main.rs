//! Integration tests: parity with a captured vLLM, and whole engines over HTTP and ZMQ.

mod capture;
mod msgpack;
mod parity;
