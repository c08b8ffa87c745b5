//! Filters and methods of values, chiefly of strings.

use super::GiveUp;
use super::eval::list;
use super::operators::{is_true, place};
use super::run::Run;
use super::tree::{Expr, Filter, Method};
use crate::text::datum::{Datum, Text};
use crate::text::python::strip;

/// `value | filter(args)`
pub(super) fn filter<'a>(
    run: &mut Run<'a>,
    filter: Filter,
    value: Datum<'a>,
    args: &'a [Expr],
) -> Result<Datum<'a>, GiveUp> {
    match filter {
        Filter::Trim => {
            let text = text(value)?;
            stripped(run, &text, args, true, true)
        }
        Filter::Length => {
            let length = match &value {
                Datum::Text(text) if text.is_ascii() => text.len(),
                Datum::Text(text) => text.chars().count(),
                Datum::List(list) => list.len(),
                Datum::Dict(dict) => dict.len(),
                Datum::Undefined => 0,
                _ => return Err(GiveUp),
            };
            if let Datum::Text(text) = &value {
                run.pay(text.len() / 64)?;
            }
            i64::try_from(length).map(Datum::Int).map_err(|_| GiveUp)
        }
        Filter::Upper => cased(run, &value, str::to_uppercase),
        Filter::Lower => cased(run, &value, str::to_lowercase),
        Filter::String => match value {
            Datum::Text(_) => Ok(value),
            Datum::Int(integer) => Ok(shared(integer.to_string())),
            _ => Err(GiveUp),
        },
        Filter::List => list(value).map(Datum::List),
        Filter::First => first_or_last(value, 0),
        Filter::Last => first_or_last(value, -1),
        Filter::Join => {
            let separator = args.first().map(|separator| run.eval(separator));
            let separator = separator.transpose()?.unwrap_or(Datum::text(""));
            join(run, &separator, value)
        }
        Filter::Replace => {
            let [old, new] = args else {
                return Err(GiveUp);
            };
            replace(run, &value, old, new)
        }
        Filter::Default(is_for_false) => {
            let [other] = args else {
                return Err(GiveUp);
            };
            let is_absent =
                matches!(value, Datum::Undefined) || (is_for_false && !is_true(&value)?);
            if is_absent {
                run.eval(other)
            } else {
                Ok(value)
            }
        }
    }
}

/// `base.method(args)`
pub(super) fn method<'a>(
    run: &mut Run<'a>,
    method: Method,
    base: &'a Expr,
    args: &'a [Expr],
) -> Result<Datum<'a>, GiveUp> {
    let base = run.eval(base)?;
    if let Method::Get = method {
        let (Datum::Dict(dict), [key, other @ ..]) = (&base, args) else {
            return Err(GiveUp);
        };
        let Datum::Text(key) = run.eval(key)? else {
            return Err(GiveUp);
        };
        run.pay(dict.len() / 16)?;
        let other = other.first().map(|other| run.eval(other)).transpose()?;
        return Ok(dict.get(&key).or(other).unwrap_or(Datum::None));
    }
    let text = text(base)?;
    match method {
        Method::Strip => stripped(run, &text, args, true, true),
        Method::StripLeft => stripped(run, &text, args, true, false),
        Method::StripRight => stripped(run, &text, args, false, true),
        Method::StartsWith | Method::EndsWith => {
            let [affix] = args else {
                return Err(GiveUp);
            };
            let Datum::Text(affix) = run.eval(affix)? else {
                return Err(GiveUp);
            };
            Ok(Datum::Bool(if let Method::StartsWith = method {
                text.starts_with(&*affix)
            } else {
                text.ends_with(&*affix)
            }))
        }
        Method::Split | Method::SplitRight => {
            split(run, &text, args, matches!(method, Method::SplitRight))
        }
        Method::Replace => {
            let [old, new] = args else {
                return Err(GiveUp);
            };
            replace(run, &Datum::Text(text), old, new)
        }
        Method::Upper => cased(run, &Datum::Text(text), str::to_uppercase),
        Method::Lower => cased(run, &Datum::Text(text), str::to_lowercase),
        Method::Join => {
            let [items] = args else {
                return Err(GiveUp);
            };
            let items = run.eval(items)?;
            join(run, &Datum::Text(text), items)
        }
        Method::Get => Err(GiveUp),
    }
}

fn text(value: Datum<'_>) -> Result<Text<'_>, GiveUp> {
    match value {
        Datum::Text(text) => Ok(text),
        _ => Err(GiveUp),
    }
}

fn shared<'a>(text: String) -> Datum<'a> {
    Datum::Text(Text::Shared(text.into()))
}

fn stripped<'a>(
    run: &mut Run<'a>,
    text: &Text<'a>,
    chars: &'a [Expr],
    left: bool,
    right: bool,
) -> Result<Datum<'a>, GiveUp> {
    let chars = match chars {
        [] => None,
        [chars, ..] => match run.eval(chars)? {
            Datum::Text(chars) => Some(chars),
            _ => return Err(GiveUp),
        },
    };
    Ok(Datum::Text(
        text.cut(|text| strip(text, chars.as_deref(), left, right)),
    ))
}

fn cased<'a>(
    run: &mut Run<'a>,
    value: &Datum<'a>,
    change: fn(&str) -> String,
) -> Result<Datum<'a>, GiveUp> {
    let Datum::Text(text) = value else {
        return Err(GiveUp);
    };
    run.pay(text.len() / 16)?;
    Ok(shared(change(text)))
}

fn first_or_last(value: Datum<'_>, index: i64) -> Result<Datum<'_>, GiveUp> {
    let list = list(value)?;
    let place = place(index, list.len());
    Ok(place
        .and_then(|place| list.get(place))
        .unwrap_or(Datum::Undefined))
}

/// Joins strings.
fn join<'a>(
    run: &mut Run<'a>,
    separator: &Datum<'a>,
    items: Datum<'a>,
) -> Result<Datum<'a>, GiveUp> {
    let (Datum::Text(separator), items) = (separator, list(items)?) else {
        return Err(GiveUp);
    };
    let joined = run.capture(|run| {
        for (i, item) in items.iter().enumerate() {
            run.pay(1)?;
            if i > 0 {
                run.push(separator)?;
            }
            let Datum::Text(item) = item else {
                return Err(GiveUp);
            };
            run.push(&item)?;
        }
        Ok(())
    });
    joined.map(Datum::Text)
}

fn replace<'a>(
    run: &mut Run<'a>,
    value: &Datum<'a>,
    old: &'a Expr,
    new: &'a Expr,
) -> Result<Datum<'a>, GiveUp> {
    let (Datum::Text(text), Datum::Text(old), Datum::Text(new)) =
        (value, run.eval(old)?, run.eval(new)?)
    else {
        return Err(GiveUp);
    };
    if old.is_empty() {
        return Err(GiveUp);
    }
    run.pay(text.len() / 64)?;
    let replaced = run.capture(|run| {
        let mut rest = &**text;
        while let Some(at) = memchr::memmem::find(rest.as_bytes(), old.as_bytes()) {
            run.pay(1)?;
            run.push(rest.get(..at).ok_or(GiveUp)?)?;
            run.push(&new)?;
            rest = rest.get(at + old.len()..).ok_or(GiveUp)?;
        }
        run.push(rest)
    });
    replaced.map(Datum::Text)
}

fn split<'a>(
    run: &mut Run<'a>,
    text: &Text<'a>,
    args: &'a [Expr],
    from_right: bool,
) -> Result<Datum<'a>, GiveUp> {
    let [separator, limit @ ..] = args else {
        return Err(GiveUp);
    };
    let Datum::Text(separator) = run.eval(separator)? else {
        return Err(GiveUp);
    };
    let limit = match limit {
        [] => usize::MAX,
        [limit, ..] => match run.eval(limit)? {
            Datum::Int(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
            _ => return Err(GiveUp),
        },
    };
    if separator.is_empty() {
        return Err(GiveUp);
    }
    let parts = limit.saturating_add(1);
    let pieces: Vec<Datum<'a>> = match text {
        Text::Borrowed(text) => pieces(text, &separator, parts, from_right)
            .map(Datum::text)
            .collect(),
        Text::Shared(text) => pieces(text, &separator, parts, from_right)
            .map(|piece| shared(piece.to_owned()))
            .collect(),
    };
    run.pay(text.len() / 64 + pieces.len())?;
    Ok(Datum::list(pieces))
}

fn pieces<'t>(
    text: &'t str,
    separator: &str,
    most: usize,
    from_right: bool,
) -> impl Iterator<Item = &'t str> {
    let mut pieces: Vec<&str> = if from_right {
        text.rsplitn(most, separator).collect()
    } else {
        text.splitn(most, separator).collect()
    };
    if from_right {
        pieces.reverse();
    }
    pieces.into_iter()
}

/// The first or the last part of a string that is split without a limit; none if this is something else.
pub(super) fn end_of_split<'a>(
    run: &mut Run<'a>,
    method: Method,
    base: &'a Expr,
    args: &'a [Expr],
    index: i64,
) -> Result<Option<Datum<'a>>, GiveUp> {
    let (Method::Split, [separator], 0 | -1) = (method, args, index) else {
        return Ok(None);
    };
    let text = text(run.eval(base)?)?;
    let Datum::Text(separator) = run.eval(separator)? else {
        return Err(GiveUp);
    };
    if separator.is_empty() {
        return Err(GiveUp);
    }
    run.pay(text.len() / 64)?;
    let (whole, sought) = (text.as_bytes(), separator.as_bytes());
    // A part from the right may begin elsewhere than one from the left where separators overlap.
    let part = if index == 0 {
        let end = memchr::memmem::find(whole, sought).unwrap_or(whole.len());
        text.cut(|text| text.get(..end).unwrap_or_default())
    } else {
        let last = memchr::memmem::find_iter(whole, sought).last();
        let start = last.map_or(0, |at| at + sought.len());
        text.cut(|text| text.get(start..).unwrap_or_default())
    };
    Ok(Some(Datum::Text(part)))
}
