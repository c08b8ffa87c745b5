//! Rules of what names a session.

use super::{Checker, MAX_NAME_BYTES};

impl Checker {
    /// A header's name, which Envoy has in lower case.
    pub(super) fn session_header(&mut self, raw: Option<&String>) -> Option<String> {
        let name = self.token("policy.session_header", raw?, "header");
        Some(name.to_ascii_lowercase())
    }

    /// A cookie's name, in which case counts.
    pub(super) fn session_cookie(&mut self, raw: Option<&String>) -> Option<String> {
        let name = self.token("policy.session_cookie", raw?, "cookie");
        Some(name.to_owned())
    }

    /// A `token` of RFC 9110, which names of headers and cookies are.
    fn token<'n>(&mut self, key: &str, name: &'n str, what: &str) -> &'n str {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_token) {
            let reason = format!("is not the name of a {what}, allowed: letters, digits and -");
            self.problem(key, name, reason);
        }
        name
    }
}
