//! KV cache groups of a source and what they mean for a hit.

/// What a group does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Full attention: its blocks are what is credited.
    Main,
    /// Its blocks never add credit; they limit where a hit may end.
    Limit(u8),
    /// It has no say in prefix hits.
    Ignored,
}

/// Groups told apart; what is beyond can't be judged, so that nothing is credited.
const MAX_LIMITS: usize = 15;
const UNJUDGED: u8 = 15;

#[derive(Clone, Copy, Debug)]
struct Group {
    number: u32,
    role: Role,
}

/// The groups met so far, in the order in which they were met.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    met: Vec<Group>,
    /// Per limiting group, the blocks before a hit's end that it must have.
    windows: Vec<u32>,
    has_unjudged: bool,
}

impl Groups {
    /// Role of a group that was met; an event without a number is about group 0.
    pub(super) fn role(&self, number: Option<u32>) -> Option<Role> {
        let number = number.unwrap_or(0);
        self.met
            .iter()
            .find(|group| group.number == number)
            .map(|group| group.role)
    }

    /// Meets a group; true with a role that limits credit given so far.
    pub(super) fn meet(
        &mut self,
        number: Option<u32>,
        kind: Option<&str>,
        window_tokens: Option<u32>,
        block_size: u32,
    ) -> (Role, bool) {
        if let Some(role) = self.role(number) {
            return (role, false);
        }
        let has_main = self.met.iter().any(|group| group.role == Role::Main);
        let blocks = |tokens: u32| tokens.saturating_sub(1).div_ceil(block_size.max(1)).max(1);
        let role = match (kind, window_tokens) {
            (Some("encoder_only_attention" | "cross_attention"), _) => Role::Ignored,
            (None | Some("full_attention" | "mla_attention" | "sink_full_attention"), _)
                if !has_main =>
            {
                Role::Main
            }
            (Some("sliding_window" | "sliding_window_mla"), Some(tokens)) => {
                self.limit(blocks(tokens))
            }
            (Some("mamba"), _) => self.limit(1),
            // A second full group, or one whose rule is not known: its whole path must be there.
            _ => self.limit(u32::MAX),
        };
        self.met.push(Group {
            number: number.unwrap_or(0),
            role,
        });
        (role, matches!(role, Role::Limit(_)))
    }

    fn limit(&mut self, blocks: u32) -> Role {
        match u8::try_from(self.windows.len()) {
            Ok(slot) if self.windows.len() < MAX_LIMITS => {
                self.windows.push(blocks);
                Role::Limit(slot)
            }
            _ => {
                self.has_unjudged = true;
                Role::Ignored
            }
        }
    }

    /// Whether any group limits credit.
    pub(super) fn has_limits(&self) -> bool {
        !self.windows.is_empty() || self.has_unjudged
    }

    /// Slots of the limiting groups.
    #[expect(clippy::cast_possible_truncation, reason = "at most fifteen")]
    pub(super) fn limit_slots(&self) -> core::ops::Range<u8> {
        0..self.windows.len() as u8
    }

    /// Groups, as bits, that must have the block `depth` blocks before a hit's last one.
    pub(super) fn required(&self, depth: u32) -> u16 {
        let unjudged = u16::from(self.has_unjudged) << UNJUDGED;
        self.windows
            .iter()
            .enumerate()
            .filter(|&(_, &blocks)| blocks > depth)
            .fold(unjudged, |bits, (slot, _)| bits | (1 << slot))
    }

    /// How many blocks, itself included, a change of a limiting group's block can matter for.
    pub(super) fn reach(&self) -> u32 {
        self.windows.iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sliding_group_needs_its_window_before_the_end() {
        let mut groups = Groups::default();
        assert_eq!(
            groups.meet(Some(0), Some("full_attention"), None, 4),
            (Role::Main, false)
        );
        assert_eq!(
            groups.meet(Some(1), Some("sliding_window"), Some(8), 4),
            (Role::Limit(0), true)
        );
        assert_eq!(
            groups.meet(Some(1), Some("sliding_window"), Some(8), 4),
            (Role::Limit(0), false)
        );
        // ceil((8 - 1) / 4) = 2 blocks
        assert_eq!([0, 1, 2].map(|depth| groups.required(depth)), [1, 1, 0]);
        assert_eq!(groups.reach(), 2);
    }

    #[test]
    fn a_group_of_unknown_kind_needs_its_whole_path() {
        let mut groups = Groups::default();
        groups.meet(None, None, None, 16);
        assert_eq!(
            groups.meet(Some(3), Some("new_attention"), None, 16),
            (Role::Limit(0), true)
        );
        assert_eq!(groups.required(1_000_000), 1);
    }

    #[test]
    fn more_groups_than_can_be_judged_credit_nothing() {
        let mut groups = Groups::default();
        groups.meet(Some(0), None, None, 16);
        for number in 1..=16 {
            groups.meet(Some(number), Some("sliding_window"), Some(17), 16);
        }
        assert_eq!(groups.required(5), 1 << 15);
    }
}
