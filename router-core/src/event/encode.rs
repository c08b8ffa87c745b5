//! Encoding of events in the wire format of vLLM 0.32, for tests of this crate.

use super::{EngineHash, Event};

/// A stored event to encode.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredSpec {
    pub(crate) hashes: Vec<u64>,
    pub(crate) parent: Option<u64>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) block_size: u32,
    pub(crate) medium: Option<String>,
    pub(crate) lora_name: Option<String>,
    pub(crate) salt: Option<String>,
    pub(crate) group: Option<(u32, String, Option<u32>)>,
}

/// A msgpack writer.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn array(&mut self, len: usize) -> &mut Self {
        self.0.push(0xdc);
        self.0.extend(u16::try_from(len).unwrap().to_be_bytes());
        self
    }

    pub(crate) fn map(&mut self, len: usize) -> &mut Self {
        self.0.push(0xde);
        self.0.extend(u16::try_from(len).unwrap().to_be_bytes());
        self
    }

    pub(crate) fn nil(&mut self) -> &mut Self {
        self.0.push(0xc0);
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.push(0xcf);
        self.0.extend(value.to_be_bytes());
        self
    }

    /// The shortest form, as msgspec writes it.
    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        match value {
            0..=0x7f => self.0.push(value.to_be_bytes()[3]),
            0x80..=0xff => self.0.extend([0xcc, value.to_be_bytes()[3]]),
            0x100..=0xffff => {
                self.0.push(0xcd);
                self.0.extend(&value.to_be_bytes()[2..]);
            }
            _ => {
                self.0.push(0xce);
                self.0.extend(value.to_be_bytes());
            }
        }
        self
    }

    pub(crate) fn f64(&mut self, value: f64) -> &mut Self {
        self.0.push(0xcb);
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn str(&mut self, value: &str) -> &mut Self {
        self.0.push(0xd9);
        self.0.push(u8::try_from(value.len()).unwrap());
        self.0.extend(value.as_bytes());
        self
    }

    pub(crate) fn optional_str(&mut self, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.str(value),
            None => self.nil(),
        }
    }
}

fn event(writer: &mut Writer, event: &EventSpec) {
    match event {
        EventSpec::Stored(stored) => {
            let extra = stored.salt.is_some() || stored.lora_name.is_some();
            let group = stored
                .group
                .as_ref()
                .map_or(0, |(_, _, window)| 2 + usize::from(window.is_some()));
            writer.map(8 + usize::from(extra) + group);
            writer
                .str("type")
                .str("BlockStored")
                .str("block_hashes")
                .array(stored.hashes.len());
            for &hash in &stored.hashes {
                writer.u64(hash);
            }
            writer.str("parent_block_hash");
            match stored.parent {
                Some(parent) => writer.u64(parent),
                None => writer.nil(),
            };
            writer.str("token_ids").array(stored.tokens.len());
            for &token in &stored.tokens {
                writer.u32(token);
            }
            writer.str("block_size").u32(stored.block_size);
            writer.str("lora_id").nil();
            writer.str("medium").optional_str(stored.medium.as_deref());
            writer
                .str("lora_name")
                .optional_str(stored.lora_name.as_deref());
            if extra {
                writer.str("extra_keys").array(stored.hashes.len());
                for at in 0..stored.hashes.len() {
                    let salt = stored
                        .salt
                        .as_deref()
                        .filter(|_| at == 0 && stored.parent.is_none());
                    let keys: Vec<&str> = stored
                        .lora_name
                        .as_deref()
                        .into_iter()
                        .chain(salt)
                        .collect();
                    if keys.is_empty() {
                        writer.nil();
                    } else {
                        writer.array(keys.len());
                        for key in keys {
                            writer.str(key);
                        }
                    }
                }
            }
            if let Some((number, kind, window)) = &stored.group {
                writer
                    .str("group_idx")
                    .u32(*number)
                    .str("kv_cache_spec_kind")
                    .str(kind);
                if let Some(window) = window {
                    writer.str("kv_cache_spec_sliding_window").u32(*window);
                }
            }
        }
        EventSpec::Removed {
            hashes,
            medium,
            group,
        } => {
            writer
                .map(3 + usize::from(group.is_some()))
                .str("type")
                .str("BlockRemoved");
            writer.str("block_hashes").array(hashes.len());
            for &hash in hashes {
                writer.u64(hash);
            }
            writer.str("medium").optional_str(medium.as_deref());
            if let Some(group) = group {
                writer.str("group_idx").u32(*group);
            }
        }
        EventSpec::Cleared => {
            writer.map(1).str("type").str("AllBlocksCleared");
        }
    }
}

/// An event to encode.
#[derive(Clone, Debug)]
pub(crate) enum EventSpec {
    Stored(StoredSpec),
    Removed {
        hashes: Vec<u64>,
        medium: Option<String>,
        group: Option<u32>,
    },
    Cleared,
}

/// One batch.
pub(crate) fn batch(events: &[EventSpec]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.array(3).f64(1.5).array(events.len());
    for each in events {
        event(&mut writer, each);
    }
    writer.u32(0);
    writer.0
}

/// Decoded events, owned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Owned {
    Stored {
        hashes: Vec<EngineHash>,
        parent: Option<EngineHash>,
        tokens: Vec<u32>,
    },
    Removed {
        hashes: Vec<EngineHash>,
    },
    Cleared,
}

impl From<Event<'_>> for Owned {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Stored(stored) => Self::Stored {
                hashes: stored.hashes.to_vec(),
                parent: stored.parent,
                tokens: stored.tokens.to_vec(),
            },
            Event::Removed(removed) => Self::Removed {
                hashes: removed.hashes.to_vec(),
            },
            Event::Cleared => Self::Cleared,
        }
    }
}
