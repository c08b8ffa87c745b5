//! A first look at a batch: what its first event will look up.

use super::EngineHash;
use super::batch::hash;
use super::cursor::Cursor;

/// Hashes of an event that is worth a look: the searches of a longer one overlap by themselves.
const MAX_HASHES: usize = 4;

/// Shows the hashes of a batch whose first event is a short `BlockStored`, and gives the hash of the block above them. It is only a hint:
/// batches in other forms show nothing.
pub(crate) fn glimpse(payload: &[u8], mut see: impl FnMut(EngineHash)) -> Option<EngineHash> {
    let mut cursor = Cursor::new(payload);
    if cursor.array().ok()? < 2 {
        return None;
    }
    cursor.skip().ok()?;
    if cursor.array().ok()? == 0 {
        return None;
    }
    if !matches!(cursor.peek().ok()?, 0x80..=0x8f | 0xde | 0xdf) {
        let fields = cursor.array().ok()?;
        if fields < 3 || cursor.str_bytes().ok()? != b"BlockStored" {
            return None;
        }
        hashes(&mut cursor, &mut see)?;
        return parent(&mut cursor);
    }
    for _ in 0..cursor.map().ok()? {
        match cursor.str_bytes().ok()? {
            b"type" => {
                if cursor.str_bytes().ok()? != b"BlockStored" {
                    return None;
                }
            }
            b"block_hashes" => hashes(&mut cursor, &mut see)?,
            b"parent_block_hash" => return parent(&mut cursor),
            _ => cursor.skip().ok()?,
        }
    }
    None
}

fn hashes(cursor: &mut Cursor<'_>, see: &mut impl FnMut(EngineHash)) -> Option<()> {
    let count = cursor.array().ok().filter(|&count| count <= MAX_HASHES)?;
    for _ in 0..count {
        see(hash(cursor).ok()?);
    }
    Some(())
}

fn parent(cursor: &mut Cursor<'_>) -> Option<EngineHash> {
    if cursor.nil() {
        return None;
    }
    hash(cursor).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::encode::{EventSpec, StoredSpec, batch};

    fn seen(payload: &[u8]) -> (Vec<u64>, Option<u64>) {
        let mut hashes = Vec::new();
        let parent = glimpse(payload, |hash| hashes.push(hash.0));
        (hashes, parent.map(|hash| hash.0))
    }

    #[test]
    fn hashes_of_a_short_event_and_their_parent_are_seen() {
        let stored = |hashes: &[u64]| {
            EventSpec::Stored(StoredSpec {
                hashes: hashes.to_vec(),
                parent: Some(9),
                tokens: vec![0; hashes.len()],
                block_size: 1,
                ..StoredSpec::default()
            })
        };
        assert_eq!(seen(&batch(&[stored(&[1, 2, 3, 4, 5])])), (vec![], None));
        let payload = batch(&[stored(&[1, 2, 3, 4]), stored(&[5])]);
        assert_eq!(seen(&payload), (vec![1, 2, 3, 4], Some(9)));
        // Wherever it is cut, nothing worse happens than that less is seen.
        for len in 0..payload.len() {
            let (hashes, parent) = seen(&payload[..len]);
            assert!([1, 2, 3, 4].starts_with(&hashes));
            assert!(parent.is_none_or(|parent| parent == 9));
        }
    }

    #[test]
    fn array_events_are_seen_too_and_others_are_not() {
        let array = b"\x92\xc0\x91\x94\xabBlockStored\x92\x07\x08\x05\x90";
        assert_eq!(seen(array), (vec![7, 8], Some(5)));
        assert_eq!(
            seen(b"\x92\xc0\x91\x93\xabBlockStored\x91\x07\xc0"),
            (vec![7], None)
        );
        let removed = EventSpec::Removed {
            hashes: vec![1],
            medium: None,
            group: None,
        };
        assert_eq!(seen(&batch(&[removed])), (vec![], None));
        assert_eq!(seen(&batch(&[])), (vec![], None));
        assert_eq!(seen(b"\x90"), (vec![], None));
    }
}
