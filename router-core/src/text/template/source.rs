//! Adapts a template's source to what minijinja reads.
//!
//! The `generation` tag, which only marks the assistant's text for training, becomes a block with the same scoping; strings are
//! unescaped as Python does it; a plus sign before an operand, which changes no number, goes.

use core::fmt::Write;
use core::ops::Range;

use minijinja::machinery::{Span, Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, ErrorKind};

/// Adapts `source`, written in `syntax`.
///
/// # Errors
///
/// A string has an escape whose character is not known here.
pub(super) fn adapt(source: &str, syntax: &SyntaxConfig) -> Result<String, Error> {
    // As Jinja2 does.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut before: Option<Token<'_>> = None;
    let mut opening = false;
    // Where the tokens end with an error the parser will say what is wrong.
    for (token, span) in tokenize(&source, false, syntax.clone()).map_while(Result::ok) {
        let range = range(span);
        match &token {
            Token::Ident("generation") if opening => edits.push((range, "with".into())),
            Token::Ident("endgeneration") if opening => edits.push((range, "endwith".into())),
            Token::Plus if before.as_ref().is_some_and(starts_operand) => {
                edits.push((range, " ".into()));
            }
            Token::String(_) => {
                if let Some(literal) = source.get(range.clone()).and_then(inner) {
                    edits.push((range, quote(&unescape(literal)?)));
                }
            }
            _ => {}
        }
        opening = matches!(token, Token::BlockStart);
        before = Some(token);
    }
    let mut adapted = String::with_capacity(source.len());
    let mut done = 0;
    for (range, replacement) in edits {
        adapted.push_str(source.get(done..range.start).unwrap_or_default());
        adapted.push_str(&replacement);
        done = range.end;
    }
    adapted.push_str(source.get(done..).unwrap_or_default());
    Ok(adapted)
}

fn range(span: Span) -> Range<usize> {
    let [start, end] =
        [span.start_offset, span.end_offset].map(|at| usize::try_from(at).unwrap_or(0));
    start..end
}

/// Whether an operand follows `token`, so that a plus sign there has nothing to add to.
fn starts_operand(token: &Token<'_>) -> bool {
    match token {
        Token::Ident(word) => matches!(*word, "if" | "elif" | "else" | "in" | "not" | "and" | "or"),
        Token::TemplateData(_)
        | Token::BlockStart
        | Token::BlockEnd
        | Token::VariableEnd
        | Token::Str(_)
        | Token::String(_)
        | Token::Int(_)
        | Token::Int128(_)
        | Token::Float(_)
        | Token::BracketClose
        | Token::ParenClose
        | Token::BraceClose => false,
        _ => true,
    }
}

/// A string without its quotes.
fn inner(literal: &str) -> Option<&str> {
    literal.get(1..literal.len().checked_sub(1)?)
}

/// Writes a string in quotes; what has an escape here is read back by the template engine.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // Writing to a string can't fail.
            '\0'..='\u{1f}' | '\u{7f}' => _ = write!(quoted, "\\u{:04x}", u32::from(letter)),
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// What Python's `unicode-escape` makes of the inside of a string.
fn unescape(literal: &str) -> Result<String, Error> {
    let unknown = || {
        Error::new(
            ErrorKind::SyntaxError,
            "escape in a string is not supported",
        )
    };
    let mut text = String::with_capacity(literal.len());
    // A character that was spelled in two halves is no character for Python: the engine fails when it comes to writing it out.
    let mut rest = literal;
    while let Some((plain, after)) = rest.split_once('\\') {
        text.push_str(plain);
        let mut letters = after.chars();
        let code = |from: usize, digits: usize, radix: u32| {
            after
                .get(from..from + digits)
                .filter(|digits| digits.chars().all(|digit| digit.is_digit(radix)))
                .and_then(|digits| u32::from_str_radix(digits, radix).ok())
                .and_then(char::from_u32)
                .ok_or_else(unknown)
        };
        let mut length = 1;
        match letters.next().ok_or_else(unknown)? {
            '\n' => {}
            letter @ ('\\' | '\'' | '"') => text.push(letter),
            'a' => text.push('\u{7}'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            'v' => text.push('\u{b}'),
            letter @ ('x' | 'u' | 'U') => {
                let digits = match letter {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                text.push(code(1, digits, 16)?);
                length += digits;
            }
            '0'..='7' => {
                let is_octal = |letter: &char| ('0'..='7').contains(letter);
                length = after.chars().take(3).take_while(is_octal).count();
                text.push(code(0, length, 8)?);
            }
            // Characters by name; and Python, which spells what is beyond ASCII as escapes first, would see another backslash.
            letter if letter == 'N' || !letter.is_ascii() => return Err(unknown()),
            letter => text.extend(['\\', letter]),
        }
        rest = after.get(length..).ok_or_else(unknown)?;
    }
    text.push_str(rest);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::environment::jinja_syntax;
    use super::*;

    fn adapted(source: &str) -> String {
        adapt(source, &jinja_syntax().unwrap()).unwrap()
    }

    #[test]
    fn only_whole_generation_tags_are_replaced() {
        assert_eq!(
            adapted(
                "{%- generation -%}a{% endgeneration %}\r\n{% if generation %}{{ '{% generation %}' }}{% endif %}{% raw %}{% generation %}{% endraw %}"
            ),
            "{%- with -%}a{% endwith %}\n{% if generation %}{{ '{% generation %}' }}{% endif %}{% raw %}{% generation %}{% endraw %}"
        );
    }

    #[test]
    fn strings_are_unescaped_as_by_python() {
        for (literal, text) in [
            (r"a\n\t\r\\\'\x22", "a\n\t\r\\'\""),
            (r"\a\b\f\v\0\101\7", "\u{7}\u{8}\u{c}\u{b}\0A\u{7}"),
            (r"\u00e9\U0001F600\/\d\q", "é😀\\/\\d\\q"),
            ("a\\\nb", "ab"),
        ] {
            assert_eq!(unescape(literal).unwrap(), text);
            assert_eq!(
                adapted(&format!("{{{{ '{literal}' }}}}")),
                format!("{{{{ {} }}}}", quote(text))
            );
        }
        for literal in [r"\N{BULLET}", r"\xg0", r"\u12", r"\ud83d", "\\é"] {
            assert!(unescape(literal).is_err(), "{literal}");
        }
    }

    #[test]
    fn a_plus_sign_goes_only_where_nothing_is_added() {
        assert_eq!(
            adapted("{{ +1 + +a - (+b) }}{{ [+1, a + 1] }}{% if +1 %}{% endif +%}+{{ a[0] + 1 }}"),
            "{{  1 +  a - ( b) }}{{ [ 1, a + 1] }}{% if  1 %}{% endif +%}+{{ a[0] + 1 }}"
        );
    }
}
