//! What the byte bound does.

use super::published::{GPU, OTHER, SOURCE, apply, rung, two_sources, words};
use super::*;

#[test]
fn byte_bound_drops_the_oldest_leaves_and_marks_their_source() {
    let mut index = Index::new(IndexConfig {
        seed: SEED,
        max_bytes: 60_000,
    });
    index.add_model(MODEL, "m", 1, Some(words().into_iter().collect()));
    index.add_source(SOURCE, MODEL, holders(1));
    index.add_source(OTHER, MODEL, holders(2));
    apply(&mut index, OTHER, &stored(&[1], None, &[25, 25, 25, 25], 4));
    let mut table = Table::default();
    for number in 0..1000u32 {
        let tokens = [number / 400, number / 20 % 20, number % 20, 1, 2, 3, 4, 5];
        apply(
            &mut index,
            SOURCE,
            &stored(
                &[u64::from(number) * 2 + 10, u64::from(number) * 2 + 11],
                None,
                &tokens,
                4,
            ),
        );
        assert!(index.stats().bytes <= 60_000);
        if number % 50 == 0 {
            table.take(&mut index);
        }
    }
    table.take(&mut index);
    assert_eq!(table.0, all(&index));
    assert!(index.is_partial(SOURCE) && index.is_partial(OTHER));
    assert!(index.stats().counters.evicted_blocks > 500);
    let newest = [999 / 400, 999 / 20 % 20, 999 % 20, 1, 2, 3, 4, 5];
    assert_eq!(rung(&index, &newest), Some((8, vec![GPU])));
    assert_eq!(rung(&index, &[25, 25, 25, 25]), None);
}

#[test]
fn full_report_after_an_eviction_adds_no_copy_of_what_is_live() {
    let mut index = two_sources();
    let prefix = stored(&[1, 2], None, &[0, 1, 2, 3, 4, 5, 6, 7], 4);
    apply(&mut index, SOURCE, &prefix);
    let (_, source) = index.sources.get_mut(&SOURCE).unwrap();
    let last = source
        .find(crate::event::EngineHash(2), &index.store)
        .unwrap();
    source.evict(last, &mut index.store);
    assert!(index.is_partial(SOURCE));
    apply(&mut index, SOURCE, &prefix);
    let whole = [0, 1, 2, 3, 4, 5, 6, 7];
    assert_eq!(rung(&index, &whole), Some((8, vec![GPU])), "reported again");
    assert_eq!(index.stats().counters.full_reports, 1);
    apply(&mut index, SOURCE, &removed(2));
    apply(&mut index, SOURCE, &removed(1));
    assert!(all(&index).is_empty(), "the engine has no copy left");
    assert_eq!(index.stats().counters.unknown_removes, 0);
}

#[test]
fn full_report_tells_the_content_of_blocks_known_by_hash() {
    let mut index = two_sources();
    apply(&mut index, SOURCE, &stored(&[1], None, &[], 0));
    apply(&mut index, SOURCE, &stored(&[2], None, &[], 0));
    let whole = [0, 1, 2, 3, 4, 5, 6, 7];
    assert_eq!(rung(&index, &whole), None);
    apply(&mut index, SOURCE, &stored(&[1, 2], None, &whole, 4));
    assert_eq!(rung(&index, &whole), Some((8, vec![GPU])));
    apply(&mut index, SOURCE, &removed(2));
    apply(&mut index, SOURCE, &removed(1));
    assert!(all(&index).is_empty(), "no copy was counted twice");
}
