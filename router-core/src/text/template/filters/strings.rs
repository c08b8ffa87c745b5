//! Filters that make strings.

#![expect(
    clippy::needless_pass_by_value,
    reason = "the template engine passes arguments by value"
)]

use minijinja::value::{Kwargs, Rest, Tuple};
use minijinja::{Environment, Error, State, Value};

use super::{attribute_of, invalid, soft_string};
use crate::text::python;

/// Adds the filters.
pub(super) fn add(environment: &mut Environment<'static>) {
    environment.add_filter("join", join);
    environment.add_filter("trim", trim);
    environment.add_filter("title", title);
    environment.add_filter("upper", |value: &Value| cased(value, str::to_uppercase));
    environment.add_filter("lower", |value: &Value| cased(value, str::to_lowercase));
    environment.add_filter("capitalize", |value: &Value| {
        cased(value, python::capitalize)
    });
    environment.add_filter("wordcount", wordcount);
    environment.add_filter("format", format_text);
    environment.add_filter("center", center);
    environment.add_filter("truncate", truncate);
    environment.add_filter("indent", indent);
    environment.add_filter("replace", replace);
    environment.add_filter("safe", |value: &Value| {
        soft_string(value).map(|text| Value::from_safe_string(text.into_owned()))
    });
    for name in ["e", "escape", "forceescape"] {
        environment.add_filter(name, escape);
    }
}

/// A string in another case, marked as safe where it was.
fn cased(value: &Value, change: fn(&str) -> String) -> Result<Value, Error> {
    Ok(marked_as(value, change(&soft_string(value)?)))
}

/// A text, marked as safe where `value` is.
fn marked_as(value: &Value, text: String) -> Value {
    if value.is_safe() {
        Value::from_safe_string(text)
    } else {
        Value::from(text)
    }
}

fn join(
    state: &State<'_, '_>,
    value: &Value,
    positional: Rest<Value>,
    keywords: Kwargs,
) -> Result<String, Error> {
    let separator = match positional.first() {
        Some(separator) => separator.clone(),
        None => keywords
            .get::<Option<Value>>("d")?
            .unwrap_or_else(|| Value::from("")),
    };
    let attribute = match positional.get(1) {
        Some(attribute) => Some(attribute.clone()),
        None => keywords.get::<Option<Value>>("attribute")?,
    };
    keywords.assert_all_used()?;
    let separator = soft_string(&separator)?;
    if value.is_none() {
        return Err(invalid("None is not iterable"));
    }
    let mut joined = String::new();
    for (i, item) in value.try_iter()?.enumerate() {
        if i > 0 {
            joined.push_str(&separator);
        }
        let item = match &attribute {
            None => item,
            Some(attribute) => attribute_of(&item, attribute)?,
        };
        let before = joined.len();
        joined.push_str(&soft_string(&item)?);
        state.consume_fuel(1 + ((joined.len() - before + separator.len()) / 64) as u64)?;
    }
    Ok(joined)
}

/// `trim`, with Python's idea of white space.
fn trim(value: &Value, chars: Option<Value>) -> Result<Value, Error> {
    let chars = match &chars {
        Some(chars) if !chars.is_none() => {
            Some(chars.as_str().ok_or_else(|| invalid("expected a string"))?)
        }
        _ => None,
    };
    let text = soft_string(value)?;
    let trimmed = python::strip(&text, chars, true, true);
    Ok(if value.is_safe() {
        Value::from_safe_string(trimmed.to_owned())
    } else {
        Value::from(trimmed)
    })
}

/// `title`: other than `str.title`, words start after white space and opening brackets only.
fn title(value: &Value) -> Result<String, Error> {
    let text = soft_string(value)?;
    let is_start = |c: char| python::is_space(c) || "-({[<".contains(c);
    let mut titled = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while !rest.is_empty() {
        let (separators, word) = rest.split_at(rest.find(|c| !is_start(c)).unwrap_or(rest.len()));
        let (word, after) = word.split_at(word.find(is_start).unwrap_or(word.len()));
        titled.push_str(separators);
        let mut letters = word.chars();
        titled.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        titled.push_str(&letters.as_str().to_lowercase());
        rest = after;
    }
    Ok(titled)
}

/// `format`: the `%` operator.
fn format_text(
    state: &State<'_, '_>,
    value: &Value,
    args: Rest<Value>,
    keywords: Kwargs,
) -> Result<String, Error> {
    let text = soft_string(value)?;
    if value.is_safe() {
        return Err(invalid("values would be escaped"));
    }
    let has_keywords = keywords.args().next().is_some();
    let values = match (has_keywords, args.is_empty()) {
        (true, true) => keywords.into(),
        (true, false) => return Err(invalid("both positional and named values")),
        (false, _) => Value::from(Tuple::from(args.0)),
    };
    python::percent(state, &text, &values)
}

/// `wordcount`, for texts whose letters need no table to be told.
fn wordcount(value: &Value) -> Result<usize, Error> {
    let text = soft_string(value)?;
    if !text.is_ascii() {
        return Err(invalid("words beyond ASCII can't be counted"));
    }
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    Ok(words.filter(|word| !word.is_empty()).count())
}

fn center(value: &Value, width: Option<i64>) -> Result<Value, Error> {
    let text = python::center(&soft_string(value)?, width.unwrap_or(80))?;
    Ok(marked_as(value, text))
}

/// `replace`, which takes `str()` of all it is given; nothing of it is marked.
fn replace(
    state: &mut State<'_, '_>,
    value: &Value,
    old: &Value,
    new: &Value,
    count: Option<i64>,
) -> Result<Value, Error> {
    let [text, old, new] = [value, old, new].map(|value| soft_string(value).map(Value::from));
    let mut args = vec![old?, new?];
    args.extend(count.map(Value::from));
    python::call_method(state, &text?, "replace", &args)
}

/// `indent`: every line but the first, and not the empty ones, unless told so.
fn indent(
    value: &Value,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    keywords: Kwargs,
) -> Result<Value, Error> {
    const MAX_WIDTH: i64 = 1_000;
    let width = width
        .or(keywords.get("width")?)
        .unwrap_or_else(|| Value::from(4));
    let first = first.or(keywords.get("first")?).unwrap_or(false);
    let blank = blank.or(keywords.get("blank")?).unwrap_or(false);
    keywords.assert_all_used()?;
    let indention = match width.as_str() {
        Some(text) => text.to_owned(),
        None => match i64::try_from(width)? {
            width if width > MAX_WIDTH => return Err(invalid("width is too large")),
            width => " ".repeat(usize::try_from(width).unwrap_or(0)),
        },
    };
    let text = value
        .as_str()
        .ok_or_else(|| invalid("only a string can be indented"))?;
    let text = format!("{text}\n");
    let mut indented = String::with_capacity(text.len());
    for (i, line) in python::lines(&text, false).into_iter().enumerate() {
        indented.push_str(if i > 0 { "\n" } else { "" });
        if (i == 0 && first) || (i > 0 && (blank || !line.is_empty())) {
            indented.push_str(&indention);
        }
        indented.push_str(line);
    }
    Ok(marked_as(value, indented))
}

/// `truncate`.
fn truncate(value: &Value, positional: Rest<Value>, keywords: Kwargs) -> Result<String, Error> {
    let argument = |index: usize, name: &str| match positional.get(index) {
        Some(value) => Ok(Some(value.clone())),
        None => keywords.get::<Option<Value>>(name),
    };
    let length = argument(0, "length")?.map_or(Ok(255), i64::try_from)?;
    let kill = argument(1, "killwords")?.is_some_and(|kill| kill.is_true());
    let end = argument(2, "end")?.unwrap_or_else(|| Value::from("..."));
    let end = end
        .as_str()
        .ok_or_else(|| invalid("the end is no string"))?;
    let leeway = argument(3, "leeway")?.map_or(Ok(5), i64::try_from)?;
    keywords.assert_all_used()?;
    let text = value
        .as_str()
        .filter(|_| !value.is_safe())
        .ok_or_else(|| invalid("only a string without marks can be truncated"))?;
    let count = |text: &str| i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let room = length
        .checked_sub(count(end))
        .filter(|room| *room >= 0 && leeway >= 0);
    let Some(room) = room.and_then(|room| usize::try_from(room).ok()) else {
        return Err(invalid("length is less than that of the end"));
    };
    if count(text) <= length.saturating_add(leeway) {
        return Ok(text.to_owned());
    }
    let cut = text
        .char_indices()
        .nth(room)
        .map_or(text.len(), |(at, _)| at);
    let kept = text.get(..cut).unwrap_or_default();
    let kept = if kill {
        kept
    } else {
        kept.rsplit_once(' ').map_or(kept, |(before, _)| before)
    };
    Ok(format!("{kept}{end}"))
}

/// `escape`, as markupsafe does it.
pub(in crate::text::template) fn escape(value: &Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value.clone());
    }
    let text = soft_string(value)?;
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&#34;"),
            _ => escaped.push(letter),
        }
    }
    Ok(Value::from_safe_string(escaped))
}
