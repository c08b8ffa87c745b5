//! Writes JSON strings.

/// `text` as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    // A string is always written.
    serde_json::to_string(text).unwrap_or_default()
}
