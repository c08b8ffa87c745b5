//! Prefixway's indexer as a library, and its command line.

pub mod demo;
pub mod replay;
