//! Tools of `/v1/messages`, and how system messages change them.
//!
//! A template sees one list of tools, so engines apply all changes of the conversation to the list before they render anything.

use std::borrow::Cow;
use std::collections::HashMap;

use super::anthropic::{dict, kind, text};
use super::{constant, object};
use crate::text::error::Unscorable;
use crate::text::json::Json;

/// A block of a system message that changes the tools.
pub(super) enum Change<'a> {
    /// Defines a tool, in place of another of its name.
    Define(Tool<'a>),
    /// Brings a tool in that was to be loaded later, or back in.
    Add(Cow<'a, str>),
    /// Takes a tool away.
    Remove(Cow<'a, str>),
}

/// A tool.
pub(super) struct Tool<'a> {
    name: Cow<'a, str>,
    description: Json<'a>,
    parameters: Json<'a>,
    strict: Json<'a>,
    defer_loading: Json<'a>,
}

impl<'a> Change<'a> {
    pub(super) fn read(mut block: Json<'a>) -> Result<Self, Unscorable> {
        let removes = kind(&block) == Some("tool_removal");
        let mut change = dict(&mut block, "tool")?;
        match kind(&change) {
            Some("tool_reference") => {
                let name = text(&mut change, "name")?.ok_or(Unscorable::Invalid)?;
                Ok(if removes {
                    Self::Remove(name)
                } else {
                    Self::Add(name)
                })
            }
            Some("tool_definition") if !removes => {
                Tool::read(dict(&mut change, "definition")?).map(Self::Define)
            }
            _ => Err(Unscorable::Invalid),
        }
    }
}

impl<'a> Tool<'a> {
    fn read(mut tool: Json<'a>) -> Result<Self, Unscorable> {
        let name = text(&mut tool, "name")?.ok_or(Unscorable::Invalid)?;
        let mut parameters = dict(&mut tool, "input_schema")?;
        match &mut parameters {
            Json::Object(entries) => {
                if !entries.iter().any(|(key, _)| key == "type") {
                    entries.push((Cow::Borrowed("type"), constant("object")));
                }
            }
            _ => return Err(Unscorable::Invalid),
        }
        Ok(Self {
            name,
            description: text(&mut tool, "description")?.map_or(Json::Null, Json::String),
            parameters,
            strict: tool.take_key("strict"),
            defer_loading: tool.take_key("defer_loading"),
        })
    }

    fn into_chat_tool(self) -> Json<'a> {
        let function = object([
            ("name", Json::String(self.name)),
            ("description", self.description),
            ("parameters", self.parameters),
            ("strict", self.strict),
            ("defer_loading", self.defer_loading),
        ]);
        object([("type", constant("function")), ("function", function)])
    }
}

/// Makes the list of tools: null where there is none, else a list that may be empty.
pub(super) fn translate<'a>(
    tools: Json<'a>,
    changes: Vec<Change<'a>>,
) -> Result<Json<'a>, Unscorable> {
    let is_absent = tools == Json::Null && changes.is_empty();
    let tools = match tools {
        Json::Null => Vec::new(),
        Json::Array(tools) => tools
            .into_iter()
            .map(Tool::read)
            .collect::<Result<Vec<_>, _>>()?,
        _ => return Err(Unscorable::Invalid),
    };
    if is_absent {
        return Ok(Json::Null);
    }
    let tools = if changes.is_empty() {
        tools
    } else {
        apply(tools, changes)?
    };
    Ok(Json::Array(
        tools.into_iter().map(Tool::into_chat_tool).collect(),
    ))
}

/// Applies changes in order. Of tools with one name the last counts, in the place of the first.
fn apply<'a>(
    declared: Vec<Tool<'a>>,
    changes: Vec<Change<'a>>,
) -> Result<Vec<Tool<'a>>, Unscorable> {
    let mut tools = Tools::default();
    for tool in declared {
        tools.define(tool);
    }
    for change in changes {
        let (name, removes) = match change {
            Change::Define(tool) => {
                let name = tool.name.clone();
                tools.define(tool);
                (name, false)
            }
            Change::Add(name) => {
                tools.get(&name)?.0.defer_loading = Json::Null;
                (name, false)
            }
            Change::Remove(name) => (name, true),
        };
        tools.get(&name)?.1 = removes;
    }
    let kept = tools.tools.into_iter().filter(|(_, removed)| !removed);
    Ok(kept.map(|(tool, _)| tool).collect())
}

/// Tools by name, in order.
#[derive(Default)]
struct Tools<'a> {
    /// Each with whether it is removed.
    tools: Vec<(Tool<'a>, bool)>,
    places: HashMap<Cow<'a, str>, usize>,
}

impl<'a> Tools<'a> {
    fn define(&mut self, tool: Tool<'a>) {
        let next = self.tools.len();
        let place = *self.places.entry(tool.name.clone()).or_insert(next);
        match self.tools.get_mut(place) {
            Some((old, _)) => *old = tool,
            None => self.tools.push((tool, false)),
        }
    }

    fn get(&mut self, name: &str) -> Result<&mut (Tool<'a>, bool), Unscorable> {
        let place = self.places.get(name).copied();
        place
            .and_then(|place| self.tools.get_mut(place))
            .ok_or(Unscorable::Invalid)
    }
}
