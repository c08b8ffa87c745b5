//! Finite state entropy: states that each stand for a symbol and say how many bits lead to the next state.

use super::bits::{Backward, Forward};
use crate::text::encoding::DecodeError;

/// What a state stands for, and where it leads.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    symbol: u8,
    bits: u8,
    base: u16,
}

/// States of one alphabet.
#[derive(Clone, Debug)]
pub(super) struct Fse {
    states: Vec<State>,
    accuracy: u32,
}

/// A place in a table; which table that is, the caller knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(usize);

impl Fse {
    /// A table that knows one symbol.
    pub(super) fn single(symbol: u8) -> Self {
        Self {
            states: vec![State {
                symbol,
                ..State::default()
            }],
            accuracy: 0,
        }
    }

    /// Reads a table's description; gives the bytes it took. At most `symbols` have a share of the states.
    pub(super) fn read(
        bytes: &[u8],
        max_accuracy: u32,
        symbols: usize,
    ) -> Result<(Self, usize), DecodeError> {
        let mut bits = Forward::new(bytes);
        let accuracy = 5 + u32::try_from(bits.read(4)?).unwrap_or_default();
        if accuracy > max_accuracy {
            return Err(DecodeError::Corrupt);
        }
        let mut shares: Vec<i16> = Vec::with_capacity(symbols);
        let mut left = 1_i32 << accuracy;
        while left > 0 {
            let share = read_share(&mut bits, left)?;
            left -= i32::from(share.abs());
            shares.push(share);
            if share == 0 {
                loop {
                    let zeros = bits.read(2)?;
                    shares.extend((0..zeros).map(|_| 0));
                    if zeros < 3 || shares.len() > symbols {
                        break;
                    }
                }
            }
            if shares.len() > symbols {
                return Err(DecodeError::Corrupt);
            }
        }
        if left < 0 {
            return Err(DecodeError::Corrupt);
        }
        Ok((Self::from_shares(&shares, accuracy)?, bits.used_bytes()))
    }

    /// Spreads the symbols over the states by their shares; -1 is a share of less than one state.
    pub(super) fn from_shares(shares: &[i16], accuracy: u32) -> Result<Self, DecodeError> {
        let size = 1_usize << accuracy;
        let mut states = vec![State::default(); size];
        let symbols = || (0..=u8::MAX).zip(shares.iter().copied());
        let mut rare = size;
        for (symbol, _) in symbols().filter(|(_, share)| *share < 0) {
            rare = rare.checked_sub(1).ok_or(DecodeError::Corrupt)?;
            states.get_mut(rare).ok_or(DecodeError::Corrupt)?.symbol = symbol;
        }
        let step = (size >> 1) + (size >> 3) + 3;
        let mut at = 0;
        for (symbol, share) in symbols() {
            for _ in 0..share.max(0) {
                states.get_mut(at).ok_or(DecodeError::Corrupt)?.symbol = symbol;
                at = (at + step) & (size - 1);
                while at >= rare && rare > 0 {
                    at = (at + step) & (size - 1);
                }
            }
        }
        if at != 0 {
            return Err(DecodeError::Corrupt);
        }
        // How often each symbol has been met: its states lead to neighbouring ranges, the first ones with more bits.
        let mut met: Vec<u32> = shares
            .iter()
            .map(|share| u32::from(share.unsigned_abs()))
            .collect();
        for state in &mut states {
            let next = met
                .get_mut(usize::from(state.symbol))
                .ok_or(DecodeError::Corrupt)?;
            let bits = next
                .checked_ilog2()
                .and_then(|log| accuracy.checked_sub(log))
                .ok_or(DecodeError::Corrupt)?;
            let base = (*next << bits)
                .checked_sub(1 << accuracy)
                .ok_or(DecodeError::Corrupt)?;
            *next += 1;
            state.bits = u8::try_from(bits).map_err(|_| DecodeError::Corrupt)?;
            state.base = u16::try_from(base).map_err(|_| DecodeError::Corrupt)?;
        }
        Ok(Self { states, accuracy })
    }

    fn state(&self, place: Place) -> State {
        // Bases and bits never lead out of the table.
        self.states.get(place.0).copied().unwrap_or_default()
    }

    pub(super) fn start(&self, bits: &mut Backward<'_>) -> Place {
        Place(usize::try_from(bits.read(self.accuracy)).unwrap_or_default())
    }

    pub(super) fn symbol(&self, place: Place) -> u8 {
        self.state(place).symbol
    }

    pub(super) fn next(&self, place: Place, bits: &mut Backward<'_>) -> Place {
        let state = self.state(place);
        let offset = bits.read(u32::from(state.bits));
        Place(usize::from(state.base) + usize::try_from(offset).unwrap_or_default())
    }
}

/// Reads one share. It is coded with as few bits as the `left` states allow, one fewer for small values.
fn read_share(bits: &mut Forward<'_>, left: i32) -> Result<i16, DecodeError> {
    let most = left.unsigned_abs() + 1;
    let width = most.ilog2() + 1;
    let value = u32::try_from(bits.peek(width)).unwrap_or_default();
    let low_mask = (1 << (width - 1)) - 1;
    let threshold = (1 << width) - 1 - most;
    let low = value & low_mask;
    let value = if low < threshold {
        bits.skip(width - 1)?;
        low
    } else {
        bits.skip(width)?;
        if value > low_mask {
            value - threshold
        } else {
            value
        }
    };
    i16::try_from(i64::from(value) - 1).map_err(|_| DecodeError::Corrupt)
}
