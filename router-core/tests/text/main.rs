//! Prompt text held against captures of real vLLM. The request cases run in `cases/`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "these are tests: failing loudly is their purpose, and skipping is said on the output"
)]

mod captures;
mod documentation;
mod engine_answers;
mod hostile;
mod inputs;
mod media;
mod spelling;
mod tokenizer_classes;
mod translate;
