//! Huffman codes of literals.

use super::Input;
use super::bits::Backward;
use super::fse::Fse;
use crate::text::encoding::DecodeError;

/// Longest code.
const MAX_BITS: u32 = 11;
/// Most symbols that have a weight of their own; one more follows from the others.
const MAX_WEIGHTS: usize = 255;

/// For each possible run of the longest code's bits: the symbol that it starts with, and its bits.
#[derive(Clone, Debug)]
pub(super) struct Huffman {
    codes: Vec<(u8, u8)>,
    bits: u32,
}

impl Huffman {
    /// Reads a tree's description.
    pub(super) fn read(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let header = usize::try_from(input.number(1)?).unwrap_or_default();
        let weights = if header < 128 {
            coded_weights(input.take(header)?)?
        } else {
            let count = header - 127;
            let packed = input.take(count.div_ceil(2))?;
            let halves = packed.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
            halves.take(count).collect()
        };
        Self::from_weights(weights)
    }

    /// A symbol of weight `w` has a code of `bits + 1 - w` bits; without weight it has none.
    fn from_weights(mut weights: Vec<u8>) -> Result<Self, DecodeError> {
        let mut sum = 0_u32;
        for &weight in &weights {
            if u32::from(weight) > MAX_BITS {
                return Err(DecodeError::Corrupt);
            }
            sum += 1 << weight >> 1;
        }
        let bits = sum.checked_ilog2().ok_or(DecodeError::Corrupt)? + 1;
        // The last symbol takes what the others leave, which is one power of two.
        let left = (1 << bits) - sum;
        if bits > MAX_BITS || !left.is_power_of_two() {
            return Err(DecodeError::Corrupt);
        }
        weights.push(u8::try_from(left.ilog2() + 1).map_err(|_| DecodeError::Corrupt)?);
        let mut codes = Vec::with_capacity(1 << bits);
        // Longest codes first, and in the order of symbols among equals.
        for weight in 1..=bits {
            let span = 1_usize << (weight - 1);
            let length = u8::try_from(bits + 1 - weight).map_err(|_| DecodeError::Corrupt)?;
            for (symbol, _) in (0..=u8::MAX)
                .zip(&weights)
                .filter(|(_, other)| u32::from(**other) == weight)
            {
                codes.extend(core::iter::repeat_n((symbol, length), span));
            }
        }
        if codes.len() != 1 << bits {
            return Err(DecodeError::Corrupt);
        }
        Ok(Self { codes, bits })
    }

    /// Decodes `count` literals, which must be the whole of `bytes`.
    pub(super) fn decode(
        &self,
        bytes: &[u8],
        count: usize,
        literals: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let mut bits = Backward::new(bytes)?;
        let mask = self.codes.len() - 1;
        let mut window = usize::try_from(bits.read(self.bits)).unwrap_or_default();
        for _ in 0..count {
            let &(symbol, length) = self.codes.get(window & mask).ok_or(DecodeError::Corrupt)?;
            literals.push(symbol);
            let more = usize::try_from(bits.read(u32::from(length))).unwrap_or_default();
            window = window << length | more;
        }
        // All bits are taken, and the window is empty.
        if bits.left() == -i64::from(self.bits) {
            Ok(())
        } else {
            Err(DecodeError::Corrupt)
        }
    }
}

/// Weights behind an FSE table: two states take turns until the bits are used up.
fn coded_weights(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let (table, used) = Fse::read(bytes, 6, MAX_WEIGHTS + 1)?;
    let mut bits = Backward::new(bytes.get(used..).unwrap_or_default())?;
    let mut places = [table.start(&mut bits), table.start(&mut bits)];
    if bits.left() < 0 {
        return Err(DecodeError::Corrupt);
    }
    let mut weights = Vec::with_capacity(MAX_WEIGHTS);
    while weights.len() < MAX_WEIGHTS {
        let [place, other] = places;
        weights.push(table.symbol(place));
        let next = table.next(place, &mut bits);
        if bits.left() < 0 {
            weights.push(table.symbol(other));
            break;
        }
        places = [other, next];
    }
    if bits.left() >= 0 || weights.len() > MAX_WEIGHTS {
        return Err(DecodeError::Corrupt);
    }
    Ok(weights)
}
