//! `int` and `float` of strings.

use minijinja::{Error, ErrorKind};

use super::strings::strip;

/// The digits of `int(text)`, with sign; none if this is no integer.
///
/// # Errors
///
/// The text may be a number in digits beyond ASCII.
pub(in crate::text) fn parse_int(text: &str) -> Result<Option<String>, Error> {
    let text = ascii(text)?;
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let Some(digits) = without_underscores(digits) else {
        return Ok(None);
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(None);
    }
    // Python reads no more digits than this.
    if digits.len() > 4300 {
        return Err(Error::new(ErrorKind::InvalidOperation, "too many digits"));
    }
    let digits = digits.trim_start_matches('0');
    Ok(Some(if digits.is_empty() {
        "0".into()
    } else {
        format!("{sign}{digits}")
    }))
}

/// `float(text)`; none if this is no number.
///
/// # Errors
///
/// The text may be a number in digits beyond ASCII.
pub(in crate::text) fn parse_float(text: &str) -> Result<Option<f64>, Error> {
    let Some(text) = without_underscores(ascii(text)?) else {
        return Ok(None);
    };
    // Rust reads what Python reads: digits, a point, an exponent, and the words for what is no finite number.
    Ok(text.parse().ok())
}

fn ascii(text: &str) -> Result<&str, Error> {
    let text = strip(text, None, true, true);
    if text.chars().any(|c| !c.is_ascii() && c.is_numeric()) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "digits beyond ASCII are not read",
        ));
    }
    Ok(text)
}

/// Takes away underscores, each of which has to stand between digits.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at))
            .is_some_and(u8::is_ascii_digit)
    };
    let fits = bytes
        .iter()
        .enumerate()
        .all(|(i, &b)| b != b'_' || (is_digit(i.checked_sub(1)) && is_digit(i.checked_add(1))));
    fits.then(|| text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_by_python() {
        for (text, int, float) in [
            (" 12\n", Some("12"), Some(12.0)),
            ("-007", Some("-7"), Some(-7.0)),
            ("+0", Some("0"), Some(0.0)),
            ("-0", Some("0"), Some(-0.0)),
            ("1_000", Some("1000"), Some(1000.0)),
            ("1__0", None, None),
            ("_1", None, None),
            ("1.5", None, Some(1.5)),
            (".5", None, Some(0.5)),
            ("5.", None, Some(5.0)),
            ("1e3", None, Some(1000.0)),
            ("0x1f", None, None),
            ("- 1", None, None),
            ("Infinity", None, Some(f64::INFINITY)),
            ("", None, None),
            ("é", None, None),
        ] {
            assert_eq!(parse_int(text).unwrap().as_deref(), int, "{text}");
            assert_eq!(parse_float(text).unwrap(), float, "{text}");
        }
        assert!(parse_int("٣").is_err());
    }
}
