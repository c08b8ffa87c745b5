//! What can be wrong with a configuration.

use std::fmt;
use std::path::PathBuf;

/// A configuration that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("can't read configuration {path}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not YAML, an unknown key, or a value of another type.
    #[error("configuration is not valid: {text}")]
    Syntax {
        /// The parser's words, with line and column.
        text: String,
    },
    /// The shape is right, and rules are broken.
    #[error("{}", list(.0))]
    Invalid(Vec<Problem>),
}

impl ConfigError {
    /// What the user can do next, when it is not part of the text.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } => Some("give the path of a YAML file with --config".to_owned()),
            Self::Syntax { .. } => {
                Some("docs/configuration.md lists every key and its type".to_owned())
            }
            Self::Invalid(_) => None,
        }
    }
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the key, such as `endpoints[2].model`.
    pub key: String,
    /// The value as written; empty when it is absent.
    pub value: String,
    /// What is wrong, with the allowed range.
    pub reason: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.key)?;
        if !self.value.is_empty() {
            write!(f, "{:?} ", self.value)?;
        }
        f.write_str(&self.reason)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

fn list(problems: &[Problem]) -> String {
    let count = problems.len();
    let mut text = format!(
        "configuration breaks {count} rule{}",
        if count == 1 { "" } else { "s" }
    );
    for problem in problems {
        text.push_str("\n- ");
        text.push_str(&problem.to_string());
    }
    text
}
