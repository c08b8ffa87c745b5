//! What ends a speculation, and what does not.

use super::published::{CPU, GPU, SOURCE, apply, rung, two_sources, words};
use super::*;
use crate::hash::chunk_hashes;

#[test]
fn group_that_is_met_confirms_no_speculation_on_what_stays_covered() {
    let mut index = two_sources();
    let of_group = |number: u32, kind: &str, window| {
        EventSpec::Stored(StoredSpec {
            hashes: vec![1],
            tokens: vec![0, 1, 2, 3],
            block_size: 4,
            group: Some((number, kind.to_owned(), window)),
            ..StoredSpec::default()
        })
    };
    apply(&mut index, SOURCE, &of_group(0, "full_attention", None));
    let hash = all(&index).into_keys().next().unwrap();
    index.credit_speculative(&Speculation {
        holder: GPU,
        space: Space::Text,
        rungs: &[hash],
        prompt_tokens: 4,
        prompt_bytes: 64,
        expires_ms: 5,
    });
    // Until the group's own block is counted, nothing is credited; that is over before anybody sees it.
    apply(&mut index, SOURCE, &of_group(1, "sliding_window", Some(5)));
    assert_eq!(index.stats().speculations, 1);
    apply(&mut index, SOURCE, &EventSpec::Cleared);
    assert_eq!(rung(&index, &[0, 1, 2, 3]), Some((4, vec![GPU])));
}

#[test]
fn removal_that_leaves_a_slower_copy_confirms_its_speculation() {
    let mut index = two_sources();
    let whole = [0, 1, 2, 3, 4, 5, 6, 7];
    let on = |medium: &str| {
        EventSpec::Stored(StoredSpec {
            hashes: vec![1, 2],
            tokens: whole.to_vec(),
            block_size: 4,
            medium: Some(medium.to_owned()),
            ..StoredSpec::default()
        })
    };
    apply(&mut index, SOURCE, &on("GPU"));
    apply(&mut index, SOURCE, &on("CPU"));
    let rungs = [&whole[..4], &whole].map(|tokens| {
        let text: Vec<u8> = tokens
            .iter()
            .flat_map(|&token| words()[token as usize].clone())
            .collect();
        chunk_hashes(scope("", ""), &text, SEED).last().unwrap().0
    });
    index.credit_speculative(&Speculation {
        holder: CPU,
        space: Space::Text,
        rungs: &rungs,
        prompt_tokens: 8,
        prompt_bytes: 128,
        expires_ms: 5,
    });
    assert_eq!(rung(&index, &whole[..4]), Some((4, vec![GPU, CPU])));
    apply(&mut index, SOURCE, &removed(2));
    assert_eq!(rung(&index, &whole), Some((8, vec![CPU])));
    assert_eq!(rung(&index, &whole[..4]), Some((4, vec![GPU])), "at once");
}
