//! Events of the case files, which are JSON, as msgpack.

use serde_json::{Map, Value};

/// A batch of 0.32: `[ts, events, rank]` with map events.
pub(crate) fn batch(events: &Value, rank: u64) -> Vec<u8> {
    let mut out = vec![0x93, 0xcb];
    out.extend(0f64.to_be_bytes());
    let events = events.as_array().unwrap();
    header(&mut out, 0xdc, events.len());
    for event in events {
        map(&mut out, event.as_object().unwrap());
    }
    value(&mut out, &Value::from(rank));
    out
}

fn header(out: &mut Vec<u8>, marker: u8, len: usize) {
    out.push(marker);
    out.extend(u16::try_from(len).unwrap().to_be_bytes());
}

fn map(out: &mut Vec<u8>, fields: &Map<String, Value>) {
    header(out, 0xde, fields.len());
    for (key, field) in fields {
        text(out, key);
        match key.as_str() {
            "block_hashes" => {
                let hashes = field.as_array().unwrap();
                header(out, 0xdc, hashes.len());
                for hash in hashes {
                    label(out, hash);
                }
            }
            "parent_block_hash" => label(out, field),
            _ => value(out, field),
        }
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend([0xd9, u8::try_from(text.len()).unwrap()]);
    out.extend(text.as_bytes());
}

/// A hash as the case files write it: `u64:`, `i64:`, `bytes:` or null.
fn label(out: &mut Vec<u8>, hash: &Value) {
    let Some(hash) = hash.as_str() else {
        out.push(0xc0);
        return;
    };
    match hash.split_once(':').unwrap() {
        ("u64", number) => {
            out.push(0xcf);
            out.extend(number.parse::<u64>().unwrap().to_be_bytes());
        }
        ("i64", number) => {
            out.push(0xd3);
            out.extend(number.parse::<i64>().unwrap().to_be_bytes());
        }
        (_, hex) => {
            let bytes = crate::cases::hex(hex);
            out.extend([0xc4, u8::try_from(bytes.len()).unwrap()]);
            out.extend(bytes);
        }
    }
}

/// Any other value.
pub(crate) fn value(out: &mut Vec<u8>, field: &Value) {
    match field {
        Value::Null => out.push(0xc0),
        Value::Bool(flag) => out.push(0xc2 + u8::from(*flag)),
        Value::Number(number) => {
            out.push(0xcf);
            out.extend(number.as_u64().unwrap().to_be_bytes());
        }
        Value::String(string) => text(out, string),
        Value::Array(items) => {
            header(out, 0xdc, items.len());
            for item in items {
                value(out, item);
            }
        }
        Value::Object(_) => panic!("no such field in events"),
    }
}
