//! Prompt text held against captures of real vLLM and against the request cases.

#![expect(clippy::tests_outside_test_module, reason = "an integration test is nothing but tests")]

mod captures;
mod cases;
mod inputs;
