//! The demo's traffic: groups that share a long system prompt, each with conversations of several turns.
//!
//! ```text
//!  group 0: system prompt (long) ──┬─ conversation 0: turn 0, turn 1, turn 2, ...   each turn repeats all before it
//!                                  ├─ conversation 1
//!  group 1: system prompt (long) ──┴─ ...
//! ```
//! Conversations arrive in random order at random times; a turn is sent a while after the answer to the one before. Everything is
//! drawn from one seed, so every policy meets the same traffic.

use std::time::Duration;

use crate::random::Random;

/// Words that the texts are made of.
const WORDS: &str = "the of and to in is that for it as was with be by on not he his but at are this have from or had an they \
    which one you were all her she there would their we him been has when who will no more if out so up said what its about \
    than into them can only other time new some could these two may first then do any like my now over such our man me even \
    most made after also well many must before through years where much your way down should because long each just state \
    people those good world still between life being under never day same another know while last might us great old year off";

/// `count` words of prose.
fn words(random: &mut Random, count: usize) -> String {
    let words: Vec<&str> = WORDS.split_ascii_whitespace().collect();
    let mut text = String::with_capacity(count * 6);
    for i in 0..count {
        if i > 0 {
            text.push_str(if i % 12 == 0 { ". " } else { " " });
        }
        text.push_str(
            words
                .get(random.below(words.len()))
                .copied()
                .unwrap_or_default(),
        );
    }
    text
}

/// Size and pace of the traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// System prompts.
    pub groups: usize,
    /// Words of a system prompt.
    pub system_words: usize,
    /// Conversations of each group.
    pub conversations: usize,
    /// Requests of each conversation.
    pub turns: usize,
    /// Words of a user's turn.
    pub user_words: usize,
    /// Tokens of an answer.
    pub answer_tokens: u32,
    /// Conversations begin within this time.
    pub span: Duration,
    /// Mean pause between an answer and the next turn.
    pub pause: Duration,
}

impl Shape {
    /// Requests in all.
    pub fn requests(&self) -> usize {
        self.groups * self.conversations * self.turns
    }
}

/// One conversation: what the user says and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// Index of its group.
    pub group: usize,
    /// System prompt, the same for the whole group.
    pub system: String,
    /// When its first turn is sent, from the start of the run.
    pub start: Duration,
    /// Each turn's text and the pause before it (none before the first).
    pub turns: Vec<(Duration, String)>,
}

/// Draws the traffic, ordered by start.
pub fn conversations(shape: &Shape, seed: u64) -> Vec<Conversation> {
    let mut random = Random::new(seed);
    let systems: Vec<String> = (0..shape.groups)
        .map(|group| {
            let text = words(&mut random, shape.system_words);
            format!("You are assistant number {group} of the help desk. {text}.")
        })
        .collect();
    let mut all = Vec::with_capacity(shape.groups * shape.conversations);
    for (group, system) in systems.iter().enumerate() {
        for _ in 0..shape.conversations {
            let start = shape.span.mul_f64(random.unit());
            let turns = (0..shape.turns)
                .map(|turn| {
                    let pause = if turn == 0 {
                        Duration::ZERO
                    } else {
                        random.exponential(shape.pause)
                    };
                    (pause, format!("{}?", words(&mut random, shape.user_words)))
                })
                .collect();
            all.push(Conversation {
                group,
                system: system.clone(),
                start,
                turns,
            });
        }
    }
    all.sort_by_key(|conversation| conversation.start);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        groups: 3,
        system_words: 40,
        conversations: 4,
        turns: 5,
        user_words: 6,
        answer_tokens: 8,
        span: Duration::from_secs(9),
        pause: Duration::from_millis(100),
    };

    #[test]
    fn the_seed_decides_everything() {
        assert_eq!(conversations(&SHAPE, 1), conversations(&SHAPE, 1));
        assert_ne!(conversations(&SHAPE, 1), conversations(&SHAPE, 2));
    }

    #[test]
    fn groups_share_their_system_prompt_and_no_other() {
        let all = conversations(&SHAPE, 7);
        assert_eq!(
            all.iter().map(|c| c.turns.len()).sum::<usize>(),
            SHAPE.requests()
        );
        for a in &all {
            for b in &all {
                assert_eq!(a.group == b.group, a.system == b.system);
            }
        }
    }

    #[test]
    fn starts_are_ordered_and_within_the_span() {
        let all = conversations(&SHAPE, 7);
        assert!(all.is_sorted_by_key(|c| c.start));
        assert!(all.iter().all(|c| c.start <= SHAPE.span));
    }

    #[test]
    fn exponential_pauses_have_the_asked_mean() {
        let mut random = Random::new(3);
        let mean = Duration::from_millis(100);
        let sum: Duration = (0..10_000).map(|_| random.exponential(mean)).sum();
        let measured = sum / 10_000;
        assert!((95..105).contains(&measured.as_millis()), "{measured:?}");
    }
}
