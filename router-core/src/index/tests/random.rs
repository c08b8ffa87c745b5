//! Random histories through the index and the oracle.

use super::*;

/// A block that some source may store, by content.
#[derive(Clone, Debug)]
struct Known {
    parent: Option<usize>,
    scope: usize,
    tokens: Vec<u32>,
}

const SCOPES: [(&str, &str); 4] = [("", ""), ("lora-a", ""), ("", "salt"), ("lora-a", "salt")];

#[derive(Clone, Debug)]
enum Op {
    /// Store new blocks below a known one (or at the start of a prompt).
    Grow {
        source: u32,
        below: usize,
        scope: usize,
        tokens: Vec<u32>,
        size: usize,
        tier: usize,
        group: u32,
    },
    /// Store known blocks again, by content or by hash only; `whole` starts at the start of the prompt.
    Again {
        source: u32,
        block: usize,
        tier: usize,
        group: u32,
        form: usize,
    },
    Remove {
        source: u32,
        block: usize,
        tier: usize,
        group: u32,
    },
    Clear {
        source: u32,
    },
    Reset {
        source: u32,
    },
    Speculate {
        source: u32,
        block: usize,
        tier: usize,
        extra: usize,
    },
    Cancel {
        which: usize,
    },
    Take,
}

fn op() -> impl Strategy<Value = Op> {
    let source = 0u32..3;
    let tier = prop_oneof![4 => Just(0usize), 1 => Just(1usize), 1 => Just(2usize)];
    let group = 0u32..2;
    let tokens = prop::collection::vec(0u32..10, 1..7);
    prop_oneof![
        6 => (source.clone(), any::<usize>(), 0usize..4, tokens, 1usize..4, tier.clone(), group.clone()).prop_map(
            |(source, below, scope, tokens, size, tier, group)| Op::Grow { source, below, scope, tokens, size, tier, group }
        ),
        6 => (source.clone(), any::<usize>(), tier.clone(), group.clone(), 0usize..4)
            .prop_map(|(source, block, tier, group, form)| Op::Again { source, block, tier, group, form }),
        6 => (source.clone(), any::<usize>(), tier.clone(), group)
            .prop_map(|(source, block, tier, group)| Op::Remove { source, block, tier, group }),
        1 => source.clone().prop_map(|source| Op::Clear { source }),
        1 => source.clone().prop_map(|source| Op::Reset { source }),
        1 => (source, any::<usize>(), tier, 0usize..3)
            .prop_map(|(source, block, tier, extra)| Op::Speculate { source, block, tier, extra }),
        1 => any::<usize>().prop_map(|which| Op::Cancel { which }),
        2 => Just(Op::Take),
    ]
}

/// Tokens that spell the same text in several ways, nothing at all, or a lot.
fn vocabulary() -> Vec<Vec<u8>> {
    let x = |len: usize| vec![b'x'; len];
    vec![
        x(0),
        x(7),
        x(14),
        x(21),
        x(32),
        x(50),
        b"y".repeat(9),
        b"z".repeat(64),
        x(700),
        x(3000),
    ]
}

struct History {
    index: Index,
    oracle: Oracle,
    table: Table,
    known: Vec<Known>,
    incarnations: u32,
    speculations: Vec<SpeculationId>,
    /// Another index that gets the same events.
    beside: Option<Index>,
}

impl History {
    fn new() -> Self {
        let mut history = Self {
            index: index(vocabulary()).with_token_space(),
            oracle: Oracle {
                seed: SEED,
                vocabulary: vocabulary(),
                token_scopes: SCOPES
                    .iter()
                    .map(|(adapter, salt)| {
                        (scope(adapter, salt), scope_in(Space::Token, adapter, salt))
                    })
                    .collect(),
                sources: BTreeMap::new(),
                speculations: BTreeMap::new(),
            },
            table: Table::default(),
            known: Vec::new(),
            incarnations: 0,
            speculations: Vec::new(),
            beside: None,
        };
        for source in 0..3 {
            let holders = history.next_holders();
            history.index.add_source(SourceId(source), MODEL, holders);
            history
                .oracle
                .sources
                .insert(source, OracleSource::new(holders));
        }
        history
    }

    fn next_holders(&mut self) -> [HolderId; 3] {
        self.incarnations += 1;
        holders(self.incarnations)
    }

    /// A source's own label of a block.
    fn label(source: u32, block: usize) -> u64 {
        (block as u64 + 1).wrapping_mul(if source == 0 {
            1
        } else {
            0x0123_4567_89ab_cdef
        })
    }

    fn grow(&mut self, below: usize, scope: usize, tokens: &[u32], size: usize) -> Vec<usize> {
        let mut parent = (!below.is_multiple_of(3)).then(|| below / 3 % self.known.len().max(1));
        if self.known.is_empty() {
            parent = None;
        }
        let scope = parent.map_or(scope, |parent| self.known[parent].scope);
        tokens
            .chunks_exact(size)
            .map(|tokens| {
                let block = Known {
                    parent,
                    scope,
                    tokens: tokens.to_vec(),
                };
                let same = |known: &Known| {
                    (known.parent, known.scope, &known.tokens)
                        == (block.parent, block.scope, &block.tokens)
                };
                let at = self.known.iter().position(same).unwrap_or_else(|| {
                    self.known.push(block);
                    self.known.len() - 1
                });
                parent = Some(at);
                at
            })
            .collect()
    }

    fn path(&self, block: usize) -> Vec<usize> {
        let mut path = self.known[block]
            .parent
            .map_or_else(Vec::new, |parent| self.path(parent));
        path.push(block);
        path
    }

    fn text(&self, block: usize) -> (u32, Vec<u8>) {
        let vocabulary = vocabulary();
        let tokens: Vec<u32> = self
            .path(block)
            .iter()
            .flat_map(|&block| self.known[block].tokens.clone())
            .collect();
        let text = tokens
            .iter()
            .flat_map(|&token| vocabulary[token as usize].clone())
            .collect();
        (u32::try_from(tokens.len()).unwrap(), text)
    }

    fn store(&mut self, source: u32, blocks: &[usize], tier: usize, group: u32, by_hash: bool) {
        let Some(&first) = blocks.first() else {
            return;
        };
        let head = self.known[first].clone();
        let size = head.tokens.len();
        if blocks
            .iter()
            .any(|&block| self.known[block].tokens.len() != size)
        {
            return;
        }
        let (adapter, salt) = SCOPES[head.scope];
        let tokens: Vec<u32> = blocks
            .iter()
            .flat_map(|&block| self.known[block].tokens.clone())
            .collect();
        let group = match (source, group) {
            (2, 0) => Some((0, "full_attention".to_owned(), None)),
            (2, _) => Some((1, "sliding_window".to_owned(), Some(5))),
            _ => None,
        };
        let spec = StoredSpec {
            hashes: blocks
                .iter()
                .map(|&block| Self::label(source, block))
                .collect(),
            parent: if by_hash {
                None
            } else {
                head.parent.map(|parent| Self::label(source, parent))
            },
            tokens: if by_hash { Vec::new() } else { tokens },
            block_size: if by_hash {
                0
            } else {
                u32::try_from(size).unwrap()
            },
            medium: Some(["GPU", "cpu", "STORAGE"][tier].to_owned()),
            lora_name: (!adapter.is_empty()).then(|| adapter.to_owned()),
            salt: (!salt.is_empty()).then(|| salt.to_owned()),
            group,
        };
        self.send(source, &EventSpec::Stored(spec), scope(adapter, salt));
    }

    fn send(&mut self, source: u32, event: &EventSpec, scope: ChunkHash) {
        let outcome = self
            .index
            .apply(SourceId(source), &batch(std::slice::from_ref(event)));
        assert_eq!(outcome.info.decode_errors(), 0);
        if let Some(beside) = &mut self.beside {
            beside.apply(SourceId(source), &batch(std::slice::from_ref(event)));
        }
        let waiting: Vec<(SpeculationId, OracleSpeculation)> = self
            .oracle
            .speculations
            .iter()
            .map(|(&id, speculation)| (id, speculation.clone()))
            .collect();
        let covered = |oracle: &Oracle, speculation: &OracleSpeculation| {
            let deepest = speculation.rungs.last().map_or(0, |rung| rung.0);
            oracle.covering(deepest).contains(&speculation.holder)
        };
        let before: Vec<bool> = waiting
            .iter()
            .map(|(_, speculation)| covered(&self.oracle, speculation))
            .collect();
        self.oracle
            .sources
            .get_mut(&source)
            .unwrap()
            .apply(event, scope);
        for ((id, speculation), before) in waiting.into_iter().zip(before) {
            if !before && covered(&self.oracle, &speculation) {
                self.oracle.speculations.remove(&id);
            }
        }
    }

    fn run(&mut self, op: Op) {
        let pick = |block: usize, known: &[Known]| (!known.is_empty()).then(|| block % known.len());
        match op {
            Op::Grow {
                source,
                below,
                scope,
                tokens,
                size,
                tier,
                group,
            } => {
                let blocks = self.grow(below, scope, &tokens, size);
                self.store(source, &blocks, tier, group, false);
            }
            Op::Again {
                source,
                block,
                tier,
                group,
                form,
            } => {
                if let Some(block) = pick(block, &self.known) {
                    let path = self.path(block);
                    match form {
                        0 => self.store(source, &path, tier, group, false),
                        1 => self.store(source, &[block], tier, group, true),
                        _ => self.store(source, &[block], tier, group, false),
                    }
                }
            }
            Op::Remove {
                source,
                block,
                tier,
                group,
            } => {
                if let Some(block) = pick(block, &self.known) {
                    let event = EventSpec::Removed {
                        hashes: vec![Self::label(source, block)],
                        medium: Some(["GPU", "cpu", "STORAGE"][tier].to_owned()),
                        group: (source == 2).then_some(group),
                    };
                    self.send(source, &event, ChunkHash(0));
                }
            }
            Op::Clear { source } => self.send(source, &EventSpec::Cleared, ChunkHash(0)),
            Op::Reset { source } => {
                let fresh = self.next_holders();
                self.index.reset_source(SourceId(source), fresh);
                let old = self
                    .oracle
                    .sources
                    .insert(source, OracleSource::new(fresh))
                    .unwrap();
                self.oracle
                    .speculations
                    .retain(|_, speculation| !old.holders.contains(&speculation.holder));
            }
            Op::Speculate {
                source,
                block,
                tier,
                extra,
            } => {
                let Some(block) = pick(block, &self.known) else {
                    return;
                };
                let (prompt_tokens, mut text) = self.text(block);
                text.extend(vec![b'w'; extra * 64]);
                let scope = scope(
                    SCOPES[self.known[block].scope].0,
                    SCOPES[self.known[block].scope].1,
                );
                let holder = self.oracle.sources[&source].holders[tier];
                let rungs: Vec<(u64, u32)> = (1u32..)
                    .zip(crate::hash::chunk_hashes(scope, &text, SEED))
                    .filter(|&(depth, _)| crate::rung::is_rung(Space::Text, depth))
                    .map(|(depth, hash)| {
                        let tokens =
                            u64::from(prompt_tokens) * u64::from(depth) * 64 / text.len() as u64;
                        (hash.0, u32::try_from(tokens).unwrap())
                    })
                    .collect();
                let id = self.index.credit_speculative(&Speculation {
                    holder,
                    space: Space::Text,
                    rungs: &rungs.iter().map(|rung| rung.0).collect::<Vec<_>>(),
                    prompt_tokens,
                    prompt_bytes: text.len() as u64,
                    expires_ms: 100,
                });
                self.speculations.push(id);
                self.oracle
                    .speculations
                    .insert(id, OracleSpeculation { holder, rungs });
            }
            Op::Cancel { which } => {
                if let Some(&id) = self
                    .speculations
                    .get(which % self.speculations.len().max(1))
                {
                    self.index.cancel(id);
                    self.oracle.speculations.remove(&id);
                }
            }
            Op::Take => {
                self.table.take(&mut self.index);
                assert_eq!(self.table.0, self.oracle.published());
            }
        }
    }
}

/// Histories of about 35 operations each. `ORACLE_OPS` says how many operations there are to be in all.
fn cases() -> u32 {
    const OPERATIONS_EACH: u32 = 35;
    std::env::var("ORACLE_OPS")
        .ok()
        .and_then(|operations| operations.parse::<u32>().ok())
        .map_or(300, |operations| operations.div_ceil(OPERATIONS_EACH))
}

/// A rung of `table` that says what `whole` doesn't, whatever the tier: where the fastest copy was dropped, a slower one counts.
fn beyond<'t>(
    table: &'t BTreeMap<u64, RungChange>,
    whole: &'t BTreeMap<u64, RungChange>,
) -> Option<(&'t RungChange, Option<&'t RungChange>)> {
    let incarnations = |rung: &RungChange| -> Vec<u32> {
        rung.holders.iter().map(|holder| holder.0 / 3).collect()
    };
    let pairs = table.values().map(|rung| (rung, whole.get(&rung.hash)));
    pairs.into_iter().find(|(rung, other)| {
        other.is_none_or(|other| {
            let known = incarnations(other);
            rung.token_depth > other.token_depth
                || incarnations(rung)
                    .iter()
                    .any(|holder| !known.contains(holder))
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn published_rungs_equal_the_oracle_after_every_step(ops in prop::collection::vec(op(), 1..70)) {
        let mut history = History::new();
        for op in ops {
            history.run(op);
            prop_assert_eq!(all(&history.index), history.oracle.published());
        }
        history.run(Op::Take);
        // Nothing is left behind when everything is gone.
        for source in 0..3 {
            history.index.remove_source(SourceId(source));
        }
        history.index.expire(100);
        history.table.take(&mut history.index);
        prop_assert!(history.table.0.is_empty());
        let stats = history.index.stats();
        prop_assert_eq!((stats.blocks, stats.rungs, stats.speculations, stats.bytes), (0, 0, 0, 0));
    }

    #[test]
    fn bounded_index_says_nothing_that_the_whole_one_does_not(
        ops in prop::collection::vec(op(), 1..70),
        max_bytes in 1_000usize..8_000,
    ) {
        let mut history = History::new();
        let bounded = IndexConfig { seed: SEED, max_bytes };
        let mut small = Index::new(bounded).with_token_space();
        small.add_model(MODEL, "m", 1, Some(vocabulary().into_iter().collect()));
        for source in 0..3 {
            small.add_source(SourceId(source), MODEL, holders(source + 1));
        }
        history.beside = Some(small);
        let mut table = Table::default();
        for op in ops {
            // A speculation counts in both, and what a reset does to it has been seen in the other test.
            if matches!(op, Op::Speculate { .. } | Op::Reset { .. }) {
                continue;
            }
            history.run(op);
            let small = history.beside.as_mut().unwrap();
            prop_assert!(small.stats().bytes <= max_bytes || small.stats().blocks == 0);
            let (own, whole) = (all(small), history.oracle.published());
            prop_assert_eq!(beyond(&own, &whole), None);
            table.take(small);
            prop_assert_eq!(&table.0, &all(small));
        }
    }
}
