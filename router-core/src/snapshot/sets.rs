//! Holder sets and their dictionary.
//!
//! A set is a bit string: bit `i % 8` of byte `i / 8` is holder `i`, trailing zero bytes are cut. The dictionary is parted in pages of
//! [`PAGE_SETS`] ids, each with its own version, so that it is published and loaded like the table's segments.
//!
//! Page image, little endian:
//! ```text
//! offset 0   4 bytes  "PWD1"
//!        4   u32      page number: ids number * 1024 up to the next page
//!        8   u64      version
//!       16   sets:    u32 id, u32 length, bits
//! ```

use xxhash_rust::xxh3::Xxh3Default;

use super::entry::SetId;
use crate::{endpoint::HolderId, proto};

/// Set ids in a page. Few in this crate's own tests, so that there are several pages.
pub const PAGE_SETS: usize = if cfg!(test) { 64 } else { 1024 };

/// Holder ids are below this.
pub const MAX_HOLDERS: u32 = 1 << 16;

/// Set ids are below this.
pub const MAX_SETS: u32 = 1 << 24;

const MAGIC: [u8; 4] = *b"PWD1";
const MAX_SET_BYTES: usize = MAX_HOLDERS as usize / 8;

/// Why a set or a page was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetsError {
    /// An id or a length beyond the limits, or the empty set's id.
    #[error("set {id} of {length} bytes is out of range")]
    OutOfRange {
        /// Set id.
        id: u32,
        /// Bytes of the set.
        length: usize,
    },
    /// The bytes are no page image.
    #[error("not a page of sets: {reason}")]
    BadImage {
        /// What is wrong with them.
        reason: &'static str,
    },
}

/// Bits of the holders, which may come in any order; holders beyond the limit are left out.
pub fn bits(holders: &[HolderId]) -> Vec<u8> {
    let valid = || holders.iter().filter(|holder| holder.0 < MAX_HOLDERS);
    let Some(last) = valid().map(|holder| holder.0).max() else {
        return Vec::new();
    };
    let mut bits = vec![0u8; last as usize / 8 + 1];
    for holder in valid() {
        if let Some(byte) = bits.get_mut(holder.0 as usize / 8) {
            *byte |= 1 << (holder.0 % 8);
        }
    }
    bits
}

/// Holders in a set's bits, lowest first.
pub fn holders(bits: &[u8]) -> impl Iterator<Item = HolderId> {
    (0u32..).step_by(8).zip(bits).flat_map(|(first, &byte)| {
        let mut rest = byte;
        core::iter::from_fn(move || {
            let bit = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(HolderId(first + bit))
        })
    })
}

/// A set's part of the checksum: XXH3-64 of its id as u32 LE and its bits, seed 0.
fn sum(id: u32, bits: &[u8]) -> u64 {
    let mut hasher = Xxh3Default::new();
    hasher.update(&id.to_le_bytes());
    hasher.update(bits);
    hasher.digest()
}

#[derive(Clone, Debug, Default)]
struct Page {
    version: u64,
    checksum: u64,
    sets: Vec<Option<Box<[u8]>>>,
}

impl Page {
    fn put(&mut self, id: u32, set: Option<Box<[u8]>>) {
        let place = id as usize % PAGE_SETS;
        if self.sets.len() <= place {
            self.sets.resize(place + 1, None);
        }
        let Some(slot) = self.sets.get_mut(place) else {
            return;
        };
        let sum_of = |set: &Option<Box<[u8]>>| set.as_deref().map_or(0, |bits| sum(id, bits));
        self.checksum = self
            .checksum
            .wrapping_sub(sum_of(slot))
            .wrapping_add(sum_of(&set));
        *slot = set;
    }
}

/// Set id → holders.
#[derive(Clone, Debug, Default)]
pub struct Sets {
    pages: Vec<Page>,
}

impl Sets {
    /// The bits of a set; `None` when the id is not in use. The empty set is always there.
    pub fn get(&self, id: SetId) -> Option<&[u8]> {
        if id == SetId::EMPTY {
            return Some(&[]);
        }
        let id = id.0 as usize;
        self.pages
            .get(id / PAGE_SETS)?
            .sets
            .get(id % PAGE_SETS)?
            .as_deref()
    }

    /// Sets in use besides the empty one.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is no set besides the empty one.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Ids and bits of the sets in use, lowest id first.
    pub fn iter(&self) -> impl Iterator<Item = (SetId, &[u8])> {
        self.pages
            .iter()
            .zip(0u32..)
            .flat_map(|(page, number)| page_sets(page, number))
    }

    /// Wrapping sum over the sets in use of XXH3-64(id u32 LE || bits).
    pub fn checksum(&self) -> u64 {
        self.pages
            .iter()
            .fold(0, |sum, page| sum.wrapping_add(page.checksum))
    }

    /// The same, counted anew from the sets.
    pub fn recounted_checksum(&self) -> u64 {
        let sums = self.iter().map(|(id, bits)| sum(id.0, bits));
        sums.fold(0, u64::wrapping_add)
    }

    /// Pages begun.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Version up to which a page is current; 0 when there is no such page.
    pub fn page_version(&self, number: usize) -> u64 {
        self.pages.get(number).map_or(0, |page| page.version)
    }

    /// Gives a set a meaning.
    ///
    /// # Errors
    /// [`SetsError::OutOfRange`].
    pub fn insert(&mut self, id: u32, bits: &[u8]) -> Result<(), SetsError> {
        check(id, bits)?;
        self.page(id).put(id, Some(bits.into()));
        Ok(())
    }

    /// Frees an id.
    pub fn remove(&mut self, id: u32) {
        if let Some(page) = self.pages.get_mut(id as usize / PAGE_SETS) {
            page.put(id, None);
        }
    }

    /// Applies a delta to the pages that are older than it.
    ///
    /// # Errors
    /// [`SetsError::OutOfRange`]; the dictionary is useless then.
    pub fn apply(&mut self, delta: &proto::Delta) -> Result<(), SetsError> {
        for set in &delta.sets {
            check(set.id, &set.bits)?;
            let page = self.page(set.id);
            if page.version < delta.version {
                page.put(set.id, Some(set.bits.as_ref().into()));
            }
        }
        for &id in &delta.dropped_sets {
            if let Some(page) = self.pages.get_mut(id as usize / PAGE_SETS)
                && page.version < delta.version
            {
                page.put(id, None);
            }
        }
        self.set_version(delta.version);
        Ok(())
    }

    /// Says that every page is current up to at least `version`.
    pub fn set_version(&mut self, version: u64) {
        for page in &mut self.pages {
            page.version = page.version.max(version);
        }
    }

    /// Image of a page; a page that was not begun is empty.
    pub fn page_image(&self, number: usize) -> Vec<u8> {
        let number_u32 = u32::try_from(number).unwrap_or(u32::MAX);
        let mut image = Vec::new();
        image.extend_from_slice(&MAGIC);
        image.extend_from_slice(&number_u32.to_le_bytes());
        image.extend_from_slice(&self.page_version(number).to_le_bytes());
        for (id, bits) in self
            .pages
            .get(number)
            .into_iter()
            .flat_map(|page| page_sets(page, number_u32))
        {
            image.extend_from_slice(&id.0.to_le_bytes());
            image.extend_from_slice(&u32::try_from(bits.len()).unwrap_or(0).to_le_bytes());
            image.extend_from_slice(bits);
        }
        image
    }

    /// Replaces a page by its image; gives the image's version.
    ///
    /// # Errors
    /// [`SetsError::BadImage`], [`SetsError::OutOfRange`]; nothing is changed then.
    pub fn load_page(&mut self, number: usize, image: &[u8]) -> Result<u64, SetsError> {
        let bad = |reason| SetsError::BadImage { reason };
        let (magic, rest) = image.split_first_chunk::<4>().ok_or(bad("too short"))?;
        let (image_number, rest) = take_u32(rest).ok_or(bad("too short"))?;
        let (version, mut rest) = rest.split_first_chunk::<8>().ok_or(bad("too short"))?;
        if *magic != MAGIC || image_number as usize != number {
            return Err(bad("magic or number"));
        }
        let mut page = Page {
            version: u64::from_le_bytes(*version),
            ..Page::default()
        };
        while !rest.is_empty() {
            let (id, after) = take_u32(rest).ok_or(bad("length"))?;
            let (length, after) = take_u32(after).ok_or(bad("length"))?;
            let (bits, after) = after
                .split_at_checked(length as usize)
                .ok_or(bad("length"))?;
            check(id, bits)?;
            if id as usize / PAGE_SETS != number {
                return Err(bad("id of another page"));
            }
            page.put(id, Some(bits.into()));
            rest = after;
        }
        let version = page.version;
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, Page::default);
        }
        if let Some(place) = self.pages.get_mut(number) {
            *place = page;
        }
        Ok(version)
    }

    fn page(&mut self, id: u32) -> &mut Page {
        let number = id as usize / PAGE_SETS;
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, Page::default);
        }
        #[expect(clippy::indexing_slicing, reason = "the line above makes the page")]
        &mut self.pages[number]
    }
}

fn page_sets(page: &Page, number: u32) -> impl Iterator<Item = (SetId, &[u8])> {
    let first = number.saturating_mul(u32::try_from(PAGE_SETS).unwrap_or(u32::MAX));
    page.sets
        .iter()
        .zip(first..)
        .filter_map(|(set, id)| Some((SetId(id), set.as_deref()?)))
}

fn check(id: u32, bits: &[u8]) -> Result<(), SetsError> {
    if id == 0 || id >= MAX_SETS || bits.len() > MAX_SET_BYTES {
        return Err(SetsError::OutOfRange {
            id,
            length: bits.len(),
        });
    }
    Ok(())
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(version: u64, sets: &[(u32, &[u8])], dropped_sets: &[u32]) -> proto::Delta {
        let sets = sets
            .iter()
            .map(|(id, bits)| proto::HolderSet {
                id: *id,
                bits: bits.to_vec().into(),
            })
            .collect();
        proto::Delta {
            version,
            sets,
            dropped_sets: dropped_sets.to_vec(),
            ..proto::Delta::default()
        }
    }

    #[test]
    fn bits_and_holders_are_inverse() {
        let ids = [HolderId(0), HolderId(7), HolderId(8), HolderId(700)];
        let set = bits(&ids);
        assert_eq!(set.len(), 88);
        assert_eq!(holders(&set).collect::<Vec<_>>(), ids);
        assert!(bits(&[]).is_empty());
        assert!(bits(&[HolderId(MAX_HOLDERS)]).is_empty());
    }

    #[test]
    fn golden_page() {
        let mut sets = Sets::default();
        sets.apply(&delta(3, &[(1, &[5]), (65, &[0, 1])], &[]))
            .unwrap();
        assert_eq!(
            sets.page_image(0),
            b"PWD1\0\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x05"
        );
        assert_eq!(
            sets.page_image(1),
            b"PWD1\x01\0\0\0\x03\0\0\0\0\0\0\0\x41\0\0\0\x02\0\0\0\0\x01"
        );
        let mut copy = Sets::default();
        for page in [1, 0] {
            assert_eq!(copy.load_page(page, &sets.page_image(page)).unwrap(), 3);
        }
        assert_eq!(copy.checksum(), sets.checksum());
        assert_eq!(copy.get(SetId(65)), Some(&[0u8, 1][..]));
        assert_eq!(copy.iter().count(), 2);
    }

    #[test]
    fn checksum_follows_changes_and_old_deltas_are_left_out() {
        let mut sets = Sets::default();
        sets.apply(&delta(1, &[(1, &[5]), (2, &[6])], &[])).unwrap();
        let mut other = Sets::default();
        other.apply(&delta(1, &[(2, &[6])], &[])).unwrap();
        assert_ne!(sets.checksum(), other.checksum());
        sets.apply(&delta(2, &[], &[1])).unwrap();
        assert_eq!(sets.checksum(), other.checksum());
        sets.apply(&delta(1, &[(1, &[5])], &[2])).unwrap();
        assert_eq!(sets.checksum(), other.checksum());
        assert_eq!(sets.len(), 1);
    }

    #[test]
    fn foreign_sets_are_refused() {
        let mut sets = Sets::default();
        for (id, length) in [(0, 1), (MAX_SETS, 1), (1, MAX_SET_BYTES + 1)] {
            assert!(
                sets.apply(&delta(1, &[(id, &vec![1; length])], &[]))
                    .is_err()
            );
        }
        for image in [
            &b""[..],
            b"PWD1",
            b"PWD1\x01\0\0\0\0\0\0\0\0\0\0\0",
            b"PWD1\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x09\0\0\0\x05",
        ] {
            assert!(sets.load_page(0, image).is_err());
        }
        assert!(sets.is_empty());
    }
}
