//! One segment of the table: an open-addressing array whose bytes are its own image.
//!
//! ```text
//! offset 0   4 bytes  "PWS1"
//!        4   u8       depth: how many top bits of the hash all entries share
//!        5   3 bytes  0
//!        8   u64      first hash of the segment's range (those bits, then zeros)
//!       16   u64      version of the table this image stands for
//!       24   u32      entries
//!       28   u32      0
//!       32   slots, 16 bytes each: u64 hash, u32 set, u32 token depth; hash 0 = empty
//! ```
//!
//! All integers are little endian. An entry sits at or after slot `(low 32 bits of hash * slots) >> 32`, wrapping, with no empty
//! slot between; removing closes the hole, so there are no tombstones. At most 3/4 of the slots are in use.

use super::entry::{ENTRY_BYTES, Entry};

/// Bytes before the first slot of an image.
pub const HEADER_BYTES: usize = 32;

/// Most bytes of an image. Small in this crate's own tests, so that segments are split often.
pub const MAX_IMAGE_BYTES: usize = if cfg!(test) { 1 << 12 } else { 1 << 20 };

/// Deepest segment.
pub const MAX_DEPTH: u8 = 24;

const MAGIC: [u8; 4] = *b"PWS1";
const MAX_SLOTS: usize = (MAX_IMAGE_BYTES - HEADER_BYTES) / ENTRY_BYTES;
const MIN_SLOTS: usize = 64;

/// Why an image or an entry was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// No memory for the slots.
    #[error("no memory for {slots} slots")]
    OutOfMemory {
        /// Slots asked for.
        slots: usize,
    },
    /// The segment holds as much as an image may: it has to be split.
    #[error("segment is full")]
    Full,
    /// The bytes are no image.
    #[error("not a segment image: {reason}")]
    BadImage {
        /// What is wrong with them.
        reason: &'static str,
    },
}

/// A run of the table that shares the top `depth` bits of the hash.
#[derive(Clone, Debug)]
pub struct Segment {
    bytes: Vec<u8>,
    first_hash: u64,
    version: u64,
    checksum: u64,
    entries: u32,
    depth: u8,
}

impl Segment {
    /// An empty segment for hashes that share the top `depth` bits of `first_hash`, with room for `entries`.
    ///
    /// # Errors
    /// [`SegmentError::OutOfMemory`].
    pub fn try_new(
        first_hash: u64,
        depth: u8,
        version: u64,
        entries: usize,
    ) -> Result<Self, SegmentError> {
        Ok(Self {
            bytes: try_zeroed(slots_for(entries))?,
            first_hash: first_hash & !range_mask(depth),
            version,
            checksum: 0,
            entries: 0,
            depth,
        })
    }

    /// Takes an image as it is; costs one pass over the slots.
    ///
    /// # Errors
    /// [`SegmentError::BadImage`] when the bytes are not what [`Self::image`] gives.
    pub fn try_from_image(bytes: Vec<u8>) -> Result<Self, SegmentError> {
        let bad = |reason| SegmentError::BadImage { reason };
        let (header, body) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(bad("too short"))?;
        let (slots, rest) = body.as_chunks::<ENTRY_BYTES>();
        if header[..4] != MAGIC {
            return Err(bad("magic"));
        }
        if !rest.is_empty() || slots.is_empty() || slots.len() > MAX_SLOTS {
            return Err(bad("length"));
        }
        let depth = header[4];
        let first_hash = read_u64(header, 8);
        if depth > MAX_DEPTH || first_hash & range_mask(depth) != 0 {
            return Err(bad("range"));
        }
        let mut checksum = 0u64;
        let mut entries = 0u32;
        for entry in slots
            .iter()
            .map(Entry::from_bytes)
            .filter(|entry| entry.hash != 0)
        {
            if entry.hash & !range_mask(depth) != first_hash {
                return Err(bad("entry out of range"));
            }
            entries += 1;
            checksum = checksum.wrapping_add(entry.sum());
        }
        if u64::from(entries) != read_u64(header, 24) || slots.len() == entries as usize {
            return Err(bad("entries"));
        }
        let version = read_u64(header, 16);
        Ok(Self {
            bytes,
            first_hash,
            version,
            checksum,
            entries,
            depth,
        })
    }

    /// The image: header and slots, ready to be stored.
    pub fn image(&mut self) -> &[u8] {
        let mut header = [0u8; HEADER_BYTES];
        header[..4].copy_from_slice(&MAGIC);
        header[4] = self.depth;
        header[8..16].copy_from_slice(&self.first_hash.to_le_bytes());
        header[16..24].copy_from_slice(&self.version.to_le_bytes());
        header[24..28].copy_from_slice(&self.entries.to_le_bytes());
        if let Some(place) = self.bytes.first_chunk_mut() {
            *place = header;
        }
        &self.bytes
    }

    /// Smallest hash of the range.
    pub fn first_hash(&self) -> u64 {
        self.first_hash
    }

    /// Largest hash of the range.
    pub fn last_hash(&self) -> u64 {
        self.first_hash | range_mask(self.depth)
    }

    /// How many top bits of the hash all entries share.
    pub fn depth(&self) -> u8 {
        self.depth
    }

    /// Version of the table up to which changes are applied here.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Says that changes up to `version` are applied here.
    pub fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.entries as usize
    }

    /// Whether no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Wrapping sum of [`Entry::sum`] over the entries.
    pub fn checksum(&self) -> u64 {
        self.checksum
    }

    /// Size of the image.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The entry of `hash`.
    pub fn get(&self, hash: u64) -> Option<Entry> {
        match self.find(hash) {
            Find::At(_, entry) => Some(entry),
            Find::Free(_) => None,
        }
    }

    /// The first word of the slot at which `hash` is looked for first.
    pub(super) fn home_word(&self, hash: u64) -> u64 {
        let slots = self.slots();
        let slot = slots.get(home(hash, slots.len()));
        slot.and_then(|slot| slot.first_chunk())
            .map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// All entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Entry> {
        self.slots()
            .iter()
            .map(Entry::from_bytes)
            .filter(|entry| entry.hash != 0)
    }

    /// Puts an entry in; gives the one it replaces. An entry of hash 0 is not kept.
    ///
    /// # Errors
    /// [`SegmentError::Full`] when the image would grow beyond its limit, [`SegmentError::OutOfMemory`]; nothing is changed then.
    pub fn insert(&mut self, entry: Entry) -> Result<Option<Entry>, SegmentError> {
        if entry.hash == 0 {
            return Ok(None);
        }
        match self.find(entry.hash) {
            Find::At(slot, old) => {
                self.checksum = self
                    .checksum
                    .wrapping_sub(old.sum())
                    .wrapping_add(entry.sum());
                self.write(slot, entry);
                Ok(Some(old))
            }
            Find::Free(slot) => {
                let slot = if (self.len() + 1) * 4 > self.slots().len() * 3 {
                    self.grow()?;
                    match self.find(entry.hash) {
                        Find::Free(slot) | Find::At(slot, _) => slot,
                    }
                } else {
                    slot
                };
                self.write(slot, entry);
                self.entries += 1;
                self.checksum = self.checksum.wrapping_add(entry.sum());
                Ok(None)
            }
        }
    }

    /// Takes the entry of `hash` out.
    pub fn remove(&mut self, hash: u64) -> Option<Entry> {
        let Find::At(slot, old) = self.find(hash) else {
            return None;
        };
        let slots = self.slots().len();
        let mut hole = slot;
        let mut next = slot;
        // Close the hole: an entry moves back when its home is not between the hole and itself.
        for _ in 1..slots {
            next = if next + 1 == slots { 0 } else { next + 1 };
            let entry = self.read(next);
            if entry.hash == 0 {
                break;
            }
            let distance_home = distance(home(entry.hash, slots), next, slots);
            if distance_home >= distance(hole, next, slots) {
                self.write(hole, entry);
                hole = next;
            }
        }
        self.write(hole, Entry::EMPTY);
        self.entries -= 1;
        self.checksum = self.checksum.wrapping_sub(old.sum());
        Some(old)
    }

    /// Parts the range in two halves, lower first. Both keep the version.
    ///
    /// # Errors
    /// [`SegmentError::OutOfMemory`], or [`SegmentError::Full`] when the segment is too deep to be split; nothing is lost then.
    pub fn split(&self) -> Result<(Self, Self), SegmentError> {
        if self.depth >= MAX_DEPTH {
            return Err(SegmentError::Full);
        }
        let depth = self.depth + 1;
        let upper_first = self.first_hash | (range_mask(self.depth) ^ range_mask(depth));
        let upper_entries = self
            .iter()
            .filter(|entry| entry.hash >= upper_first)
            .count();
        let mut lower = Self::try_new(
            self.first_hash,
            depth,
            self.version,
            self.len() - upper_entries,
        )?;
        let mut upper = Self::try_new(upper_first, depth, self.version, upper_entries)?;
        for entry in self.iter() {
            let half = if entry.hash >= upper_first {
                &mut upper
            } else {
                &mut lower
            };
            half.insert(entry)?;
        }
        Ok((lower, upper))
    }

    fn slots(&self) -> &[[u8; ENTRY_BYTES]] {
        self.bytes
            .get(HEADER_BYTES..)
            .unwrap_or_default()
            .as_chunks()
            .0
    }

    fn read(&self, slot: usize) -> Entry {
        self.slots()
            .get(slot)
            .map_or(Entry::EMPTY, Entry::from_bytes)
    }

    fn write(&mut self, slot: usize, entry: Entry) {
        let slots = self
            .bytes
            .get_mut(HEADER_BYTES..)
            .unwrap_or_default()
            .as_chunks_mut()
            .0;
        if let Some(place) = slots.get_mut(slot) {
            *place = entry.to_bytes();
        }
    }

    fn find(&self, hash: u64) -> Find {
        let slots = self.slots();
        let mut at = home(hash, slots.len());
        for _ in 0..slots.len() {
            let entry = slots.get(at).map_or(Entry::EMPTY, Entry::from_bytes);
            if entry.hash == 0 {
                break;
            }
            if entry.hash == hash {
                return Find::At(at, entry);
            }
            at = if at + 1 == slots.len() { 0 } else { at + 1 };
        }
        Find::Free(at)
    }

    fn grow(&mut self) -> Result<(), SegmentError> {
        let now = self.slots().len();
        if now >= MAX_SLOTS {
            return Err(SegmentError::Full);
        }
        let mut grown = Self {
            bytes: try_zeroed((now + now / 8).clamp(MIN_SLOTS, MAX_SLOTS))?,
            entries: 0,
            checksum: 0,
            ..*self
        };
        for entry in self.iter() {
            let (Find::Free(slot) | Find::At(slot, _)) = grown.find(entry.hash);
            grown.write(slot, entry);
        }
        self.bytes = grown.bytes;
        Ok(())
    }
}

enum Find {
    At(usize, Entry),
    Free(usize),
}

/// The bits below the top `depth` ones.
fn range_mask(depth: u8) -> u64 {
    u64::MAX.checked_shr(u32::from(depth)).unwrap_or(0)
}

/// Slots that `entries` fill to two thirds.
fn slots_for(entries: usize) -> usize {
    (entries + entries / 2).clamp(MIN_SLOTS, MAX_SLOTS)
}

fn home(hash: u64, slots: usize) -> usize {
    let low = hash & u64::from(u32::MAX);
    // Below `slots`, which is a usize.
    usize::try_from((low * slots as u64) >> 32).unwrap_or(0)
}

/// Steps from slot `from` to slot `to`, wrapping.
fn distance(from: usize, to: usize, slots: usize) -> usize {
    if to >= from {
        to - from
    } else {
        to + slots - from
    }
}

fn try_zeroed(slots: usize) -> Result<Vec<u8>, SegmentError> {
    let length = HEADER_BYTES + slots * ENTRY_BYTES;
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(length)
        .map_err(|_| SegmentError::OutOfMemory { slots })?;
    bytes.resize(length, 0);
    Ok(bytes)
}

fn read_u64(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    header
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;
