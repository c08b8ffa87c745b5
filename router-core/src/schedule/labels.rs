//! Selecting endpoints by their labels, as Kubernetes does.

use serde::Deserialize;

use crate::snapshot::EndpointInfo;

/// A selector as in Kubernetes: every label and every expression must match.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels that must have these values.
    #[serde(default)]
    pub match_labels: std::collections::BTreeMap<String, String>,
    /// What else must hold.
    #[serde(default)]
    pub match_expressions: Vec<Requirement>,
}

/// A requirement on one label.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// What is wrong with a selector.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum SelectorError {
    /// It selects everything.
    #[error("the selector names no label")]
    Empty,
    /// `In` and `NotIn` need values, the others take none.
    #[error("the operator for label {key:?} {}", if *has_values { "takes no values" } else { "needs values" })]
    Values {
        /// The label.
        key: String,
        /// Whether there are any.
        has_values: bool,
    },
}

impl LabelSelector {
    /// Checks what the shape alone does not say.
    ///
    /// # Errors
    /// The selector is empty, or has values where there may be none, or none where there must be some.
    pub fn check(&self) -> Result<(), SelectorError> {
        if self.match_labels.is_empty() && self.match_expressions.is_empty() {
            return Err(SelectorError::Empty);
        }
        for requirement in &self.match_expressions {
            let has_values = !requirement.values.is_empty();
            let wants_values = matches!(requirement.operator, Operator::In | Operator::NotIn);
            if has_values != wants_values {
                let key = requirement.key.clone();
                return Err(SelectorError::Values { key, has_values });
            }
        }
        Ok(())
    }

    /// Whether an endpoint has such labels.
    pub fn matches(&self, endpoint: &EndpointInfo) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| endpoint.label(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| {
                let label = endpoint.label(&requirement.key);
                let is_in =
                    label.is_some_and(|label| requirement.values.iter().any(|of| of == label));
                match requirement.operator {
                    Operator::In => is_in,
                    Operator::NotIn => !is_in,
                    Operator::Exists => label.is_some(),
                    Operator::DoesNotExist => label.is_none(),
                }
            })
    }
}
