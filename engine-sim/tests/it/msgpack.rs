//! A msgpack reader for tests, complete for what vLLM sends.

/// A decoded value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Nil,
    Uint(u64),
    Float(f64),
    Text(String),
    Array(Vec<Value>),
    Map(Vec<(String, Value)>),
}

impl Value {
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Self::Map(entries) => entries
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    pub(crate) fn array(&self) -> &[Value] {
        match self {
            Self::Array(items) => items,
            other => panic!("{other:?} is no array"),
        }
    }

    pub(crate) fn uint(&self) -> u64 {
        match self {
            Self::Uint(value) => *value,
            other => panic!("{other:?} is no integer"),
        }
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("{other:?} is no text"),
        }
    }

    /// `None` for nil.
    pub(crate) fn some(&self) -> Option<&Value> {
        (*self != Self::Nil).then_some(self)
    }
}

/// Decodes one value that fills `bytes`.
pub(crate) fn decode(mut bytes: &[u8]) -> Value {
    let value = read(&mut bytes);
    assert!(bytes.is_empty(), "bytes left over");
    value
}

fn read(rest: &mut &[u8]) -> Value {
    let marker = big_endian(rest, 1);
    match marker {
        0x00..0x80 => Value::Uint(marker),
        0x80..0x90 => map(rest, marker & 0x0f),
        0x90..0xa0 => array(rest, marker & 0x0f),
        0xa0..0xc0 => text(rest, marker & 0x1f),
        0xc0 => Value::Nil,
        0xcb => Value::Float(f64::from_bits(big_endian(rest, 8))),
        0xcc..=0xcf => Value::Uint(big_endian(rest, 1 << (marker - 0xcc))),
        0xd9..=0xdb => {
            let length = big_endian(rest, 1 << (marker - 0xd9));
            text(rest, length)
        }
        0xdc | 0xdd => {
            let length = big_endian(rest, 2 << (marker - 0xdc));
            array(rest, length)
        }
        0xde | 0xdf => {
            let length = big_endian(rest, 2 << (marker - 0xde));
            map(rest, length)
        }
        other => panic!("unexpected marker {other:#x}"),
    }
}

fn big_endian(rest: &mut &[u8], length: usize) -> u64 {
    let (head, tail) = rest.split_at(length);
    *rest = tail;
    head.iter()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn text(rest: &mut &[u8], length: u64) -> Value {
    let (head, tail) = rest.split_at(usize::try_from(length).unwrap());
    *rest = tail;
    Value::Text(std::str::from_utf8(head).unwrap().to_owned())
}

fn array(rest: &mut &[u8], length: u64) -> Value {
    Value::Array((0..length).map(|_| read(rest)).collect())
}

fn map(rest: &mut &[u8], length: u64) -> Value {
    let mut entry = |_| (read(rest).text().to_owned(), read(rest));
    Value::Map((0..length).map(&mut entry).collect())
}
