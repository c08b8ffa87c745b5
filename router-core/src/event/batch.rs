//! Batches: `[ts, events, rank]` or a map, events as arrays or maps.

use super::cursor::{Cursor, MsgpackError};
use super::extra::ExtraKeys;
use super::{EngineHash, Event, Removed, Stored};

/// Elements a decoder's buffers keep between batches.
const KEPT_ELEMENTS: usize = 1 << 20;

/// What a payload held besides its events.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchInfo {
    /// When the engine made the batch, in Unix seconds.
    pub ts: Option<f64>,
    /// Data-parallel rank the engine claims.
    pub rank: Option<u32>,
    /// Events handed to the sink.
    pub events: u32,
    /// Events of unknown types, skipped.
    pub unknown_events: u32,
    /// Unknown keys and trailing elements, skipped.
    pub unknown_keys: u32,
    /// Events that could not be read, skipped.
    pub bad_events: u32,
    /// Why the rest of the batch could not be read; events before that point have been handed on.
    pub error: Option<MsgpackError>,
}

impl BatchInfo {
    /// Number of things in the payload that should have been readable and were not.
    pub fn decode_errors(&self) -> u32 {
        self.bad_events + u32::from(self.error.is_some())
    }
}

/// Decodes one payload with fresh buffers. See [`Decoder::decode`].
pub fn decode_batch(payload: &[u8], sink: &mut impl FnMut(Event<'_>)) -> BatchInfo {
    Decoder::default().decode(payload, sink)
}

/// A batch decoder with buffers that are reused from batch to batch.
#[derive(Debug, Default)]
pub struct Decoder {
    hashes: Vec<EngineHash>,
    tokens: Vec<u32>,
}

/// A field of an event that means something here.
#[derive(Clone, Copy)]
enum Field {
    Hashes,
    Parent,
    Tokens,
    BlockSize,
    LoraId,
    Medium,
    LoraName,
    ExtraKeys,
    Group,
    Kind,
    SlidingWindow,
    Lookahead,
}

/// Order of the fields of an array event after its tag; each release appended.
const STORED: [Field; 11] = [
    Field::Hashes,
    Field::Parent,
    Field::Tokens,
    Field::BlockSize,
    Field::LoraId,
    Field::Medium,
    Field::LoraName,
    Field::ExtraKeys,
    Field::Group,
    Field::Kind,
    Field::SlidingWindow,
];
const REMOVED: [Field; 3] = [Field::Hashes, Field::Medium, Field::Group];

impl Field {
    fn from_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"block_hashes" => Self::Hashes,
            b"parent_block_hash" => Self::Parent,
            b"token_ids" => Self::Tokens,
            b"block_size" => Self::BlockSize,
            b"lora_id" => Self::LoraId,
            b"medium" => Self::Medium,
            b"lora_name" => Self::LoraName,
            b"extra_keys" => Self::ExtraKeys,
            b"group_idx" => Self::Group,
            b"kv_cache_spec_kind" => Self::Kind,
            b"kv_cache_spec_sliding_window" => Self::SlidingWindow,
            b"lookahead_token_ids" => Self::Lookahead,
            _ => return None,
        })
    }
}

/// Keys of known releases that say nothing the index needs.
fn is_known_but_unused(name: &[u8]) -> bool {
    matches!(name, b"locality" | b"ownership" | b"session_id")
}

/// Event types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stored,
    Removed,
    Cleared,
    Unknown,
}

impl Kind {
    fn from_tag(tag: &[u8]) -> Self {
        match tag {
            b"BlockStored" => Self::Stored,
            b"BlockRemoved" => Self::Removed,
            b"AllBlocksCleared" => Self::Cleared,
            _ => Self::Unknown,
        }
    }
}

/// Values of one event that are not lists.
#[derive(Clone, Default)]
struct Fields<'a> {
    hashes: bool,
    tokens: bool,
    parent: Option<EngineHash>,
    block_size: Option<u32>,
    lora_id: Option<i64>,
    medium: Option<&'a str>,
    lora_name: Option<&'a str>,
    extra_keys: Option<ExtraKeys<'a>>,
    group: Option<u32>,
    kind: Option<&'a str>,
    sliding_window: Option<u32>,
    lookahead: u32,
}

impl Decoder {
    /// Decodes one payload and hands its events to `sink` in order.
    ///
    /// Cost is linear in the payload's bytes; memory is at most 8 bytes for each of them, whatever lengths it claims.
    pub fn decode(&mut self, payload: &[u8], sink: &mut impl FnMut(Event<'_>)) -> BatchInfo {
        let mut info = BatchInfo::default();
        let mut cursor = Cursor::new(payload);
        info.error = self.batch(&mut cursor, &mut info, sink).err();
        self.hashes.clear();
        self.tokens.clear();
        self.hashes.shrink_to(KEPT_ELEMENTS);
        self.tokens.shrink_to(KEPT_ELEMENTS);
        info
    }

    fn batch(
        &mut self,
        cursor: &mut Cursor<'_>,
        info: &mut BatchInfo,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), MsgpackError> {
        let mut has_events = false;
        if matches!(cursor.peek()?, 0x80..=0x8f | 0xde | 0xdf) {
            for _ in 0..cursor.map()? {
                match cursor.str()? {
                    "ts" => info.ts = optional(cursor, Cursor::f64)?,
                    "events" => {
                        self.events(cursor, info, sink)?;
                        has_events = true;
                    }
                    "data_parallel_rank" => info.rank = optional(cursor, Cursor::u32)?,
                    _ => {
                        cursor.skip()?;
                        info.unknown_keys += 1;
                    }
                }
            }
        } else {
            for position in 0..cursor.array()? {
                match position {
                    0 => info.ts = optional(cursor, Cursor::f64)?,
                    1 => {
                        self.events(cursor, info, sink)?;
                        has_events = true;
                    }
                    2 => info.rank = optional(cursor, Cursor::u32)?,
                    _ => {
                        cursor.skip()?;
                        info.unknown_keys += 1;
                    }
                }
            }
        }
        if has_events {
            Ok(())
        } else {
            Err(MsgpackError::Missing)
        }
    }

    fn events(
        &mut self,
        cursor: &mut Cursor<'_>,
        info: &mut BatchInfo,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), MsgpackError> {
        for _ in 0..cursor.array()? {
            let start = *cursor;
            match self.event(cursor, &mut info.unknown_keys) {
                Ok(Some(event)) => {
                    info.events += 1;
                    sink(event);
                }
                Ok(None) => info.unknown_events += 1,
                Err(_) => {
                    *cursor = start;
                    cursor.skip()?;
                    if find_kind(start) == Some(Kind::Unknown) {
                        info.unknown_events += 1;
                    } else {
                        info.bad_events += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// One event; `None` when its type is unknown.
    fn event<'d, 'p: 'd>(
        &'d mut self,
        cursor: &mut Cursor<'p>,
        unknown_keys: &mut u32,
    ) -> Result<Option<Event<'d>>, MsgpackError> {
        let mut fields = Fields::default();
        self.hashes.clear();
        self.tokens.clear();
        let kind = if matches!(cursor.peek()?, 0x80..=0x8f | 0xde | 0xdf) {
            self.map_event(cursor, &mut fields, unknown_keys)?
        } else {
            self.array_event(cursor, &mut fields, unknown_keys)?
        };
        let needed = match kind {
            Kind::Stored => fields.hashes && fields.tokens && fields.block_size.is_some(),
            Kind::Removed => fields.hashes,
            Kind::Cleared => true,
            Kind::Unknown => return Ok(None),
        };
        if !needed {
            return Err(MsgpackError::Missing);
        }
        Ok(Some(match kind {
            Kind::Stored => Event::Stored(Stored {
                hashes: &self.hashes,
                parent: fields.parent,
                tokens: &self.tokens,
                block_size: fields.block_size.unwrap_or_default(),
                lora_id: fields.lora_id,
                lora_name: fields.lora_name,
                medium: fields.medium,
                extra_keys: fields.extra_keys,
                group: fields.group,
                kind: fields.kind,
                sliding_window: fields.sliding_window,
                lookahead: fields.lookahead,
            }),
            Kind::Removed => Event::Removed(Removed {
                hashes: &self.hashes,
                medium: fields.medium,
                group: fields.group,
            }),
            Kind::Cleared | Kind::Unknown => Event::Cleared,
        }))
    }

    fn map_event<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        fields: &mut Fields<'a>,
        unknown_keys: &mut u32,
    ) -> Result<Kind, MsgpackError> {
        let mut kind = None;
        for _ in 0..cursor.map()? {
            let Some(name) = key(cursor)? else {
                cursor.skip()?;
                *unknown_keys += 1;
                continue;
            };
            if name == b"type" {
                kind = Some(Kind::from_tag(cursor.str_bytes()?));
            } else if kind == Some(Kind::Unknown) {
                cursor.skip()?;
            } else if let Some(field) = Field::from_name(name) {
                self.read(field, cursor, fields)?;
            } else {
                cursor.skip()?;
                *unknown_keys += u32::from(!is_known_but_unused(name));
            }
        }
        kind.ok_or(MsgpackError::Missing)
    }

    fn array_event<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        fields: &mut Fields<'a>,
        unknown_keys: &mut u32,
    ) -> Result<Kind, MsgpackError> {
        let elements = cursor
            .array()?
            .checked_sub(1)
            .ok_or(MsgpackError::Missing)?;
        let kind = Kind::from_tag(cursor.str_bytes()?);
        let order: &[Field] = match kind {
            Kind::Stored => &STORED,
            Kind::Removed => &REMOVED,
            Kind::Cleared | Kind::Unknown => &[],
        };
        for position in 0..elements {
            if let Some(&field) = order.get(position) {
                self.read(field, cursor, fields)?;
            } else {
                cursor.skip()?;
                *unknown_keys += u32::from(kind != Kind::Unknown);
            }
        }
        Ok(kind)
    }

    fn read<'a>(
        &mut self,
        field: Field,
        cursor: &mut Cursor<'a>,
        fields: &mut Fields<'a>,
    ) -> Result<(), MsgpackError> {
        match field {
            Field::Hashes => {
                self.hashes.clear();
                let len = cursor.array()?;
                self.hashes.reserve(len);
                for _ in 0..len {
                    self.hashes.push(hash(cursor)?);
                }
                fields.hashes = true;
            }
            Field::Tokens => {
                let len = cursor.array()?;
                self.tokens.clear();
                self.tokens.resize(len, 0);
                cursor.u32s(&mut self.tokens)?;
                fields.tokens = true;
            }
            Field::Parent => fields.parent = optional(cursor, hash)?,
            Field::BlockSize => fields.block_size = Some(cursor.u32()?),
            Field::LoraId => fields.lora_id = optional(cursor, Cursor::i64)?,
            Field::Medium => fields.medium = optional(cursor, Cursor::str)?,
            Field::LoraName => fields.lora_name = optional(cursor, Cursor::str)?,
            Field::ExtraKeys => fields.extra_keys = ExtraKeys::read(cursor)?,
            Field::Group => fields.group = optional(cursor, Cursor::u32)?,
            Field::Kind => fields.kind = optional(cursor, Cursor::str)?,
            Field::SlidingWindow => fields.sliding_window = optional(cursor, Cursor::u32)?,
            Field::Lookahead => fields.lookahead = lookahead(cursor)?,
        }
        Ok(())
    }
}

/// Most tokens that follow one of the blocks; 0 where the list is not one of lists.
fn lookahead(cursor: &mut Cursor<'_>) -> Result<u32, MsgpackError> {
    let mut list = *cursor;
    cursor.skip()?;
    let mut longest = 0;
    for _ in 0..list.array().unwrap_or(0) {
        let mut inner = list;
        longest = longest.max(inner.array().unwrap_or(0));
        list.skip()?;
    }
    Ok(u32::try_from(longest).unwrap_or(u32::MAX))
}

/// Type of the event at `cursor`, wherever its tag stands; `None` when it has none.
fn find_kind(mut cursor: Cursor<'_>) -> Option<Kind> {
    if let Ok(entries) = cursor.map() {
        for _ in 0..entries {
            if key(&mut cursor).ok()? == Some(b"type".as_slice()) {
                return cursor.str_bytes().ok().map(Kind::from_tag);
            }
            cursor.skip().ok()?;
        }
        return None;
    }
    cursor.array().ok()?;
    cursor.str_bytes().ok().map(Kind::from_tag)
}

/// The key of a map entry; `None`, skipped, when it is not a string.
fn key<'a>(cursor: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, MsgpackError> {
    let start = *cursor;
    if let Ok(name) = cursor.str_bytes() {
        return Ok(Some(name));
    }
    *cursor = start;
    cursor.skip().map(|()| None)
}

fn optional<'a, T>(
    cursor: &mut Cursor<'a>,
    read: impl FnOnce(&mut Cursor<'a>) -> Result<T, MsgpackError>,
) -> Result<Option<T>, MsgpackError> {
    if cursor.nil() {
        Ok(None)
    } else {
        read(cursor).map(Some)
    }
}

pub(super) fn hash(cursor: &mut Cursor<'_>) -> Result<EngineHash, MsgpackError> {
    if matches!(cursor.peek()?, 0xc4..=0xc6) {
        cursor.bin().map(EngineHash::from_bytes)
    } else {
        cursor.int_bits().map(EngineHash)
    }
}
