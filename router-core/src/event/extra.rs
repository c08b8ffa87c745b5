//! `extra_keys` of stored blocks: what a block's identity holds besides its tokens.

use super::cursor::{Cursor, MsgpackError};

/// Per-block keys of a `BlockStored`, read lazily from the payload.
#[derive(Clone, Copy, Debug)]
pub struct ExtraKeys<'a> {
    items: Cursor<'a>,
    len: usize,
}

impl<'a> ExtraKeys<'a> {
    /// Reads the list and checks that every value in it is whole; `None` for nil.
    pub(super) fn read(cursor: &mut Cursor<'a>) -> Result<Option<Self>, MsgpackError> {
        if cursor.nil() {
            return Ok(None);
        }
        let len = cursor.array()?;
        let items = *cursor;
        for _ in 0..len {
            cursor.skip()?;
        }
        Ok(Some(Self { items, len }))
    }

    /// Keys of each block in the event's order; a block without keys gives an empty iterator.
    pub fn blocks(&self) -> impl Iterator<Item = BlockKeys<'a>> + use<'a> {
        let mut items = self.items;
        (0..self.len).map(move |_| BlockKeys::read(&mut items).unwrap_or_default())
    }
}

/// Keys of one block, in the engine's order: adapter, multimodal items, salt, prompt embeddings.
#[derive(Clone, Debug, Default)]
pub struct BlockKeys<'a> {
    items: Option<Cursor<'a>>,
    len: usize,
}

impl<'a> BlockKeys<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, MsgpackError> {
        if cursor.nil() {
            return Ok(Self::default());
        }
        let start = *cursor;
        // A value that is not a list stands for a list of one.
        let (items, len) = match cursor.array() {
            Ok(len) => (*cursor, len),
            Err(_) => (start, 1),
        };
        *cursor = start;
        cursor.skip()?;
        Ok(Self {
            items: Some(items),
            len,
        })
    }
}

impl<'a> Iterator for BlockKeys<'a> {
    type Item = ExtraKey<'a>;

    fn next(&mut self) -> Option<ExtraKey<'a>> {
        self.len = self.len.checked_sub(1)?;
        let items = self.items.as_mut()?;
        let start = *items;
        items.skip().ok()?;
        let raw = items.since(start);
        let mut inside = start;
        if let Ok(text) = inside.str() {
            return Some(ExtraKey::Text(text));
        }
        let id = inside
            .array()
            .ok()
            .filter(|&len| len > 0)
            .and_then(|_| inside.str().ok());
        Some(id.map_or(ExtraKey::Other(raw), ExtraKey::Item))
    }
}

/// One key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraKey<'a> {
    /// An adapter's name, a salt, or (older engines) the id of a multimodal item.
    Text(&'a str),
    /// Id of a multimodal item, sent as `[id, offset]`; the block's place in the chain says what the offset says.
    Item(&'a str),
    /// Anything else, as its msgpack bytes: a digest of prompt embeddings.
    Other(&'a [u8]),
}
