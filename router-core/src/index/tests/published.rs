//! What is published, one rule at a time. Token `n` is 16 bytes, so that four tokens are a chunk.

use super::*;
use crate::hash::chunk_hashes;

pub(super) const GPU: HolderId = HolderId(3);
pub(super) const CPU: HolderId = HolderId(4);
pub(super) const SOURCE: SourceId = SourceId(1);
pub(super) const OTHER: SourceId = SourceId(2);
pub(super) const OTHER_GPU: HolderId = HolderId(6);

pub(super) fn words() -> Vec<Vec<u8>> {
    (b'a'..=b'z').map(|letter| vec![letter; 16]).collect()
}

pub(super) fn two_sources() -> Index {
    let mut index = index(words());
    index.add_source(SOURCE, MODEL, holders(1));
    index.add_source(OTHER, MODEL, holders(2));
    index
}

pub(super) fn apply(index: &mut Index, source: SourceId, event: &EventSpec) {
    index.apply(source, &batch(std::slice::from_ref(event)));
}

/// Rung of a prompt of tokens, as (token depth, holders).
pub(super) fn rung(index: &Index, tokens: &[u32]) -> Option<(u32, Vec<HolderId>)> {
    rung_in(index, scope("", ""), tokens)
}

fn rung_in(index: &Index, scope: ChunkHash, tokens: &[u32]) -> Option<(u32, Vec<HolderId>)> {
    let words = words();
    let text: Vec<u8> = tokens
        .iter()
        .flat_map(|&token| words[token as usize].clone())
        .collect();
    let hash = chunk_hashes(scope, &text, SEED).last().unwrap();
    all(index)
        .get(&hash.0)
        .map(|rung| (rung.token_depth, rung.holders.clone()))
}

#[test]
fn holder_stays_in_a_rung_until_its_last_covering_block_is_gone() {
    let mut index = two_sources();
    // Blocks of three tokens: the second block of each prompt covers the rung at four tokens.
    apply(
        &mut index,
        SOURCE,
        &stored(&[1, 2], None, &[0, 1, 2, 3, 4, 5], 3),
    );
    apply(&mut index, SOURCE, &stored(&[3], Some(1), &[3, 6, 7], 3));
    // Both blocks end 32 bytes after the rung.
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((6, vec![GPU])));
    apply(&mut index, SOURCE, &removed(2));
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((6, vec![GPU])));
    apply(&mut index, SOURCE, &removed(3));
    assert_eq!(rung(&index, &[0, 1, 2, 3]), None);
}

#[test]
fn block_that_ends_more_than_half_a_chunk_later_gives_its_parents_depth() {
    let mut index = two_sources();
    apply(
        &mut index,
        SOURCE,
        &stored(&[1, 2], None, &[0, 1, 2, 3, 4, 5, 6], 7),
    );
    assert!(all(&index).is_empty(), "two hashes need fourteen tokens");
    apply(
        &mut index,
        SOURCE,
        &stored(&[1], None, &[0, 1, 2, 3, 4, 5, 6], 7),
    );
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((0, vec![GPU])));
    apply(&mut index, OTHER, &stored(&[9], None, &[0, 1, 2, 3, 4], 5));
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((5, vec![GPU, OTHER_GPU])));
    apply(&mut index, OTHER, &EventSpec::Cleared);
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((0, vec![GPU])));
}

#[test]
fn block_whose_hash_covers_tokens_after_it_reaches_less_far() {
    // The second block ends 32 bytes after the rung at four tokens, and a hit on it needs more than that.
    for (lookahead, depth) in [(0, 6), (1, 3)] {
        let mut index = two_sources();
        let event = Event::Stored(crate::event::Stored {
            hashes: &[1, 2].map(crate::event::EngineHash),
            parent: None,
            tokens: &[0, 1, 2, 3, 4, 5],
            block_size: 3,
            lora_id: None,
            lora_name: None,
            medium: None,
            extra_keys: None,
            group: None,
            kind: None,
            sliding_window: None,
            lookahead,
        });
        index.apply_events([(SOURCE, event)]);
        assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((depth, vec![GPU])));
        let exact = |tokens: &[u32]| {
            let scope = scope_in(Space::Token, "", "");
            index.exact_tokens(scope, tokens, 3, |_| Vec::new())
        };
        assert_eq!(exact(&[0, 1, 2, 3, 4, 5, 9]), [(GPU, 6)].into());
        let at_the_end = if lookahead == 0 { 6 } else { 3 };
        assert_eq!(exact(&[0, 1, 2, 3, 4, 5]), [(GPU, at_the_end)].into());
    }
}

#[test]
fn batches_of_many_sources_do_the_same_together_as_one_by_one() {
    let store = stored(&[1, 2], None, &[0, 1, 2, 3, 4, 5, 6, 7], 4);
    let events = [
        store.clone(),
        removed(2),
        removed(9),
        store,
        removed(2),
        removed(1),
    ];
    let payloads: Vec<(SourceId, Vec<u8>)> = events
        .iter()
        .flat_map(|event| [SOURCE, OTHER].map(|id| (id, batch(std::slice::from_ref(event)))))
        .collect();
    let (mut one_by_one, mut together) = (two_sources(), two_sources());
    for (id, payload) in &payloads {
        one_by_one.apply(*id, payload);
    }
    let batches = payloads
        .iter()
        .map(|(id, payload)| (*id, payload.as_slice()));
    let mut applied = 0;
    together.apply_all(batches, |_, outcome| applied += outcome.info.events);
    assert_eq!(applied, 12);
    assert_eq!(all(&together), all(&one_by_one));
    assert_eq!(together.stats(), one_by_one.stats());
    assert_eq!(together.stats().counters.unknown_removes, 2);
}

#[test]
fn children_of_a_missing_block_do_not_count_until_it_is_back() {
    let mut index = two_sources();
    apply(
        &mut index,
        SOURCE,
        &stored(&[1, 2], None, &[0, 1, 2, 3, 4, 5, 6, 7], 4),
    );
    apply(&mut index, SOURCE, &removed(1));
    assert!(all(&index).is_empty());
    apply(&mut index, SOURCE, &stored(&[1], None, &[0, 1, 2, 3], 4));
    assert_eq!(
        rung(&index, &[0, 1, 2, 3, 4, 5, 6, 7]),
        Some((8, vec![GPU]))
    );
}

#[test]
fn full_report_of_a_live_prefix_is_not_counted() {
    let mut index = two_sources();
    let prefix = stored(&[1, 2], None, &[0, 1, 2, 3, 4, 5, 6, 7], 4);
    apply(&mut index, SOURCE, &prefix);
    apply(&mut index, SOURCE, &prefix);
    assert_eq!(index.stats().counters.full_reports, 1);
    apply(&mut index, SOURCE, &removed(2));
    assert_eq!(rung(&index, &[0, 1, 2, 3, 4, 5, 6, 7]), None);
}

#[test]
fn block_counts_for_the_slowest_tier_on_its_path() {
    let mut index = two_sources();
    apply(
        &mut index,
        SOURCE,
        &stored(&[1, 2], None, &[0, 1, 2, 3, 4, 5, 6, 7], 4),
    );
    // The offloading connector names the block by its hash only.
    let offloaded = EventSpec::Stored(StoredSpec {
        hashes: vec![1],
        medium: Some("CPU".to_owned()),
        ..StoredSpec::default()
    });
    apply(&mut index, SOURCE, &offloaded);
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((4, vec![GPU])));
    apply(&mut index, SOURCE, &removed(1));
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((4, vec![CPU])));
    assert_eq!(
        rung(&index, &[0, 1, 2, 3, 4, 5, 6, 7]),
        Some((8, vec![CPU]))
    );
}

#[test]
fn placeholder_is_joined_when_its_content_comes() {
    let mut index = two_sources();
    let offloaded = EventSpec::Stored(StoredSpec {
        hashes: vec![1],
        medium: Some("CPU".to_owned()),
        ..StoredSpec::default()
    });
    apply(&mut index, SOURCE, &offloaded);
    assert!(all(&index).is_empty());
    apply(&mut index, SOURCE, &stored(&[1], None, &[0, 1, 2, 3], 4));
    apply(&mut index, SOURCE, &removed(1));
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((4, vec![CPU])));
}

#[test]
fn adapters_and_salts_are_scopes_of_their_own() {
    let mut index = two_sources();
    for (hash, adapter, salt) in [
        (1, None, None),
        (2, Some("lora-a"), None),
        (3, None, Some("s")),
        (4, Some("lora-a"), Some("s")),
    ] {
        let spec = StoredSpec {
            hashes: vec![hash, hash + 10],
            tokens: vec![0, 1, 2, 3, 4, 5, 6, 7],
            block_size: 4,
            lora_name: adapter.map(str::to_owned),
            salt: salt.map(str::to_owned),
            ..StoredSpec::default()
        };
        apply(&mut index, SOURCE, &EventSpec::Stored(spec));
    }
    assert_eq!(all(&index).len(), 8);
    for (adapter, salt) in [("", ""), ("lora-a", ""), ("", "s"), ("lora-a", "s")] {
        assert_eq!(
            rung_in(&index, scope(adapter, salt), &[0, 1, 2, 3, 4, 5, 6, 7]),
            Some((8, vec![GPU]))
        );
    }
    assert_eq!(rung_in(&index, scope("lora-b", ""), &[0, 1, 2, 3]), None);
}

#[test]
fn reset_of_a_source_takes_its_holders_and_speculations_with_it() {
    let mut index = two_sources();
    apply(&mut index, SOURCE, &stored(&[1], None, &[0, 1, 2, 3], 4));
    apply(&mut index, OTHER, &stored(&[1], None, &[0, 1, 2, 3], 4));
    let mut table = Table::default();
    table.take(&mut index);
    index.credit_speculative(&Speculation {
        holder: GPU,
        space: Space::Text,
        rungs: &[77],
        prompt_tokens: 4,
        prompt_bytes: 64,
        expires_ms: 5,
    });
    index.reset_source(SOURCE, holders(7));
    table.take(&mut index);
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((4, vec![OTHER_GPU])));
    assert_eq!(table.0.len(), 1);
    index.remove_source(OTHER);
    table.take(&mut index);
    assert!(table.0.is_empty());
    assert!(!index.apply(OTHER, &batch(&[])).is_known_source);
    assert_eq!(index.stats().counters.stale_batches, 1);
}

#[test]
fn a_prompt_of_absurd_length_is_credited_and_taken_back() {
    let mut index = two_sources();
    let speculate = |index: &mut Index, holder| {
        index.credit_speculative(&Speculation {
            holder,
            space: Space::Text,
            rungs: &[1],
            prompt_tokens: u32::MAX,
            prompt_bytes: 0,
            expires_ms: 1,
        })
    };
    speculate(&mut index, GPU);
    speculate(&mut index, OTHER_GPU);
    assert_eq!(all(&index)[&1].holders, [GPU, OTHER_GPU]);
    index.expire(1);
    index.take_changes();
    assert!(all(&index).is_empty());
}

#[test]
fn speculation_and_events_do_not_cancel_each_other() {
    let mut index = two_sources();
    apply(&mut index, SOURCE, &stored(&[1], None, &[0, 1, 2, 3], 4));
    let words = words();
    let text: Vec<u8> = (0..8).flat_map(|token| words[token].clone()).collect();
    let rungs: Vec<u64> = chunk_hashes(scope("", ""), &text, SEED)
        .map(|hash| hash.0)
        .collect();
    let speculate = |index: &mut Index, holder| {
        index.credit_speculative(&Speculation {
            holder,
            space: Space::Text,
            rungs: &rungs,
            prompt_tokens: 8,
            prompt_bytes: 128,
            expires_ms: 50,
        })
    };
    let id = speculate(&mut index, OTHER_GPU);
    let own = speculate(&mut index, GPU);
    let whole = [0, 1, 2, 3, 4, 5, 6, 7];
    assert_eq!(rung(&index, &whole), Some((8, vec![GPU, OTHER_GPU])));
    apply(&mut index, SOURCE, &removed(1));
    assert_eq!(
        rung(&index, &whole[..4]),
        Some((4, vec![GPU, OTHER_GPU])),
        "a removal leaves the speculation"
    );
    index.cancel(own);
    assert_eq!(rung(&index, &whole[..4]), Some((4, vec![OTHER_GPU])));
    apply(&mut index, OTHER, &stored(&[5, 6], None, &whole, 4));
    assert_eq!(index.stats().speculations, 0, "events confirmed it");
    index.cancel(id);
    assert_eq!(rung(&index, &whole), Some((8, vec![OTHER_GPU])));
    speculate(&mut index, GPU);
    index.expire(49);
    assert_eq!(rung(&index, &whole), Some((8, vec![GPU, OTHER_GPU])));
    index.expire(50);
    assert_eq!(rung(&index, &whole), Some((8, vec![OTHER_GPU])));
}

#[test]
fn hybrid_holder_is_credited_only_where_its_windows_are_there() {
    let mut index = two_sources();
    let of_group = |number: u32, hashes: Vec<u64>, tokens: Vec<u32>| {
        let (kind, window) = if number == 0 {
            ("full_attention", None)
        } else {
            ("sliding_window", Some(5))
        };
        EventSpec::Stored(StoredSpec {
            hashes,
            tokens,
            block_size: 4,
            group: Some((number, kind.to_owned(), window)),
            ..StoredSpec::default()
        })
    };
    let whole: Vec<u32> = (0..12).collect();
    apply(
        &mut index,
        SOURCE,
        &of_group(0, vec![1, 2, 3], whole.clone()),
    );
    assert_eq!(rung(&index, &whole), Some((12, vec![GPU])));
    // The window is one block; only the last block of the sliding group is stored (fewer hashes than tokens).
    apply(&mut index, SOURCE, &of_group(1, vec![3], whole.clone()));
    assert_eq!(
        rung(&index, &whole[..4]),
        Some((4, vec![])),
        "the rung stays: probing goes on to deeper ones"
    );
    assert_eq!(rung(&index, &whole), Some((12, vec![GPU])));
    apply(
        &mut index,
        SOURCE,
        &EventSpec::Removed {
            hashes: vec![3],
            medium: None,
            group: Some(1),
        },
    );
    assert_eq!(rung(&index, &whole), Some((12, vec![])));
}

#[test]
fn contradicting_content_is_not_counted() {
    let mut index = two_sources();
    apply(&mut index, SOURCE, &stored(&[1], None, &[0, 1, 2, 3], 4));
    apply(&mut index, SOURCE, &stored(&[1], None, &[4, 5, 6, 7], 4));
    assert_eq!(index.stats().counters.conflicts, 1);
    assert_eq!(rung(&index, &[4, 5, 6, 7]), None);
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((4, vec![GPU])));
    assert_eq!(index.stats().blocks, 1);
}

#[test]
fn models_that_share_a_profile_spell_with_their_own_vocabularies() {
    const SIBLING: ModelId = ModelId(1);
    let mut index = index(words());
    let reversed = words().into_iter().rev().collect();
    index.add_model(SIBLING, "m", 1, Some(reversed));
    index.add_source(SOURCE, MODEL, holders(1));
    index.add_source(OTHER, SIBLING, holders(2));
    // The same ids and the same labels spell another text there, and other ids the same one.
    for source in [SOURCE, OTHER] {
        apply(&mut index, source, &stored(&[1], None, &[0, 1, 2, 3], 4));
    }
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((4, vec![GPU])));
    assert_eq!(rung(&index, &[25, 24, 23, 22]), Some((4, vec![OTHER_GPU])));
    apply(&mut index, OTHER, &stored(&[2], None, &[25, 24, 23, 22], 4));
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((4, vec![GPU, OTHER_GPU])));
    apply(&mut index, SOURCE, &removed(1));
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((4, vec![OTHER_GPU])));
}

#[test]
fn bytes_per_token_is_learned_from_distinct_blocks() {
    let mut index = index([vec![b'a'; 3], vec![b'b'; 5]]);
    index.add_source(SOURCE, MODEL, holders(1));
    assert_eq!(index.bytes_per_token(MODEL), None);
    for _ in 0..2 {
        apply(&mut index, SOURCE, &stored(&[1], None, &[0, 0, 1, 1], 4));
    }
    assert_eq!(index.bytes_per_token(MODEL), Some(4.0));
    assert_eq!(index.bytes_per_token(ModelId(9)), None);
}

#[test]
fn changes_are_coalesced_and_empty_when_nothing_changed() {
    let mut index = two_sources();
    let prefix = stored(&[1], None, &[0, 1, 2, 3], 4);
    apply(&mut index, SOURCE, &prefix);
    apply(&mut index, SOURCE, &removed(1));
    assert!(
        index.take_changes().is_empty(),
        "what came and went is not told"
    );
    apply(&mut index, SOURCE, &prefix);
    assert_eq!(index.take_changes().upserts.len(), 1);
    apply(&mut index, SOURCE, &prefix);
    assert!(
        index.take_changes().is_empty(),
        "a second copy changes nothing"
    );
}

#[test]
fn model_without_vocabulary_publishes_nothing_but_counts() {
    let mut index = Index::new(IndexConfig {
        seed: SEED,
        max_bytes: usize::MAX,
    });
    index.add_model(MODEL, "m", 1, None);
    index.add_source(SOURCE, MODEL, holders(1));
    apply(&mut index, SOURCE, &stored(&[1], None, &[0, 1, 2, 3], 4));
    assert!(all(&index).is_empty());
    assert_eq!(
        index.exact_tokens(scope_in(Space::Token, "", ""), &[0, 1, 2, 3], 4, |_| {
            Vec::new()
        }),
        [(GPU, 4)].into()
    );
}
