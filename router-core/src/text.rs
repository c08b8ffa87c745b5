//! From a request body to canonical text, without a tokenizer.
//!
//! ```text
//!  body ─ parse ─► Request ─┐
//!                           ├─ Prompter::prompt ─► Prompt { text } ─► chunk hashes
//!  model files ─► PromptProfile ─► Prompter ┘
//!  tokenizer.json ─► TokenBytes: token ids of engine events to bytes of the same text
//! ```
//!
//! Bytes of the token ids that an engine computes for a request equal the prompt's canonical text. The rules are vLLM's: what its
//! request validation keeps of a body, how it prepares messages, how Jinja2 and Python's `json` render them, and what the
//! tokenizer's normalizer changes. Where text can't be derived there is an [`Unscorable`] reason instead of a guess.
//!
//! A prompter's input is hostile: nesting, memory, work and output are bounded by [`MAX_DEPTH`], [`MAX_VALUES`], [`FUEL`] and
//! [`MAX_PROMPT_BYTES`].

mod api;
pub mod calibration;
mod canonical;
mod datum;
mod dialect;
pub mod encoding;
mod engine_renderer;
mod error;
mod form;
mod json;
mod json_text;
mod messages;
mod model_folder;
mod profile;
mod prompter;
mod python;
mod request;
mod strftime;
mod template;
mod tojson;
mod token_bytes;
mod tokenizer;
mod tokenizer_class;
mod tokenizer_file;
mod tools;
mod translate;
mod value;

pub use api::{Api, BodyFormat, ErrorStyle};
pub use canonical::{Canonicalisation, LeadingSpace, Literal, NormalForm};
pub use dialect::Dialect;
pub use error::{BodyError, ProfileError, Unscorable};
pub use json::{JsonError, JsonProblem, MAX_DEPTH, MAX_VALUES};
pub use messages::ContentFormat;
pub use model_folder::{MAX_VARIANTS, ModelFolder, ServerFlags, Variant};
pub use profile::{ModelFiles, PromptProfile, Template};
pub use prompter::{Prompt, Prompter};
pub use request::{MAX_LOAD_UNITS, Request, parse};
pub use strftime::LocalTime;
pub use template::{FUEL, MAX_PROMPT_BYTES};
pub use token_bytes::{MAX_TOKEN_ID, TokenBytes};
