//! Reading other systems' policies.

pub mod llm_d;
