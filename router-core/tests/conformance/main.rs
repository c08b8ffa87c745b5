//! Chat templates held against real jinja2: a fixed set of pairs, and random chats and templates through a Python process.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "these are tests: failing loudly is their purpose, and counts and skipping are said on the output"
)]

mod chats;
mod compare;
mod expressions;
mod oracle;
mod random;
mod set;
mod tree;
mod values;
