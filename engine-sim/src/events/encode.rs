//! Encodes event batches as vLLM 0.32 does with msgspec (checked byte for byte against captured batches).
//!
//! ```text
//! batch    array [timestamp f64, events, rank]
//! stored   map {type, block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium, lora_name,
//!               extra_keys, group_idx, kv_cache_spec_kind [, session_id]}
//! removed  map {type, block_hashes (one), medium, group_idx}
//! cleared  map {type}
//! ```
//! Integers take the shortest unsigned form, strings and containers the shortest header; key order is as above.

use super::{BlockStored, EventBatch, KvEvent};

const MEDIUM: &str = "GPU";
const SPEC_KIND: &str = "full_attention";

/// Gives the msgpack payload (third ZMQ frame) of a batch.
pub fn encode_batch(batch: &EventBatch) -> Vec<u8> {
    let mut out = Writer::default();
    out.array(3);
    out.float(batch.timestamp_s);
    out.array(batch.events.len());
    for event in &batch.events {
        match event {
            KvEvent::Stored(stored) => stored_event(&mut out, stored),
            KvEvent::Removed(hash) => {
                out.map(4);
                out.entry_str("type", "BlockRemoved");
                out.string("block_hashes");
                out.array(1);
                out.uint(hash.0);
                out.entry_str("medium", MEDIUM);
                out.string("group_idx");
                out.uint(0);
            }
            KvEvent::Cleared => {
                out.map(1);
                out.entry_str("type", "AllBlocksCleared");
            }
        }
    }
    out.uint(u64::from(batch.rank));
    out.bytes
}

fn stored_event(out: &mut Writer, stored: &BlockStored) {
    out.map(if stored.session_id.is_some() { 12 } else { 11 });
    out.entry_str("type", "BlockStored");
    out.string("block_hashes");
    out.array(stored.hashes.len());
    stored.hashes.iter().for_each(|hash| out.uint(hash.0));
    out.string("parent_block_hash");
    match stored.parent {
        Some(hash) => out.uint(hash.0),
        None => out.nil(),
    }
    out.string("token_ids");
    out.array(stored.tokens.len());
    stored
        .tokens
        .iter()
        .for_each(|&token| out.uint(u64::from(token)));
    out.string("block_size");
    out.uint(u64::from(stored.block_size));
    out.string("lora_id");
    match &stored.lora {
        Some(lora) => out.uint(u64::from(lora.id)),
        None => out.nil(),
    }
    out.entry_str("medium", MEDIUM);
    out.string("lora_name");
    match &stored.lora {
        Some(lora) => out.string(&lora.name),
        None => out.nil(),
    }
    out.string("extra_keys");
    out.array(stored.extra_keys.len());
    for keys in &stored.extra_keys {
        match keys {
            None => out.nil(),
            Some(keys) => {
                out.array(keys.len());
                for key in keys {
                    out.string(key);
                }
            }
        }
    }
    out.string("group_idx");
    out.uint(0);
    out.entry_str("kv_cache_spec_kind", SPEC_KIND);
    if let Some(session_id) = &stored.session_id {
        out.entry_str("session_id", session_id);
    }
}

/// The part of msgpack that events need. Lengths above `u32::MAX` can't occur: they are bounded by the model length.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn nil(&mut self) {
        self.bytes.push(0xc0);
    }

    fn float(&mut self, value: f64) {
        self.bytes.push(0xcb);
        self.bytes.extend(value.to_be_bytes());
    }

    fn uint(&mut self, value: u64) {
        if let Ok(small) = u8::try_from(value) {
            if small >= 0x80 {
                self.bytes.push(0xcc);
            }
            self.bytes.push(small);
        } else if let Ok(short) = u16::try_from(value) {
            self.bytes.push(0xcd);
            self.bytes.extend(short.to_be_bytes());
        } else if let Ok(word) = u32::try_from(value) {
            self.bytes.push(0xce);
            self.bytes.extend(word.to_be_bytes());
        } else {
            self.bytes.push(0xcf);
            self.bytes.extend(value.to_be_bytes());
        }
    }

    fn string(&mut self, text: &str) {
        match text.len() {
            length @ 0..32 => self.short_header(0xa0, length),
            length @ 32..256 => {
                self.bytes.push(0xd9);
                self.bytes.push(u8::try_from(length).unwrap_or(u8::MAX));
            }
            length => self.long_header(0xda, length),
        }
        self.bytes.extend(text.as_bytes());
    }

    fn array(&mut self, length: usize) {
        if length < 16 {
            self.short_header(0x90, length);
        } else {
            self.long_header(0xdc, length);
        }
    }

    fn map(&mut self, length: usize) {
        if length < 16 {
            self.short_header(0x80, length);
        } else {
            self.long_header(0xde, length);
        }
    }

    fn entry_str(&mut self, key: &str, value: &str) {
        self.string(key);
        self.string(value);
    }

    fn short_header(&mut self, marker: u8, length: usize) {
        self.bytes.push(marker | u8::try_from(length).unwrap_or(0));
    }

    /// Writes `marker` with a 16-bit length, or the next marker with a 32-bit one.
    fn long_header(&mut self, marker: u8, length: usize) {
        if let Ok(short) = u16::try_from(length) {
            self.bytes.push(marker);
            self.bytes.extend(short.to_be_bytes());
        } else {
            self.bytes.push(marker + 1);
            self.bytes
                .extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut out = Writer::default();
        write(&mut out);
        out.bytes
    }

    #[test]
    fn integers_take_their_shortest_form() {
        assert_eq!(written(|w| w.uint(0x7f)), [0x7f]);
        assert_eq!(written(|w| w.uint(0x80)), [0xcc, 0x80]);
        assert_eq!(written(|w| w.uint(0x100)), [0xcd, 1, 0]);
        assert_eq!(written(|w| w.uint(0x1_0000)), [0xce, 0, 1, 0, 0]);
        assert_eq!(written(|w| w.uint(1 << 32)), [0xcf, 0, 0, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn headers_grow_with_the_length() {
        assert_eq!(written(|w| w.array(15)), [0x9f]);
        assert_eq!(written(|w| w.array(16)), [0xdc, 0, 16]);
        assert_eq!(written(|w| w.array(0x1_0000)), [0xdd, 0, 1, 0, 0]);
        assert_eq!(written(|w| w.string(&"x".repeat(31)))[0], 0xbf);
        assert_eq!(written(|w| w.string(&"x".repeat(32)))[..2], [0xd9, 32]);
        assert_eq!(written(|w| w.string(&"x".repeat(256)))[..3], [0xda, 1, 0]);
    }
}
