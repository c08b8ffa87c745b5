//! Tools of `/v1/responses`.
//!
//! Functions are shown to the template, those of a namespace under a joined name, and tools that take free text as functions with one
//! argument. Tools that the engine itself would run are not shown.

use std::borrow::Cow;

use super::anthropic::{dict, kind, text};
use super::{constant, object};
use crate::text::error::Unscorable;
use crate::text::json::Json;

/// The name of a function in a namespace.
pub(super) fn flat_name(namespace: &str, name: &str) -> Cow<'static, str> {
    Cow::Owned(format!("{namespace}__{name}"))
}

/// Makes the list of tools: null where none are given, else a list that may be empty.
pub(super) fn translate(tools: Json<'_>) -> Result<Json<'_>, Unscorable> {
    let tools = match tools {
        Json::Null => return Ok(Json::Null),
        Json::Array(tools) if tools.is_empty() => return Ok(Json::Null),
        Json::Array(tools) => tools,
        _ => return Err(Unscorable::Invalid),
    };
    let mut shown = Vec::with_capacity(tools.len());
    for mut tool in tools {
        match kind(&tool) {
            Some("function") => shown.push(function(tool, None)?),
            Some("custom") => shown.push(custom(tool)?),
            Some("namespace") => {
                let namespace = text(&mut tool, "name")?.ok_or(Unscorable::Invalid)?;
                let Json::Array(tools) = tool.take_key("tools") else {
                    return Err(Unscorable::Invalid);
                };
                for tool in tools {
                    if kind(&tool) == Some("function") {
                        shown.push(function(tool, Some(&namespace))?);
                    }
                }
            }
            Some(_) => {}
            None => return Err(Unscorable::Invalid),
        }
    }
    Ok(Json::Array(shown))
}

fn function<'a>(mut tool: Json<'a>, namespace: Option<&str>) -> Result<Json<'a>, Unscorable> {
    let name = text(&mut tool, "name")?.ok_or(Unscorable::Invalid)?;
    let name = match namespace {
        Some(namespace) => flat_name(namespace, &name),
        None => name,
    };
    let function = object([
        ("name", Json::String(name)),
        ("description", tool.take_key("description")),
        ("parameters", dict(&mut tool, "parameters")?),
        ("strict", tool.take_key("strict")),
        ("defer_loading", tool.take_key("defer_loading")),
    ]);
    Ok(object([
        ("type", constant("function")),
        ("function", function),
    ]))
}

fn custom(mut tool: Json<'_>) -> Result<Json<'_>, Unscorable> {
    let format = dict(&mut tool, "format")?;
    if kind(&format) == Some("grammar") {
        return Err(Unscorable::Invalid);
    }
    let name = text(&mut tool, "name")?.ok_or(Unscorable::Invalid)?;
    let input = object([
        ("type", constant("string")),
        (
            "description",
            constant("The freeform text payload for this tool."),
        ),
    ]);
    let parameters = object([
        ("type", constant("object")),
        ("properties", object([("input", input)])),
        ("required", Json::Array(vec![constant("input")])),
        ("additionalProperties", Json::Bool(false)),
    ]);
    let function = object([
        ("name", Json::String(name)),
        ("description", tool.take_key("description")),
        ("parameters", parameters),
    ]);
    Ok(object([
        ("type", constant("function")),
        ("function", function),
    ]))
}
