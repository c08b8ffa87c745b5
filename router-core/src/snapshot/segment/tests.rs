//! The segment against a map, golden bytes and foreign bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{super::entry::SetId, *};

fn entry(hash: u64, set: u32) -> Entry {
    Entry {
        hash,
        set: SetId(set),
        token_depth: set ^ 7,
    }
}

#[test]
fn golden_image() {
    let mut segment = Segment::try_new(1 << 63, 1, 5, 0).unwrap();
    segment
        .insert(Entry {
            hash: 0x8000_0000_0200_0000,
            set: SetId(3),
            token_depth: 16,
        })
        .unwrap();
    let image = segment.image().to_vec();
    assert_eq!(image.len(), 32 + 64 * 16);
    let header = "5057533101000000000000000000008005000000000000000100000000000000";
    assert_eq!(hex(&image[..32]), header);
    // Slot (0x0200_0000 * 64) >> 32 = 0.
    assert_eq!(hex(&image[32..48]), "00000002000000800300000010000000");
    assert!(image[48..].iter().all(|&byte| byte == 0));
    let back = Segment::try_from_image(image).unwrap();
    assert_eq!(
        (back.version(), back.len(), back.checksum()),
        (5, 1, segment.checksum())
    );
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn a_full_segment_asks_for_a_split_and_halves_keep_everything() {
    let mut segment = Segment::try_new(0, 0, 9, 0).unwrap();
    let mut hash = 1u64;
    let mut count = 0;
    loop {
        hash = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
        match segment.insert(entry(hash, 1)) {
            Ok(_) => count += 1,
            Err(error) => {
                assert_eq!(error, SegmentError::Full);
                break;
            }
        }
    }
    assert_eq!(segment.len(), count);
    assert!(segment.image().len() <= MAX_IMAGE_BYTES);
    let (lower, upper) = segment.split().unwrap();
    assert_eq!(lower.len() + upper.len(), count);
    assert_eq!(
        lower.checksum().wrapping_add(upper.checksum()),
        segment.checksum()
    );
    assert_eq!(lower.last_hash().wrapping_add(1), upper.first_hash());
    assert!(
        upper
            .iter()
            .all(|entry| upper.get(entry.hash) == Some(entry) && entry.hash >> 63 == 1)
    );
}

#[test]
fn foreign_images_are_refused() {
    let mut good = Segment::try_new(1 << 63, 1, 5, 0).unwrap();
    good.insert(entry((1 << 63) + 77, 1)).unwrap();
    let image = good.image().to_vec();
    for (at, value) in [
        (0, b'X'),
        (4, 40),
        (4, 0),
        (8, 1),
        (24, 2),
        (0x20 + 15 * 16, 1),
    ] {
        let mut bytes = image.clone();
        bytes[at] = value;
        assert!(Segment::try_from_image(bytes).is_err(), "byte {at}");
    }
    for length in [0, 31, 32, 40, image.len() - 1] {
        assert!(
            Segment::try_from_image(image[..length].to_vec()).is_err(),
            "length {length}"
        );
    }
}

/// Few homes, some of them at the end: long runs that wrap.
fn hash_of(key: u64) -> u64 {
    (key << 40) + (key % 3) * 0x7FFF_FFFF + 1
}

proptest! {
    #[test]
    fn equals_a_map(ops in prop::collection::vec((any::<bool>(), 0u64..40, any::<u32>()), 0..400)) {
        let mut segment = Segment::try_new(0, 0, 0, 0).unwrap();
        let mut model = BTreeMap::new();
        for (put, key, set) in ops {
            let hash = hash_of(key);
            if put {
                let old = segment.insert(entry(hash, set)).unwrap();
                prop_assert_eq!(old, model.insert(hash, entry(hash, set)));
            } else {
                prop_assert_eq!(segment.remove(hash), model.remove(&hash));
            }
            prop_assert_eq!(segment.len(), model.len());
            for key in 0..40u64 {
                let hash = hash_of(key);
                prop_assert_eq!(segment.get(hash), model.get(&hash).copied());
            }
        }
        let sum = model.values().fold(0u64, |sum, entry| sum.wrapping_add(entry.sum()));
        prop_assert_eq!(segment.checksum(), sum);
        let image = segment.image().to_vec();
        let back = Segment::try_from_image(image).unwrap();
        prop_assert_eq!(back.checksum(), sum);
    }
}
