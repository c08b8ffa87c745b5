//! What templates use of Python: string and dict methods, `json.dumps`, `strftime`.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Answers method calls that minijinja doesn't know.
pub(super) fn call_method(
    _: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let argument = |position: usize| args.get(position);
    let text = |position: usize| argument(position).and_then(Value::as_str);
    let unknown = || {
        Error::new(
            ErrorKind::UnknownMethod,
            format!("no method named {method}"),
        )
    };
    if let Some(receiver) = value.as_str() {
        let answer = match method {
            "strip" => strip(receiver, text(0)).into(),
            "lstrip" => strip_start(receiver, text(0)).into(),
            "rstrip" => strip_end(receiver, text(0)).into(),
            "upper" => receiver.to_uppercase().into(),
            "lower" => receiver.to_lowercase().into(),
            "startswith" => any_affix(argument(0), |affix| receiver.starts_with(affix)).into(),
            "endswith" => any_affix(argument(0), |affix| receiver.ends_with(affix)).into(),
            "find" => text(0)
                .and_then(|needle| receiver.find(needle))
                .and_then(|at| receiver.get(..at))
                .map_or(-1, |before| {
                    i64::try_from(before.chars().count()).unwrap_or(-1)
                })
                .into(),
            "replace" => receiver
                .replace(text(0).unwrap_or_default(), text(1).unwrap_or_default())
                .into(),
            "split" => match text(0) {
                Some(separator) => {
                    let most = argument(1)
                        .and_then(Value::as_usize)
                        .map_or(usize::MAX, |splits| splits + 1);
                    receiver.splitn(most, separator).map(Value::from).collect()
                }
                None => receiver.split_whitespace().map(Value::from).collect(),
            },
            _ => return Err(unknown()),
        };
        return Ok(answer);
    }
    match (value.kind(), method) {
        (ValueKind::Map, "items") => {
            let pair = |key: Value| Ok(Value::from(vec![key.clone(), value.get_item(&key)?]));
            value.try_iter()?.map(pair).collect()
        }
        (ValueKind::Map, "keys") => Ok(value.try_iter()?.collect()),
        (ValueKind::Map, "values") => value.try_iter()?.map(|key| value.get_item(&key)).collect(),
        (ValueKind::Map, "get") => {
            let found = value.get_item(argument(0).unwrap_or(&Value::UNDEFINED))?;
            let default = || argument(1).cloned().unwrap_or(Value::from(()));
            Ok(if found.is_undefined() {
                default()
            } else {
                found
            })
        }
        _ => Err(unknown()),
    }
}

/// `str.strip`: whitespace, or any of `characters`.
pub(super) fn strip<'a>(text: &'a str, characters: Option<&str>) -> &'a str {
    strip_end(strip_start(text, characters), characters)
}

fn strip_start<'a>(text: &'a str, characters: Option<&str>) -> &'a str {
    text.trim_start_matches(|c| is_stripped(c, characters))
}

fn strip_end<'a>(text: &'a str, characters: Option<&str>) -> &'a str {
    text.trim_end_matches(|c| is_stripped(c, characters))
}

/// Python counts the separators U+001C to U+001F as whitespace; Unicode's property, and Rust, don't.
fn is_stripped(c: char, characters: Option<&str>) -> bool {
    match characters {
        Some(set) => set.contains(c),
        None => c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c),
    }
}

fn any_affix(affixes: Option<&Value>, test: impl Fn(&str) -> bool) -> bool {
    let Some(affixes) = affixes else { return false };
    match affixes.as_str() {
        Some(affix) => test(affix),
        None => affixes
            .try_iter()
            .is_ok_and(|mut all| all.any(|affix| affix.as_str().is_some_and(&test))),
    }
}

/// `json.dumps(value, ensure_ascii=False, indent=…, separators=…, sort_keys=…)`, where `ensure_ascii` may be given too.
pub(super) fn to_json(value: &Value, options: &Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let default = [
        if indent.is_some() { "," } else { ", " }.to_owned(),
        ": ".to_owned(),
    ];
    let [item_separator, key_separator] =
        <[String; 2]>::try_from(separators.unwrap_or_default()).unwrap_or(default);
    let mut dump = Dump {
        out: String::new(),
        indent,
        item_separator,
        key_separator,
        sorts_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        escapes: options
            .get::<Option<bool>>("ensure_ascii")?
            .unwrap_or(false),
    };
    options.assert_all_used()?;
    dump.value(value, 0)?;
    Ok(dump.out)
}

struct Dump {
    out: String,
    indent: Option<usize>,
    item_separator: String,
    key_separator: String,
    sorts_keys: bool,
    escapes: bool,
}

impl Dump {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self
                .out
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.out.push_str(&value.to_string()),
            ValueKind::Number => self.out.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.items(&items, depth, '[', ']', |dump, item| {
                    dump.value(item, depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorts_keys {
                    keys.sort();
                }
                self.items(&keys, depth, '{', '}', |dump, key| {
                    dump.string(&key.to_string());
                    dump.out.push_str(&dump.key_separator.clone());
                    dump.value(&value.get_item(key)?, depth + 1)
                })?;
            }
            kind => {
                let message = format!("{kind} is not JSON serializable");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    fn items(
        &mut self,
        items: &[Value],
        depth: usize,
        open: char,
        close: char,
        mut each: impl FnMut(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for (position, item) in items.iter().enumerate() {
            if position > 0 {
                self.out.push_str(&self.item_separator.clone());
            }
            self.line(depth + 1);
            each(self, item)?;
        }
        if !items.is_empty() {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.escapes && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string can't fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// `repr` of a Python float: shortest digits, exponent form below 1e-4 and from 1e16 on.
fn float(value: f64) -> String {
    let magnitude = value.abs();
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        }
    } else {
        format!("{value:?}")
    }
}

/// `strftime` of a point in time in UTC, for the directives that templates use (`%Y %m %d %b %B %H %M %S`).
pub(super) fn strftime(time: SystemTime, format: &str) -> String {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (year, month, day) = civil_date(seconds / 86_400);
    let name = MONTHS
        .get(month.saturating_sub(1))
        .copied()
        .unwrap_or_default();
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let number = match rest.next() {
            Some('Y') => year,
            Some('m') => month as u64,
            Some('d') => day,
            Some('H') => seconds / 3_600 % 24,
            Some('M') => seconds / 60 % 60,
            Some('S') => seconds % 60,
            Some('B') => {
                out.push_str(name);
                continue;
            }
            Some('b') => {
                out.push_str(name.get(..3).unwrap_or_default());
                continue;
            }
            other => {
                out.extend(other);
                continue;
            }
        };
        // Writing to a string can't fail.
        let _ = write!(out, "{number:02}");
    }
    out
}

/// Gives year, month and day of a day counted from 1970-01-01.
fn civil_date(mut days: u64) -> (u64, usize, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn floats_print_as_in_python() {
        let cases = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (1.5e-7, "1.5e-07"),
            (-0.0, "-0.0"),
            (123_456.789, "123456.789"),
        ];
        for (value, text) in cases {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn dates_follow_the_calendar() {
        let at = |seconds| {
            strftime(
                UNIX_EPOCH + Duration::from_secs(seconds),
                "%d %b %Y %H:%M:%S|%B %m%%",
            )
        };
        assert_eq!(at(0), "01 Jan 1970 00:00:00|January 01%");
        assert_eq!(at(1_709_211_661), "29 Feb 2024 13:01:01|February 02%");
        assert_eq!(at(1_735_689_599), "31 Dec 2024 23:59:59|December 12%");
    }
}
