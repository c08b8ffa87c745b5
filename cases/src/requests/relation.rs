//! Twins: whether two requests' prompts relate as the case says.

use prefixway_core::hash::CHUNK_BYTES;

use super::file::Relation;
use super::seen::{Identity, Prompts};
use crate::error::CaseError;

/// Checks a relation. Load alone satisfies each of them: nothing is claimed then.
///
/// `shared` is the text that both prompts begin with by their leading messages, where that can be told.
pub(crate) fn relate(
    relation: Relation,
    ours: &Identity,
    theirs: &Identity,
    shared: Option<&[u8]>,
) -> Result<(), CaseError> {
    let (
        Identity::Known { rungs, prompts },
        Identity::Known {
            rungs: other,
            prompts: twins,
        },
    ) = (ours, theirs)
    else {
        return Ok(());
    };
    let (Some(prompts), Some(twins)) = (prompts, twins) else {
        // Where prompts can't be seen, their hashes are held against those of a level that sees both.
        let is_so = relation != Relation::SamePrefix || rungs == other;
        return holds(is_so, relation, || format!("{rungs:x?} and {other:x?}"));
    };
    let is_so = match relation {
        Relation::SamePrefix => prompts == twins && rungs == other,
        Relation::DifferentPrefix => are_different(prompts, twins, rungs, other),
        Relation::CommonPrefixKept => begins_alike(prompts, twins, rungs, other, shared),
    };
    holds(is_so, relation, || shown(prompts, twins))
}

fn holds(is_so: bool, relation: Relation, got: impl FnOnce() -> String) -> Result<(), CaseError> {
    if is_so {
        return Ok(());
    }
    Err(CaseError::mismatch(
        "twins",
        &format!("{relation:?}"),
        &got(),
    ))
}

fn shown(prompts: &Prompts, twins: &Prompts) -> String {
    let of = |prompts: &Prompts| {
        let texts = prompts
            .texts
            .iter()
            .map(|text| String::from_utf8_lossy(&text.bytes).into_owned());
        format!("{:?} {:?}", prompts.scope, texts.collect::<Vec<_>>())
    };
    format!("{} and {}", of(prompts), of(twins))
}

/// Bytes that the first prompts share from their start on.
fn common_bytes(prompts: &Prompts, twins: &Prompts) -> usize {
    match (prompts.texts.first(), twins.texts.first()) {
        (Some(ours), Some(theirs)) => {
            let pairs = ours.bytes.iter().zip(&theirs.bytes);
            pairs.take_while(|(a, b)| a == b).count()
        }
        _ => 0,
    }
}

fn common_rungs(rungs: &[u64], other: &[u64]) -> usize {
    rungs.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// Other prompts, and no rung in common past the last chunk that both have.
fn are_different(prompts: &Prompts, twins: &Prompts, rungs: &[u64], other: &[u64]) -> bool {
    if prompts.scope != twins.scope {
        return common_rungs(rungs, other) == 0;
    }
    // A media item that isn't looked at ends the text before it: such prompts may be equal as far as they go.
    let end_at_media = |prompts: &Prompts| prompts.texts.iter().any(|text| text.is_truncated);
    let differ = prompts != twins || (end_at_media(prompts) && end_at_media(twins));
    // The short prompts of cases have a rung at every chunk.
    differ && common_rungs(rungs, other) <= common_bytes(prompts, twins) / CHUNK_BYTES
}

/// In one scope, and with the shared text in both.
fn begins_alike(
    prompts: &Prompts,
    twins: &Prompts,
    rungs: &[u64],
    other: &[u64],
    shared: Option<&[u8]>,
) -> bool {
    let begins = |prompts: &Prompts, shared: &[u8]| {
        let mut texts = prompts.texts.iter();
        texts
            .next()
            .is_some_and(|text| text.bytes.starts_with(shared))
    };
    let common = common_bytes(prompts, twins);
    prompts.scope == twins.scope
        && common > 0
        && shared.is_none_or(|shared| begins(prompts, shared) && begins(twins, shared))
        && common_rungs(rungs, other) >= (common / CHUNK_BYTES).min(rungs.len()).min(other.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::seen::Text;
    use prefixway_core::hash::Space;

    fn known(salt: &str, text: &str, rungs: &[u64], is_truncated: bool) -> Identity {
        Identity::Known {
            rungs: rungs.to_vec(),
            prompts: Some(Prompts {
                scope: ["m".to_owned(), String::new(), salt.to_owned()],
                texts: vec![Text {
                    space: Space::Text,
                    bytes: text.as_bytes().to_vec(),
                    is_truncated,
                }],
            }),
        }
    }

    fn relates(relation: Relation, ours: &Identity, theirs: &Identity) -> bool {
        relate(relation, ours, theirs, Some(b"a")).is_ok()
    }

    #[test]
    fn relations_hold_or_do_not() {
        let (a64, b64) = ("a".repeat(64), "a".repeat(63) + "b");
        let one = known("", &a64, &[1], false);
        let other = known("", &b64, &[2], false);
        let salted = known("s", &a64, &[3], false);
        assert!(relates(Relation::SamePrefix, &one, &one));
        assert!(!relates(Relation::SamePrefix, &one, &other));
        assert!(!relates(Relation::SamePrefix, &one, &salted));
        assert!(relates(Relation::DifferentPrefix, &one, &other));
        assert!(relates(Relation::DifferentPrefix, &one, &salted));
        assert!(!relates(Relation::DifferentPrefix, &one, &one));
        // A hash that does not see the difference.
        let blind = known("", &b64, &[1], false);
        assert!(!relates(Relation::DifferentPrefix, &one, &blind));
        let leaky = known("s", &a64, &[1], false);
        assert!(!relates(Relation::DifferentPrefix, &one, &leaky));
        assert!(relates(Relation::CommonPrefixKept, &one, &other));
        assert!(!relates(
            Relation::CommonPrefixKept,
            &one,
            &known("", "b", &[], false)
        ));
        assert!(!relates(Relation::CommonPrefixKept, &one, &salted));
    }

    #[test]
    fn media_ends_a_prompt_and_load_alone_claims_nothing() {
        let image = known("", "look: ", &[], true);
        assert!(relates(Relation::DifferentPrefix, &image, &image));
        for relation in [
            Relation::SamePrefix,
            Relation::DifferentPrefix,
            Relation::CommonPrefixKept,
        ] {
            assert!(relates(relation, &Identity::None, &image));
        }
    }
}
