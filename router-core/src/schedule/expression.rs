//! Filters and scorers that a policy writes as an expression.
//!
//! Policies are written in CEL. The indexer reads it once, refuses what can't be used, and sends gateways the tree ([`Node`]): they need no
//! parser, and what an evaluation costs is known beforehand, since there are no loops and at most [`MAX_NODES`] nodes.
//!
//! All numbers are doubles; a number that is not finite scores 0, and keeps an endpoint out of nothing. What a request or an endpoint does not
//! have is the empty text.

use serde::{Deserialize, Serialize};

use super::{Contender, Field, Filter, Need, Scorer, registry::Problem};
use crate::snapshot::Role;

/// Most nodes of an expression.
pub const MAX_NODES: usize = 256;

/// Deepest nesting of an expression.
pub const MAX_DEPTH: usize = 32;

/// What an expression can ask for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variable {
    /// Tokens of the prompt.
    #[serde(rename = "request.prompt_tokens")]
    PromptTokens,
    /// Tokens that may be generated; 0 = not said.
    #[serde(rename = "request.output_tokens")]
    OutputTokens,
    /// Wanted time to the first token in ms; 0 = none.
    #[serde(rename = "request.ttft_ms")]
    WantedTtftMs,
    /// Wanted time per token after it in ms; 0 = none.
    #[serde(rename = "request.tpot_ms")]
    WantedTpotMs,
    /// Profile id of the model.
    #[serde(rename = "request.model")]
    Model,
    /// Adapter; empty = the base model.
    #[serde(rename = "request.adapter")]
    Adapter,
    /// Pool.
    #[serde(rename = "request.pool")]
    Pool,
    /// Address as Envoy spells it.
    #[serde(rename = "endpoint.address")]
    Address,
    /// Accelerator class.
    #[serde(rename = "endpoint.accelerator")]
    Accelerator,
    /// both, prefill or decode.
    #[serde(rename = "endpoint.role")]
    Role,
    /// State of its events.
    #[serde(rename = "endpoint.state")]
    State,
    /// Tokens of the prompt that it holds.
    #[serde(rename = "endpoint.matched_tokens")]
    MatchedTokens,
    /// Tokens that it would have to compute.
    #[serde(rename = "endpoint.uncached_tokens")]
    UncachedTokens,
    /// Prompt tokens sent to it and not yet prefilled.
    #[serde(rename = "endpoint.queued_tokens")]
    QueuedTokens,
    /// Sequences in flight.
    #[serde(rename = "endpoint.in_flight")]
    InFlight,
    /// Requests that wait in the engine.
    #[serde(rename = "endpoint.waiting")]
    Waiting,
    /// Requests that the engine runs.
    #[serde(rename = "endpoint.running")]
    Running,
    /// Share of KV cache in use.
    #[serde(rename = "endpoint.kv_cache_utilization")]
    KvCacheUtilization,
    /// Prefill rate.
    #[serde(rename = "endpoint.prefill_tokens_per_s")]
    PrefillRate,
    /// Time until the first token by queue and rate, in ms.
    #[serde(rename = "endpoint.ttft_ms")]
    TtftMs,
    /// Whether its load is known.
    #[serde(rename = "endpoint.load_is_known")]
    LoadIsKnown,
    /// Whether it is full.
    #[serde(rename = "endpoint.is_full")]
    IsFull,
}

impl Variable {
    /// Reads its name; `None` when there is no such one.
    pub fn from_name(name: &str) -> Option<Self> {
        serde_json::from_value(serde_json::Value::String(name.to_owned())).ok()
    }

    fn kind(self) -> Kind {
        match self {
            Self::Model
            | Self::Adapter
            | Self::Pool
            | Self::Address
            | Self::Accelerator
            | Self::Role
            | Self::State => Kind::Text,
            Self::LoadIsKnown | Self::IsFull => Kind::Bool,
            _ => Kind::Number,
        }
    }
}

/// An operator with two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    /// Both.
    And,
    /// Either.
    Or,
    /// Sum.
    Plus,
    /// Difference.
    Minus,
    /// Product.
    Times,
    /// Quotient.
    Over,
    /// The lesser number.
    Least,
    /// The greater number.
    Greatest,
    /// The same.
    Equal,
    /// Not the same.
    Unequal,
    /// Less.
    Less,
    /// Less or the same.
    AtMost,
    /// Greater.
    Greater,
    /// Greater or the same.
    AtLeast,
    /// The left text contains the right one.
    Contains,
    /// The left text begins with the right one.
    StartsWith,
    /// The left text ends with the right one.
    EndsWith,
}

/// A part of an expression.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Node {
    /// A number.
    Number(f64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(String),
    /// Something of the request or the endpoint.
    Variable(Variable),
    /// Value of a label of the endpoint; empty when it has none.
    Label(String),
    /// Value of a header of the request, name in lower case; empty when there is none.
    Header(String),
    /// Not.
    Not(Box<Node>),
    /// With the other sign.
    Negate(Box<Node>),
    /// Two sides.
    Binary(Operator, Box<Node>, Box<Node>),
    /// Condition, then, else.
    If(Box<Node>, Box<Node>, Box<Node>),
    /// Whether the first is among the others.
    In(Box<Node>, Vec<Node>),
    /// Bytes of a text.
    Size(Box<Node>),
}

/// What a node gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// True or false.
    Bool,
    /// A text.
    Text,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::Bool => "true or false",
            Self::Text => "a text",
        }
    }
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value<'a> {
    Number(f64),
    Bool(bool),
    Text(&'a str),
}

impl Node {
    /// What it gives, having checked that every part gets what it needs.
    ///
    /// # Errors
    /// A part gets something else, or there is too much of it.
    pub fn kind(&self) -> Result<Kind, Problem> {
        let mut nodes = 0;
        self.check(0, &mut nodes)
    }

    fn check(&self, depth: usize, nodes: &mut usize) -> Result<Kind, Problem> {
        *nodes += 1;
        if *nodes > MAX_NODES {
            return Err(Problem::new(format!("has more than {MAX_NODES} parts")));
        }
        if depth > MAX_DEPTH {
            return Err(Problem::new(format!("is nested deeper than {MAX_DEPTH}")));
        }
        let mut want = |node: &Self, kind: Kind, of: &str| {
            let is = node.check(depth + 1, nodes)?;
            if is == kind {
                return Ok(kind);
            }
            let (is, kind) = (is.as_str(), kind.as_str());
            Err(Problem::new(format!("{of} needs {kind} and gets {is}")))
        };
        match self {
            Self::Number(_) => Ok(Kind::Number),
            Self::Bool(_) => Ok(Kind::Bool),
            Self::Text(_) | Self::Label(_) | Self::Header(_) => Ok(Kind::Text),
            Self::Variable(variable) => Ok(variable.kind()),
            Self::Not(node) => want(node, Kind::Bool, "!"),
            Self::Negate(node) => want(node, Kind::Number, "-"),
            Self::Size(node) => want(node, Kind::Text, "size").map(|_| Kind::Number),
            Self::Binary(operator, left, right) => {
                let of = format!("{operator:?}").to_lowercase();
                let (sides, gives) = match operator {
                    Operator::And | Operator::Or => (Kind::Bool, Kind::Bool),
                    Operator::Plus
                    | Operator::Minus
                    | Operator::Times
                    | Operator::Over
                    | Operator::Least
                    | Operator::Greatest => (Kind::Number, Kind::Number),
                    Operator::Less | Operator::AtMost | Operator::Greater | Operator::AtLeast => {
                        (Kind::Number, Kind::Bool)
                    }
                    Operator::Contains | Operator::StartsWith | Operator::EndsWith => {
                        (Kind::Text, Kind::Bool)
                    }
                    Operator::Equal | Operator::Unequal => {
                        let side = left.check(depth + 1, nodes)?;
                        let other = right.check(depth + 1, nodes)?;
                        if side == other {
                            return Ok(Kind::Bool);
                        }
                        let (side, other) = (side.as_str(), other.as_str());
                        return Err(Problem::new(format!("{side} is never {other}")));
                    }
                };
                want(left, sides, &of)?;
                want(right, sides, &of)?;
                Ok(gives)
            }
            Self::If(condition, then, otherwise) => {
                want(condition, Kind::Bool, "? :")?;
                let kind = then.check(depth + 1, nodes)?;
                let other = otherwise.check(depth + 1, nodes)?;
                if kind == other {
                    return Ok(kind);
                }
                let (kind, other) = (kind.as_str(), other.as_str());
                Err(Problem::new(format!("? : gives {kind} or {other}")))
            }
            Self::In(node, list) => {
                let kind = node.check(depth + 1, nodes)?;
                for of in list {
                    let other = of.check(depth + 1, nodes)?;
                    if kind != other {
                        let (kind, other) = (kind.as_str(), other.as_str());
                        return Err(Problem::new(format!("{kind} is never {other}")));
                    }
                }
                Ok(Kind::Bool)
            }
        }
    }

    /// Names of the request headers that it asks for.
    fn headers(&self, names: &mut Vec<String>) {
        match self {
            Self::Header(name) => names.push(name.clone()),
            Self::Not(node) | Self::Negate(node) | Self::Size(node) => node.headers(names),
            Self::Binary(_, left, right) => {
                left.headers(names);
                right.headers(names);
            }
            Self::If(condition, then, otherwise) => {
                for node in [condition, then, otherwise] {
                    node.headers(names);
                }
            }
            Self::In(node, list) => {
                node.headers(names);
                for of in list {
                    of.headers(names);
                }
            }
            _ => {}
        }
    }

    fn value<'a>(&'a self, need: &Need<'a>, contender: &Contender<'a>) -> Value<'a> {
        let of = |node: &'a Self| node.value(need, contender);
        match self {
            Self::Number(number) => Value::Number(*number),
            Self::Bool(truth) => Value::Bool(*truth),
            Self::Text(text) => Value::Text(text),
            Self::Variable(variable) => variable.value(need, contender),
            Self::Label(name) => Value::Text(contender.endpoint().label(name).unwrap_or_default()),
            Self::Header(name) => Value::Text(need.header(name).unwrap_or_default()),
            Self::Not(node) => Value::Bool(!of(node).truth()),
            Self::Negate(node) => Value::Number(-of(node).number()),
            Self::Size(node) => Value::Number(of(node).text().len() as f64),
            Self::Binary(operator, left, right) => operator.value(of(left), || of(right)),
            Self::If(condition, then, otherwise) => {
                if of(condition).truth() {
                    of(then)
                } else {
                    of(otherwise)
                }
            }
            Self::In(node, list) => {
                let value = of(node);
                Value::Bool(list.iter().any(|other| of(other) == value))
            }
        }
    }
}

impl Value<'_> {
    fn truth(self) -> bool {
        self == Self::Bool(true)
    }

    fn number(self) -> f64 {
        match self {
            Self::Number(number) => number,
            _ => f64::NAN,
        }
    }
}

impl<'a> Value<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Text(text) => text,
            _ => "",
        }
    }
}

impl Operator {
    fn value<'a>(self, left: Value<'a>, right: impl Fn() -> Value<'a>) -> Value<'a> {
        let number =
            |work: fn(f64, f64) -> f64| Value::Number(work(left.number(), right().number()));
        let compare =
            |work: fn(&f64, &f64) -> bool| Value::Bool(work(&left.number(), &right().number()));
        let text = |work: fn(&str, &str) -> bool| Value::Bool(work(left.text(), right().text()));
        match self {
            Self::And => Value::Bool(left.truth() && right().truth()),
            Self::Or => Value::Bool(left.truth() || right().truth()),
            Self::Plus => number(|a, b| a + b),
            Self::Minus => number(|a, b| a - b),
            Self::Times => number(|a, b| a * b),
            Self::Over => number(|a, b| a / b),
            Self::Least => number(f64::min),
            Self::Greatest => number(f64::max),
            Self::Equal => Value::Bool(left == right()),
            Self::Unequal => Value::Bool(left != right()),
            Self::Less => compare(f64::lt),
            Self::AtMost => compare(f64::le),
            Self::Greater => compare(f64::gt),
            Self::AtLeast => compare(f64::ge),
            Self::Contains => text(|a, b| a.contains(b)),
            Self::StartsWith => text(|a, b| a.starts_with(b)),
            Self::EndsWith => text(|a, b| a.ends_with(b)),
        }
    }
}

impl Variable {
    fn value<'a>(self, need: &Need<'a>, contender: &Contender<'a>) -> Value<'a> {
        let endpoint = contender.endpoint();
        match self {
            Self::PromptTokens => Value::Number(f64::from(need.prompt_tokens)),
            Self::OutputTokens => Value::Number(f64::from(need.output_tokens.unwrap_or(0))),
            Self::WantedTtftMs => Value::Number(need.ttft_ms.unwrap_or(0.0)),
            Self::WantedTpotMs => Value::Number(need.tpot_ms.unwrap_or(0.0)),
            Self::Model => Value::Text(need.model),
            Self::Adapter => Value::Text(need.adapter.unwrap_or_default()),
            Self::Pool => Value::Text(need.pool),
            Self::Address => Value::Text(&endpoint.address),
            Self::Accelerator => Value::Text(&endpoint.accelerator),
            Self::Role => Value::Text(match endpoint.role {
                Role::Both => "both",
                Role::Prefill => "prefill",
                Role::Decode => "decode",
            }),
            Self::State => Value::Text(&endpoint.state),
            Self::MatchedTokens => Value::Number(f64::from(contender.credit.tokens())),
            Self::UncachedTokens => Value::Number(f64::from(contender.uncached_tokens)),
            Self::QueuedTokens => Value::Number(contender.queued_tokens),
            Self::InFlight => Value::Number(contender.in_flight),
            Self::Waiting => Value::Number(contender.waiting),
            Self::Running => Value::Number(contender.running),
            Self::KvCacheUtilization => Value::Number(contender.kv_usage_ratio),
            Self::PrefillRate => Value::Number(contender.prefill_tokens_per_s),
            Self::TtftMs => Value::Number(contender.work_ms(f64::from(contender.uncached_tokens))),
            Self::LoadIsKnown => Value::Bool(contender.load_is_known()),
            Self::IsFull => Value::Bool(contender.is_full),
        }
    }
}

/// Parameters of the plugins, as gateways get them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// What was written, to be shown.
    pub expression: String,
    /// What it means.
    pub tree: Node,
}

/// An expression as a scorer (`expression`).
#[derive(Debug)]
pub(super) struct Scoring(Node);

/// An expression as a filter (`expression`).
#[derive(Debug)]
pub(super) struct Keeping(Node);

fn of_kind(parameters: Parameters, kind: Kind) -> Result<Node, Problem> {
    let is = parameters.tree.kind()?;
    if is == kind {
        return Ok(parameters.tree);
    }
    let (is, kind) = (is.as_str(), kind.as_str());
    Err(Problem::new(format!(
        "the expression gives {is}, {kind} is needed"
    )))
}

impl Scoring {
    pub(super) fn try_new(parameters: Parameters) -> Result<Self, Problem> {
        of_kind(parameters, Kind::Number).map(Self)
    }
}

impl Keeping {
    pub(super) fn try_new(parameters: Parameters) -> Result<Self, Problem> {
        of_kind(parameters, Kind::Bool).map(Self)
    }
}

impl Scorer for Scoring {
    fn score(&self, field: &Field<'_>, scores: &mut [f64]) {
        for (score, contender) in scores.iter_mut().zip(&field.contenders) {
            let number = self.0.value(field.need, contender).number();
            *score = if number.is_finite() { number } else { 0.0 };
        }
    }

    fn headers(&self, names: &mut Vec<String>) {
        self.0.headers(names);
    }
}

impl Filter for Keeping {
    fn keep(&self, field: &Field<'_>, kept: &mut [bool]) {
        for (kept, contender) in kept.iter_mut().zip(&field.contenders) {
            *kept &= self.0.value(field.need, contender).truth();
        }
    }

    fn headers(&self, names: &mut Vec<String>) {
        self.0.headers(names);
    }
}
