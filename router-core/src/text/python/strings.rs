//! Methods of `str`. Indices and widths count characters.

use minijinja::value::Tuple;
use minijinja::{Error, ErrorKind, State, Value};

use super::{Args, case, format, not_a_string};

pub(super) fn call(
    state: &State<'_, '_>,
    text: &str,
    method: &str,
    args: &Args<'_>,
) -> Result<Value, Error> {
    let value = match method {
        "strip" | "lstrip" | "rstrip" => {
            let chars = args.string(0, "chars")?;
            let chars = chars.as_ref().and_then(Value::as_str);
            strip(text, chars, method != "rstrip", method != "lstrip").into()
        }
        "startswith" | "endswith" => match slice(text, args)? {
            Some((_, part)) => {
                affix(part, &args.required(0, "prefix")?, method == "startswith")?.into()
            }
            None => false.into(),
        },
        "removeprefix" => {
            let prefix = args.required_string(0, "prefix")?;
            text.strip_prefix(as_str(&prefix)?).unwrap_or(text).into()
        }
        "removesuffix" => {
            let suffix = args.required_string(0, "suffix")?;
            text.strip_suffix(as_str(&suffix)?).unwrap_or(text).into()
        }
        "split" | "rsplit" => {
            let separator = args.string(0, "sep")?;
            let limit = args.limit(1, "maxsplit")?;
            match separator.as_ref().and_then(Value::as_str) {
                None => split_space(text, limit, method == "rsplit"),
                Some("") => return Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
                Some(separator) => split(text, separator, limit, method == "rsplit"),
            }
        }
        "splitlines" => split_lines(
            text,
            args.get(0, "keepends").is_some_and(|keep| keep.is_true()),
        ),
        "partition" | "rpartition" => {
            let separator = args.required_string(0, "sep")?;
            partition(text, as_str(&separator)?, method == "partition")
        }
        "replace" => {
            let (old, new) = (
                args.required_string(0, "old")?,
                args.required_string(1, "new")?,
            );
            let limit = args.limit(2, "count")?;
            // Checked ahead of the work: with a long `new` the result can be far longer than its parts.
            let (old, new) = (as_str(&old)?, as_str(&new)?);
            let grown = text
                .len()
                .saturating_add(limit.min(text.len() + 1).saturating_mul(new.len()));
            state.consume_fuel((grown / 64) as u64)?;
            text.replacen(old, new, limit).into()
        }
        "join" => join(&args.required(0, "iterable")?, text)?.into(),
        "find" | "index" | "rfind" | "rindex" => find(text, method, args)?,
        "count" => {
            let needle = args.required_string(0, "sub")?;
            match (slice(text, args)?, as_str(&needle)?) {
                (None, _) => 0.into(),
                (Some((_, part)), "") => (part.chars().count() + 1).into(),
                (Some((_, part)), needle) => part.matches(needle).count().into(),
            }
        }
        "zfill" | "ljust" | "rjust" | "center" => pad(text, method, args)?.into(),
        "format" => format::braces(state, text, args)?.into(),
        _ => {
            return changed_case(text, method)
                .map(Value::from)
                .or_else(|| class(text, method).map(Value::from))
                .ok_or_else(|| ErrorKind::UnknownMethod.into());
        }
    };
    Ok(value)
}

fn as_str(value: &Value) -> Result<&str, Error> {
    value.as_str().ok_or_else(not_a_string)
}

/// White space as `str.isspace` has it: Unicode's and the four ASCII separators.
pub(in crate::text) fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// `str.strip` and its one-sided forms; `chars` is a set of characters, white space where `None`.
pub(in crate::text) fn strip<'a>(
    text: &'a str,
    chars: Option<&str>,
    left: bool,
    right: bool,
) -> &'a str {
    let drop =
        |letter: char| chars.map_or_else(|| is_space(letter), |chars| chars.contains(letter));
    let text = if left {
        text.trim_start_matches(drop)
    } else {
        text
    };
    if right {
        text.trim_end_matches(drop)
    } else {
        text
    }
}

/// The part of a text that optional second and third arguments name, with the index of its first letter; none where the part would
/// start behind the end of the text.
fn slice<'t>(text: &'t str, args: &Args<'_>) -> Result<Option<(usize, &'t str)>, Error> {
    let bounds = [args.get(1, "start"), args.get(2, "end")];
    if bounds.iter().all(Option::is_none) {
        return Ok(Some((0, text)));
    }
    let count = text.chars().count();
    let index = |bound: &Option<Value>, default: usize| match bound {
        None => Ok(default),
        Some(bound) => {
            let index = i64::try_from(bound.clone())?;
            let from_end = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
            Ok::<_, Error>(if index < 0 {
                count.saturating_sub(from_end)
            } else {
                from_end
            })
        }
    };
    let [start, end] = bounds;
    let (start, end) = (index(&start, 0)?, index(&end, count)?.min(count));
    if start > end {
        return Ok(None);
    }
    let byte = |index: usize| {
        text.char_indices()
            .nth(index)
            .map_or(text.len(), |(at, _)| at)
    };
    Ok(text.get(byte(start)..byte(end)).map(|part| (start, part)))
}

fn affix(text: &str, affix: &Value, start: bool) -> Result<bool, Error> {
    if let Some(affix) = affix.as_str() {
        return Ok(if start {
            text.starts_with(affix)
        } else {
            text.ends_with(affix)
        });
    }
    for one in affix.try_iter()? {
        let one = as_str(&one)?;
        if if start {
            text.starts_with(one)
        } else {
            text.ends_with(one)
        } {
            return Ok(true);
        }
    }
    Ok(false)
}

fn list<'a>(parts: impl Iterator<Item = &'a str>) -> Value {
    parts.map(Value::from).collect::<Vec<_>>().into()
}

fn split(text: &str, separator: &str, limit: usize, from_right: bool) -> Value {
    let parts = limit.saturating_add(1);
    if from_right {
        let mut parts: Vec<&str> = text.rsplitn(parts, separator).collect();
        parts.reverse();
        list(parts.into_iter())
    } else {
        list(text.splitn(parts, separator))
    }
}

/// Splits at runs of white space; what is left when the limit is reached keeps its space, but for that next to the last split.
fn split_space(text: &str, limit: usize, from_right: bool) -> Value {
    let mut parts = Vec::new();
    let mut rest = strip(text, None, !from_right, from_right);
    while !rest.is_empty() {
        let cut = if parts.len() == limit {
            None
        } else if from_right {
            rest.rfind(is_space)
        } else {
            rest.find(is_space)
        };
        let Some((before, after)) = cut.map(|at| rest.split_at(at)) else {
            parts.push(rest);
            break;
        };
        if from_right {
            parts.push(strip(after, None, true, false));
            rest = strip(before, None, false, true);
        } else {
            parts.push(before);
            rest = strip(after, None, true, false);
        }
    }
    if from_right {
        parts.reverse();
    }
    list(parts.into_iter())
}

fn split_lines(text: &str, keep_ends: bool) -> Value {
    list(lines(text, keep_ends).into_iter())
}

/// `str.splitlines`.
pub(in crate::text) fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'
                ..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (line, end) = match rest.find(is_end) {
            None => (rest.len(), rest.len()),
            Some(at) => {
                let tail = rest.get(at..).unwrap_or_default();
                let width = if tail.starts_with("\r\n") {
                    2
                } else {
                    tail.chars().next().map_or(0, char::len_utf8)
                };
                (at, at + width)
            }
        };
        lines.push(
            rest.get(..if keep_ends { end } else { line })
                .unwrap_or_default(),
        );
        rest = rest.get(end..).unwrap_or_default();
    }
    lines
}

fn partition(text: &str, separator: &str, first: bool) -> Value {
    let cut = if first {
        text.split_once(separator)
    } else {
        text.rsplit_once(separator)
    };
    let parts = match cut {
        Some((before, after)) => [before, separator, after],
        None if first => [text, "", ""],
        None => ["", "", text],
    };
    Value::from(Tuple::from(parts.map(Value::from)))
}

fn join(items: &Value, separator: &str) -> Result<String, Error> {
    let mut joined = String::new();
    for (i, item) in items.try_iter()?.enumerate() {
        if i > 0 {
            joined.push_str(separator);
        }
        joined.push_str(as_str(&item)?);
    }
    Ok(joined)
}

fn find(text: &str, method: &str, args: &Args<'_>) -> Result<Value, Error> {
    let needle = args.required_string(0, "sub")?;
    let needle = as_str(&needle)?;
    let found = slice(text, args)?.and_then(|(start, part)| {
        let at = if method.starts_with('r') {
            part.rfind(needle)
        } else {
            part.find(needle)
        };
        Some(start + part.get(..at?)?.chars().count())
    });
    match found {
        Some(at) => Ok(at.into()),
        None if method.ends_with("find") => Ok((-1).into()),
        None => Err(Error::new(
            ErrorKind::InvalidOperation,
            "substring not found",
        )),
    }
}

/// `str.center` with spaces.
pub(in crate::text) fn center(text: &str, width: i64) -> Result<String, Error> {
    pad(text, "center", &Args::new(&[Value::from(width)]))
}

fn pad(text: &str, method: &str, args: &Args<'_>) -> Result<String, Error> {
    const MAX_WIDTH: i64 = 10_000;
    let width = i64::try_from(args.required(0, "width")?)?;
    if width > MAX_WIDTH {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "width is too large",
        ));
    }
    let width = usize::try_from(width).unwrap_or(0);
    let missing = width.saturating_sub(text.chars().count());
    if method == "zfill" {
        let (sign, digits) = match text.strip_prefix(['+', '-']) {
            Some(digits) => text.split_at(text.len() - digits.len()),
            None => ("", text),
        };
        return Ok(format!("{sign}{}{digits}", "0".repeat(missing)));
    }
    let fill = args.string(1, "fillchar")?;
    let fill = fill.as_ref().and_then(Value::as_str).unwrap_or(" ");
    let left = match method {
        "ljust" => 0,
        "rjust" => missing,
        // CPython puts the odd one to the left if the width is odd.
        _ => missing / 2 + (missing & width & 1),
    };
    Ok(format!(
        "{}{text}{}",
        fill.repeat(left),
        fill.repeat(missing - left)
    ))
}

/// Methods that change case. Case folding has tables of its own, which are not here.
fn changed_case(text: &str, method: &str) -> Option<String> {
    Some(match method {
        "upper" => text.to_uppercase(),
        "lower" => text.to_lowercase(),
        "casefold" if text.is_ascii() => text.to_ascii_lowercase(),
        "capitalize" => case::capitalize(text),
        "title" => case::title(text),
        "swapcase" => case::swap(text),
        _ => return None,
    })
}

/// Methods that ask what a string consists of. Python's tables for letters and digits beyond ASCII are not here: those texts are
/// refused.
fn class(text: &str, method: &str) -> Option<bool> {
    let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    let ascii = text.is_ascii();
    Some(match method {
        "isspace" => all(is_space),
        "isascii" => ascii,
        "isupper" => case::is_all(text, true),
        "islower" => case::is_all(text, false),
        "istitle" => case::is_title(text),
        "isalpha" if ascii || !all(char::is_alphabetic) => all(|c| c.is_ascii_alphabetic()),
        "isalnum" if ascii || !all(char::is_alphanumeric) => all(|c| c.is_ascii_alphanumeric()),
        "isdigit" | "isdecimal" if ascii || !all(char::is_numeric) => all(|c| c.is_ascii_digit()),
        "isnumeric" if ascii => all(|c| c.is_ascii_digit()),
        "isidentifier" if ascii => {
            text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && all(|c| c.is_ascii_alphanumeric() || c == '_')
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
