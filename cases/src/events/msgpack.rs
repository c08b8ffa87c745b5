//! Events of the case files, which are JSON, as msgpack.

use serde_json::{Map, Value};

use super::step::hex;
use crate::error::CaseError;

/// A batch of 0.32: `[ts, events, rank]` with map events.
pub(crate) fn batch(events: &[Map<String, Value>], rank: u64) -> Result<Vec<u8>, CaseError> {
    let mut out = vec![0x93, 0xcb];
    out.extend(0f64.to_be_bytes());
    header(&mut out, 0xdc, events.len())?;
    for event in events {
        map(&mut out, event)?;
    }
    value(&mut out, &Value::from(rank))?;
    Ok(out)
}

fn header(out: &mut Vec<u8>, marker: u8, len: usize) -> Result<(), CaseError> {
    let len = u16::try_from(len)
        .map_err(|_| CaseError::not_understood("an event with more than 65535 elements"))?;
    out.push(marker);
    out.extend(len.to_be_bytes());
    Ok(())
}

fn map(out: &mut Vec<u8>, fields: &Map<String, Value>) -> Result<(), CaseError> {
    header(out, 0xde, fields.len())?;
    for (key, field) in fields {
        text(out, key)?;
        match (key.as_str(), field) {
            ("block_hashes", Value::Array(hashes)) => {
                header(out, 0xdc, hashes.len())?;
                for hash in hashes {
                    label(out, hash)?;
                }
            }
            ("parent_block_hash", hash) => label(out, hash)?,
            _ => value(out, field)?,
        }
    }
    Ok(())
}

fn text(out: &mut Vec<u8>, text: &str) -> Result<(), CaseError> {
    let len = u8::try_from(text.len())
        .map_err(|_| CaseError::not_understood("a text of more than 255 bytes in an event"))?;
    out.extend([0xd9, len]);
    out.extend(text.as_bytes());
    Ok(())
}

/// A hash as the case files write it: `u64:`, `i64:`, `bytes:` or null.
fn label(out: &mut Vec<u8>, hash: &Value) -> Result<(), CaseError> {
    let wrong = || CaseError::not_understood(format!("hash {hash}"));
    if hash.is_null() {
        out.push(0xc0);
        return Ok(());
    }
    let (kind, spelled) = hash
        .as_str()
        .and_then(|hash| hash.split_once(':'))
        .ok_or_else(wrong)?;
    match kind {
        "u64" => {
            out.push(0xcf);
            out.extend(spelled.parse::<u64>().map_err(|_| wrong())?.to_be_bytes());
        }
        "i64" => {
            out.push(0xd3);
            out.extend(spelled.parse::<i64>().map_err(|_| wrong())?.to_be_bytes());
        }
        "bytes" => {
            let bytes = hex(spelled)?;
            out.extend([0xc4, u8::try_from(bytes.len()).map_err(|_| wrong())?]);
            out.extend(bytes);
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

/// Any other value.
fn value(out: &mut Vec<u8>, field: &Value) -> Result<(), CaseError> {
    match field {
        Value::Null => out.push(0xc0),
        Value::Bool(flag) => out.push(0xc2 + u8::from(*flag)),
        Value::Number(number) => {
            let number = number
                .as_u64()
                .ok_or_else(|| CaseError::not_understood(format!("number {number} in an event")))?;
            out.push(0xcf);
            out.extend(number.to_be_bytes());
        }
        Value::String(string) => text(out, string)?,
        Value::Array(items) => {
            header(out, 0xdc, items.len())?;
            for item in items {
                value(out, item)?;
            }
        }
        Value::Object(_) => {
            return Err(CaseError::not_understood(format!("{field} in an event")));
        }
    }
    Ok(())
}
