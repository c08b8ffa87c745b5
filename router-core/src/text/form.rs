//! Finds the few fields that matter in a form (`multipart/form-data`), without reading the files in it.
//!
//! ```text
//! --boundary            the first line of the body names the delimiter
//! Content-Disposition: form-data; name="model"
//!
//! m-base
//! --boundary--
//! ```
//!
//! A search for the delimiter passes over each part's value, so an upload costs one scan of its bytes. The number of parts, the size
//! of their heads and of the values are bounded; past a bound, fields are not found, which is no error: what is wrong with a form is
//! for the engine to say.

use memchr::memmem;

/// Most parts that are looked at; Starlette, which reads forms for engines, accepts 1,000 fields.
const MAX_PARTS: usize = 64;
/// Longest delimiter: RFC 2046 allows boundaries of 70 characters after two dashes.
const MAX_DELIMITER_BYTES: usize = 72;
/// Longest head of a part that is looked at.
const MAX_HEAD_BYTES: usize = 4096;
/// Longest value of a field that is read.
const MAX_VALUE_BYTES: usize = 1024;

/// Fields of a form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Form<'a> {
    /// The last field `model`.
    pub(super) model: Option<&'a str>,
    /// The last field `stream`.
    pub(super) stream: Option<&'a str>,
}

/// Reads a form as far as it can be read.
pub(super) fn read(body: &[u8]) -> Form<'_> {
    let mut form = Form::default();
    // Starlette's parser passes over line ends before the first delimiter too.
    let body = body.trim_ascii_start();
    let Some(line) = body.iter().position(|&byte| byte == b'\r') else {
        return form;
    };
    let delimiter = body.get(..line).unwrap_or_default();
    if !delimiter.starts_with(b"--") || delimiter.len() > MAX_DELIMITER_BYTES {
        return form;
    }
    let mut separator = Vec::with_capacity(delimiter.len() + 2);
    separator.extend_from_slice(b"\r\n");
    separator.extend_from_slice(delimiter);
    let separator = memmem::Finder::new(&separator);
    let mut rest = body.get(line..).unwrap_or_default();
    for _ in 0..MAX_PARTS {
        // After a delimiter: a line end and a part, or two dashes and the end.
        let Some(part) = rest.strip_prefix(b"\r\n") else {
            break;
        };
        let Some(end) = separator.find(part) else {
            break;
        };
        let (part, after) = part.split_at_checked(end).unwrap_or_default();
        rest = after.get(separator.needle().len()..).unwrap_or_default();
        match field(part) {
            Some((b"model", value)) => form.model = Some(value),
            Some((b"stream", value)) => form.stream = Some(value),
            _ => {}
        }
    }
    form
}

/// Name and value of a part that is a short text field.
fn field(part: &[u8]) -> Option<(&[u8], &str)> {
    let bounded = part.get(..MAX_HEAD_BYTES).unwrap_or(part);
    let end = memmem::find(bounded, b"\r\n\r\n")?;
    let (head, value) = part.split_at_checked(end)?;
    let value = value.get(4..)?;
    if value.len() > MAX_VALUE_BYTES {
        return None;
    }
    let disposition = head.split(|&byte| byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(line.iter().position(|&b| b == b':')?)?;
        name.trim_ascii()
            .eq_ignore_ascii_case(b"content-disposition")
            .then_some(value)
    })?;
    let name = parameter(disposition, b"name")?;
    if parameter(disposition, b"filename").is_some() {
        return None;
    }
    Some((name, core::str::from_utf8(value).ok()?))
}

/// The value of a header's parameter, without its quotes.
fn parameter<'a>(header: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    header.split(|&byte| byte == b';').find_map(|parameter| {
        let at = parameter.iter().position(|&byte| byte == b'=')?;
        let (name, value) = parameter.split_at_checked(at)?;
        let value = value.get(1..)?.trim_ascii();
        let unquoted = value
            .strip_prefix(b"\"")
            .and_then(|value| value.strip_suffix(b"\""));
        name.trim_ascii()
            .eq_ignore_ascii_case(wanted)
            .then_some(unquoted.unwrap_or(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(head: &str, value: &str) -> String {
        format!("--b\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n")
    }

    fn model(body: &str) -> Option<&str> {
        read(body.as_bytes()).model
    }

    #[test]
    fn fields_are_found_before_and_after_files() {
        let file = part(
            "name=\"file\"; filename=\"model\"\r\nContent-Type: audio/wav",
            "RIFF\r\n--not the delimiter\r\n\r\nname=\"model\"",
        );
        let name = part("name=\"model\"", "m-base");
        let stream = part("name=\"stream\"", "true");
        for body in [
            format!("{file}{name}{stream}--b--\r\n"),
            format!("{stream}{name}{file}--b--"),
            format!("\r\n{name}{file}{stream}--b--\r\nepilogue"),
        ] {
            let form = read(body.as_bytes());
            assert_eq!((form.model, form.stream), (Some("m-base"), Some("true")));
        }
    }

    #[test]
    fn other_spellings_of_a_head_are_read() {
        for body in [
            "--b\r\ncontent-disposition:form-data;NAME=model\r\n\r\nm\r\n--b--",
            "--b\r\nContent-Type: text/plain\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--",
        ] {
            assert_eq!(model(body), Some("m"), "{body}");
        }
    }

    #[test]
    fn of_a_repeated_field_the_last_counts() {
        let body = part("name=\"model\"", "a") + &part("name=\"model\"", "b") + "--b--";
        assert_eq!(model(&body), Some("b"));
    }

    #[test]
    fn what_is_no_form_has_no_fields() {
        for body in [
            "",
            "\r\n",
            "{}",
            "--b",
            "--b\r\n",
            "model=m\r\n",
            "--b--\r\n",
        ] {
            assert_eq!(read(body.as_bytes()), Form::default(), "{body:?}");
        }
        let file = part("name=\"model\"; filename=\"x\"", "m") + "--b--";
        assert_eq!(model(&file), None);
        let bytes = b"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n\xff\r\n--b--";
        assert_eq!(read(bytes), Form::default());
    }

    #[test]
    fn an_unfinished_field_does_not_count() {
        let body = part("name=\"model\"", "m");
        assert_eq!(model(&body), None);
    }

    #[test]
    fn reading_is_bounded() {
        let name = part("name=\"model\"", "m") + "--b--";
        let after = |parts: usize| part("name=\"x\"", "").repeat(parts) + &name;
        assert_eq!(model(&after(MAX_PARTS - 1)), Some("m"));
        assert_eq!(model(&after(MAX_PARTS)), None);
        let long = "m".repeat(MAX_VALUE_BYTES);
        let body = part("name=\"model\"", &long) + "--b--";
        assert_eq!(model(&body), Some(long.as_str()));
        let body = part("name=\"model\"", &format!("{long}m")) + "--b--";
        assert_eq!(model(&body), None);
        let head = format!("name=\"model\"\r\nX: {}", "x".repeat(MAX_HEAD_BYTES));
        assert_eq!(model(&(part(&head, "m") + "--b--")), None);
        let delimiter = "-".repeat(MAX_DELIMITER_BYTES + 1);
        assert_eq!(model(&name.replace("--b", &delimiter)), None);
    }
}
