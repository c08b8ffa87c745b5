//! Sequences of a block: what to copy from the literals, and what to repeat.

use super::bits::Backward;
use super::fse::{Fse, Place};
use super::{Frame, Input, MAX_BLOCK_BYTES};
use crate::text::encoding::DecodeError;
use crate::text::encoding::output::Output;

/// Codes of one of a sequence's three numbers.
struct Kind {
    max_accuracy: u32,
    symbols: usize,
    default_accuracy: u32,
    default_shares: &'static [i16],
}

const LITERALS: Kind = Kind {
    max_accuracy: 9,
    symbols: 36,
    default_accuracy: 6,
    default_shares: &[
        4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1,
        1, 1, -1, -1, -1, -1,
    ],
};
const DISTANCES: Kind = Kind {
    max_accuracy: 8,
    symbols: 32,
    default_accuracy: 5,
    default_shares: &[
        1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1,
    ],
};
const MATCHES: Kind = Kind {
    max_accuracy: 9,
    symbols: 53,
    default_accuracy: 6,
    default_shares: &[
        1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
    ],
};

/// Least number and further bits of literal length codes from 16 on; below that the code is the number.
const LITERAL_LENGTHS: [(u64, u32); 20] = [
    (16, 1),
    (18, 1),
    (20, 1),
    (22, 1),
    (24, 2),
    (28, 2),
    (32, 3),
    (40, 3),
    (48, 4),
    (64, 6),
    (128, 7),
    (256, 8),
    (512, 9),
    (1024, 10),
    (2048, 11),
    (4096, 12),
    (8192, 13),
    (16384, 14),
    (32768, 15),
    (65536, 16),
];

/// The same for match length codes from 32 on; below that the number is three more than the code.
const MATCH_LENGTHS: [(u64, u32); 21] = [
    (35, 1),
    (37, 1),
    (39, 1),
    (41, 1),
    (43, 2),
    (47, 2),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 5),
    (131, 7),
    (259, 8),
    (515, 9),
    (1027, 10),
    (2051, 11),
    (4099, 12),
    (8195, 13),
    (16387, 14),
    (32771, 15),
    (65539, 16),
];

/// Tables of the block before.
#[derive(Debug, Default)]
pub(super) struct Tables {
    literals: Option<Fse>,
    distances: Option<Fse>,
    matches: Option<Fse>,
}

/// Reads the sequences section and does what it says.
pub(super) fn run(
    section: &[u8],
    literals: &[u8],
    output: &mut Output,
    frame: &mut Frame,
) -> Result<(), DecodeError> {
    let mut input = Input(section);
    let count = match input.number(1)? {
        0 => return output.extend(literals),
        few @ 1..128 => few,
        255 => input.number(2)? + 0x7f00,
        high => (high - 128) << 8 | input.number(1)?,
    };
    if count == 0 {
        return output.extend(literals);
    }
    let modes = input.number(1)?;
    if modes & 3 != 0 {
        return Err(DecodeError::Corrupt);
    }
    let tables = &mut frame.tables;
    for (kind, table, mode) in [
        (&LITERALS, &mut tables.literals, modes >> 6),
        (&DISTANCES, &mut tables.distances, modes >> 4 & 3),
        (&MATCHES, &mut tables.matches, modes >> 2 & 3),
    ] {
        read_table(&mut input, kind, mode, table)?;
    }
    let (Some(lengths), Some(distances), Some(matches)) =
        (&tables.literals, &tables.distances, &tables.matches)
    else {
        return Err(DecodeError::Corrupt);
    };
    let mut reader = Reader::new(input.0, [lengths, distances, matches])?;
    let mut rest = Input(literals);
    let mut made = 0_usize;
    for left in (0..count).rev() {
        let sequence = reader.read(left > 0)?;
        made += sequence.literals + sequence.repeated;
        if made > MAX_BLOCK_BYTES {
            return Err(DecodeError::Corrupt);
        }
        output.extend(rest.take(sequence.literals)?)?;
        let distance = distance(&mut frame.distances, &sequence)?;
        output.repeat(distance, sequence.repeated, frame.start)?;
    }
    if reader.bits.left() != 0 || made + rest.0.len() > MAX_BLOCK_BYTES {
        return Err(DecodeError::Corrupt);
    }
    output.extend(rest.0)
}

fn read_table(
    input: &mut Input<'_>,
    kind: &Kind,
    mode: u64,
    table: &mut Option<Fse>,
) -> Result<(), DecodeError> {
    match mode {
        0 => {
            let shares = kind.default_shares;
            *table = Some(Fse::from_shares(shares, kind.default_accuracy)?);
        }
        1 => {
            let symbol = input.take(1)?.first().copied().unwrap_or_default();
            if usize::from(symbol) >= kind.symbols {
                return Err(DecodeError::Corrupt);
            }
            *table = Some(Fse::single(symbol));
        }
        2 => {
            let (read, used) = Fse::read(input.0, kind.max_accuracy, kind.symbols)?;
            input.take(used)?;
            *table = Some(read);
        }
        _ if table.is_none() => return Err(DecodeError::Corrupt),
        _ => {}
    }
    Ok(())
}

struct Sequence {
    literals: usize,
    repeated: usize,
    /// A distance plus three, or one of the last distances.
    distance: u64,
}

/// Reads sequences off three tables that share one string of bits.
struct Reader<'a> {
    bits: Backward<'a>,
    /// Tables for literal lengths, distances and match lengths.
    tables: [&'a Fse; 3],
    places: [Place; 3],
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], tables: [&'a Fse; 3]) -> Result<Self, DecodeError> {
        let mut bits = Backward::new(bytes)?;
        let places = tables.map(|table| table.start(&mut bits));
        Ok(Self {
            bits,
            tables,
            places,
        })
    }

    fn read(&mut self, more_follow: bool) -> Result<Sequence, DecodeError> {
        let [lengths, distances, matches] = self.tables;
        let [length, distance, repeated] = self.places;
        let code = u32::from(distances.symbol(distance));
        let bits = &mut self.bits;
        let distance_value = (1 << code) + bits.read(code);
        let repeated_value = number(matches.symbol(repeated), 32, 3, &MATCH_LENGTHS, bits)?;
        let length_value = number(lengths.symbol(length), 16, 0, &LITERAL_LENGTHS, bits)?;
        if more_follow {
            let length = lengths.next(length, bits);
            let repeated = matches.next(repeated, bits);
            let distance = distances.next(distance, bits);
            self.places = [length, distance, repeated];
        }
        if bits.left() < 0 {
            return Err(DecodeError::Corrupt);
        }
        Ok(Sequence {
            literals: length_value,
            repeated: repeated_value,
            distance: distance_value,
        })
    }
}

/// The number behind a code: the code and `more` below `first`, else by the table.
fn number(
    code: u8,
    first: u8,
    more: usize,
    table: &[(u64, u32)],
    bits: &mut Backward<'_>,
) -> Result<usize, DecodeError> {
    let Some(place) = code.checked_sub(first) else {
        return Ok(usize::from(code) + more);
    };
    let &(least, width) = table.get(usize::from(place)).ok_or(DecodeError::Corrupt)?;
    usize::try_from(least + bits.read(width)).map_err(|_| DecodeError::Corrupt)
}

/// The distance that a sequence means, which becomes the last one.
fn distance(last: &mut [u64; 3], sequence: &Sequence) -> Result<usize, DecodeError> {
    let [first, second, third] = *last;
    // Without literals the last distance would only have made the match before longer.
    let choice = match sequence.distance {
        chosen @ 1..=3 => chosen + u64::from(sequence.literals == 0),
        _ => 0,
    };
    let distance = match choice {
        0 => sequence.distance - 3,
        1 => first,
        2 => second,
        3 => third,
        _ => first - 1,
    };
    *last = match choice {
        1 => [first, second, third],
        2 => [second, first, third],
        _ => [distance, first, second],
    };
    usize::try_from(distance).map_err(|_| DecodeError::Corrupt)
}
