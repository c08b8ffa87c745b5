//! Reads values one after the other from a text.

use std::borrow::Cow;

use crate::text::error::Unscorable;

use super::{Json, JsonError, JsonProblem, MAX_DEPTH, MAX_VALUES, merge_repeated_keys, string};

/// How the values read differ from those in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::text) struct Flaws {
    /// A string held half a surrogate pair; each half is replaced by U+FFFD.
    pub(in crate::text) lone_surrogate: bool,
    /// There were more than [`MAX_VALUES`]; those beyond are null.
    pub(in crate::text) too_many: bool,
}

impl Flaws {
    /// The reason why text can't be made of the values, if there is one.
    pub(in crate::text) fn check(self) -> Result<(), Unscorable> {
        match self {
            Self {
                lone_surrogate: true,
                ..
            } => Err(Unscorable::LoneSurrogate),
            Self { too_many: true, .. } => Err(Unscorable::Limit),
            Self { .. } => Ok(()),
        }
    }
}

/// A place in a JSON text.
#[derive(Debug)]
pub(in crate::text) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// Values that may still be kept.
    room: usize,
    flaws: Flaws,
    /// Where strings are unescaped.
    scratch: Vec<u8>,
}

impl<'a> Cursor<'a> {
    pub(in crate::text) fn new(text: &'a str) -> Self {
        Self::within(text, MAX_VALUES)
    }

    /// A cursor that keeps at most `room` values.
    pub(super) fn within(text: &'a str, room: usize) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            room,
            flaws: Flaws::default(),
            scratch: Vec::new(),
        }
    }

    /// How many values may still be kept.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// What is missing from the values read (not skipped) so far.
    pub(in crate::text) fn flaws(&self) -> Flaws {
        self.flaws
    }

    /// The first byte of the next value or sign, without taking it.
    pub(in crate::text) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    fn error(&self, problem: JsonProblem) -> JsonError {
        JsonError {
            at: self.at,
            problem,
        }
    }

    /// The error of a sign that is missing here.
    fn unexpected(&mut self) -> JsonError {
        let problem = if self.peek().is_none() {
            JsonProblem::End
        } else {
            JsonProblem::Character
        };
        self.error(problem)
    }

    fn take(&mut self, sign: u8) -> bool {
        let found = self.peek() == Some(sign);
        self.at += usize::from(found);
        found
    }

    /// Makes sure that nothing but white space is left.
    pub(in crate::text) fn end(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error(JsonProblem::Extra)),
        }
    }

    fn enter(&mut self) -> Result<(), JsonError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error(JsonProblem::Depth));
        }
        self.depth += 1;
        Ok(())
    }

    /// Reads an object; `read` gets each key and must read or skip its value. Of repeated keys all are shown, in order.
    pub(in crate::text) fn object<E: From<JsonError>>(
        &mut self,
        mut read: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.take(b'{') {
            return Err(self.unexpected().into());
        }
        self.enter()?;
        if !self.take(b'}') {
            loop {
                if self.peek() != Some(b'"') {
                    return Err(self.unexpected().into());
                }
                let key = self.string()?;
                if !self.take(b':') {
                    return Err(self.unexpected().into());
                }
                read(self, key)?;
                if self.take(b'}') {
                    break;
                }
                if !self.take(b',') {
                    return Err(self.unexpected().into());
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self) -> Result<Vec<Json<'a>>, JsonError> {
        self.at += 1;
        self.enter()?;
        let mut items = Vec::new();
        if !self.take(b']') {
            loop {
                items.push(self.value()?);
                if self.take(b']') {
                    break;
                }
                if !self.take(b',') {
                    return Err(self.unexpected());
                }
            }
        }
        self.depth -= 1;
        Ok(items)
    }

    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        let read = string::read(self.text, self.at + 1, &mut self.scratch)?;
        self.at = read.end;
        self.flaws.lone_surrogate |= read.is_lone;
        Ok(read.text)
    }

    /// Reads the next value. Values beyond [`MAX_VALUES`] are passed over and read as null.
    pub(in crate::text) fn value(&mut self) -> Result<Json<'a>, JsonError> {
        if self.room == 0 {
            self.flaws.too_many = true;
            self.skip()?;
            return Ok(Json::Null);
        }
        self.room -= 1;
        match self.peek() {
            Some(b'"') => Ok(Json::String(self.string()?)),
            Some(b'{') => {
                let mut entries = Vec::new();
                self.object(|cursor, key| {
                    entries.push((key, cursor.value()?));
                    Ok::<_, JsonError>(())
                })?;
                merge_repeated_keys(&mut entries);
                Ok(Json::Object(entries))
            }
            Some(b'[') => Ok(Json::Array(self.array()?)),
            Some(b't') => self.literal("true").map(|()| Json::Bool(true)),
            Some(b'f') => self.literal("false").map(|()| Json::Bool(false)),
            Some(b'n') => self.literal("null").map(|()| Json::Null),
            _ => self.number().map(Json::Number),
        }
    }

    /// Passes over a value that is no part of any prompt, whatever is wrong with it; gives the text where it is one.
    pub(in crate::text) fn aside(&mut self) -> Result<Option<Cow<'a, str>>, JsonError> {
        if self.peek() != Some(b'"') {
            self.skip()?;
            return Ok(None);
        }
        let flaws = self.flaws;
        let text = self.string()?;
        self.flaws = flaws;
        Ok(Some(text))
    }

    /// Passes over the next value. Takes constant stack, whatever the nesting.
    pub(in crate::text) fn skip(&mut self) -> Result<(), JsonError> {
        // One entry per open container: whether it is an object.
        let mut open: Vec<bool> = Vec::new();
        loop {
            if self.skip_start(&mut open)? {
                continue;
            }
            // A value has ended: close what ends with it, or go on to the next one.
            loop {
                let Some(&object) = open.last() else {
                    return Ok(());
                };
                if self.take(if object { b'}' } else { b']' }) {
                    open.pop();
                } else if self.take(b',') {
                    if object {
                        self.skip_key()?;
                    }
                    break;
                } else {
                    return Err(self.unexpected());
                }
            }
        }
    }

    /// Passes over a plain value, or over the start of a container; tells whether a container was opened.
    fn skip_start(&mut self, open: &mut Vec<bool>) -> Result<bool, JsonError> {
        match self.peek() {
            Some(b'"') => self.at = string::skip(self.text.as_bytes(), self.at + 1)?,
            Some(sign @ (b'{' | b'[')) => {
                let object = sign == b'{';
                if self.depth + open.len() == MAX_DEPTH {
                    return Err(self.error(JsonProblem::Depth));
                }
                self.at += 1;
                if !self.take(if object { b'}' } else { b']' }) {
                    open.push(object);
                    if object {
                        self.skip_key()?;
                    }
                    return Ok(true);
                }
            }
            Some(b't') => self.literal("true")?,
            Some(b'f') => self.literal("false")?,
            Some(b'n') => self.literal("null")?,
            _ => _ = self.number()?,
        }
        Ok(false)
    }

    fn skip_key(&mut self) -> Result<(), JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected());
        }
        self.at = string::skip(self.text.as_bytes(), self.at + 1)?;
        if self.take(b':') {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn literal(&mut self, word: &'static str) -> Result<(), JsonError> {
        let end = self.at + word.len();
        if self.text.as_bytes().get(self.at..end) != Some(word.as_bytes()) {
            return Err(self.error(JsonProblem::Character));
        }
        self.at = end;
        Ok(())
    }

    fn number(&mut self) -> Result<&'a str, JsonError> {
        if self.peek().is_none() {
            return Err(self.error(JsonProblem::End));
        }
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut at = start + usize::from(bytes.get(start) == Some(&b'-'));
        let digits = |at: usize| {
            bytes
                .get(at..)
                .unwrap_or_default()
                .iter()
                .take_while(|b| b.is_ascii_digit())
                .count()
        };
        match bytes.get(at) {
            Some(b'N') if at == start => {
                self.literal("NaN")?;
                return Ok("NaN");
            }
            Some(b'I') => {
                self.at = at;
                self.literal("Infinity")?;
                return Ok(self.text.get(start..self.at).unwrap_or_default());
            }
            Some(b'0') => at += 1,
            Some(b'1'..=b'9') => at += digits(at),
            _ => return Err(self.error(JsonProblem::Character)),
        }
        if bytes.get(at) == Some(&b'.') {
            let fraction = digits(at + 1);
            if fraction == 0 {
                return Err(self.error(JsonProblem::Character));
            }
            at += 1 + fraction;
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            let exponent = digits(at + 1 + sign);
            if exponent == 0 {
                return Err(self.error(JsonProblem::Character));
            }
            at += 1 + sign + exponent;
        }
        self.at = at;
        Ok(self.text.get(start..at).unwrap_or_default())
    }
}
