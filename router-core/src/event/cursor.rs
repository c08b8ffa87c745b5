//! A bounded msgpack reader.

/// Why a msgpack value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MsgpackError {
    /// The bytes end inside a value, or a list claims more elements than there are bytes.
    #[error("payload ends inside a value")]
    Truncated,
    /// The value has another type than the field needs.
    #[error("value of an unexpected type, marker {marker:#04x}")]
    Type {
        /// First byte of the value.
        marker: u8,
    },
    /// The integer does not fit the field.
    #[error("integer out of range")]
    Range,
    /// A string is not UTF-8.
    #[error("string is not utf-8")]
    Utf8,
    /// A field that the event can't do without is missing.
    #[error("required field is missing")]
    Missing,
}

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
}

/// Bytes that are looked at together.
const WINDOW: usize = 64;
/// Bytes that an integer is shifted out of.
const WIDE: usize = 8;

/// For each byte the length of the unsigned integer of at most 32 bits that it would begin, with itself; 0 for anything else.
fn marker_lengths(window: &[u8; WINDOW]) -> [u8; WINDOW] {
    window.map(|marker| {
        let is = |value: bool| u8::from(value).wrapping_neg();
        is(marker < 0x80) & 1
            | is(marker == 0xcc) & 2
            | is(marker == 0xcd) & 3
            | is(marker == 0xce) & 5
    })
}

/// Length and value of the integer at `at`, if it is one of those and not too close to the end.
#[inline]
fn int_at(window: &[u8; WINDOW], lengths: &[u8; WINDOW], at: usize) -> Option<(usize, u32)> {
    let wide = window.get(at..)?.first_chunk::<WIDE>()?;
    let length = lengths.get(at).copied().filter(|&length| length > 0)?;
    let wide = u64::from_be_bytes(*wide);
    // After the marker: one, two or four bytes; the marker itself where there are none.
    let drop = u32::from(length > 1) * 8;
    let keep = (u32::from(length) * 8).saturating_sub(drop).max(8);
    #[expect(clippy::cast_possible_truncation, reason = "at most 32 bits are left")]
    let value = (wide << drop >> (64 - keep)) as u32;
    Some((usize::from(length), value))
}

type Read<T> = Result<T, MsgpackError>;

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Bytes not yet read.
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes read since `start`, an earlier copy of this cursor.
    pub(super) fn since(&self, start: Self) -> &'a [u8] {
        let read = start.bytes.len().saturating_sub(self.bytes.len());
        start.bytes.get(..read).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Read<u8> {
        self.bytes.first().copied().ok_or(MsgpackError::Truncated)
    }

    fn wrong_type<T>(&self) -> Read<T> {
        Err(self
            .peek()
            .map_or(MsgpackError::Truncated, |marker| MsgpackError::Type {
                marker,
            }))
    }

    fn take(&mut self, len: usize) -> Read<&'a [u8]> {
        let (head, rest) = self
            .bytes
            .split_at_checked(len)
            .ok_or(MsgpackError::Truncated)?;
        self.bytes = rest;
        Ok(head)
    }

    fn take_array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (head, rest) = self
            .bytes
            .split_first_chunk::<N>()
            .ok_or(MsgpackError::Truncated)?;
        self.bytes = rest;
        Ok(*head)
    }

    /// Length of `N` big-endian bytes after the marker.
    fn length<const N: usize>(&mut self) -> Read<usize> {
        self.take(1)?;
        let mut wide = [0u8; 8];
        let bytes = self.take_array::<N>()?;
        for (to, from) in wide.iter_mut().rev().zip(bytes.iter().rev()) {
            *to = *from;
        }
        usize::try_from(u64::from_be_bytes(wide)).map_err(|_| MsgpackError::Range)
    }

    /// Consumes a nil if there is one.
    pub(super) fn nil(&mut self) -> bool {
        if let [0xc0, rest @ ..] = self.bytes {
            self.bytes = rest;
            true
        } else {
            false
        }
    }

    /// Any integer as 64 bits (two's complement) and whether it is negative.
    fn int(&mut self) -> Read<(u64, bool)> {
        let marker = self.peek()?;
        let signed = |value: i64| (value.cast_unsigned(), value < 0);
        let value = match marker {
            0x00..=0x7f => {
                self.take(1)?;
                (u64::from(marker), false)
            }
            0xe0..=0xff => {
                self.take(1)?;
                signed(i64::from(marker.cast_signed()))
            }
            0xcc..=0xd3 => {
                self.take(1)?;
                match marker {
                    0xcc => (u64::from(u8::from_be_bytes(self.take_array()?)), false),
                    0xcd => (u64::from(u16::from_be_bytes(self.take_array()?)), false),
                    0xce => (u64::from(u32::from_be_bytes(self.take_array()?)), false),
                    0xcf => (u64::from_be_bytes(self.take_array()?), false),
                    0xd0 => signed(i64::from(i8::from_be_bytes(self.take_array()?))),
                    0xd1 => signed(i64::from(i16::from_be_bytes(self.take_array()?))),
                    0xd2 => signed(i64::from(i32::from_be_bytes(self.take_array()?))),
                    _ => signed(i64::from_be_bytes(self.take_array()?)),
                }
            }
            _ => return self.wrong_type(),
        };
        Ok(value)
    }

    /// The 64 bits of any integer.
    pub(super) fn int_bits(&mut self) -> Read<u64> {
        if let [0xcf, a, b, c, d, e, f, g, h, ref rest @ ..] = *self.bytes {
            self.bytes = rest;
            return Ok(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
        }
        self.int().map(|(bits, _)| bits)
    }

    /// An integer that fits in `u32`.
    #[inline]
    pub(super) fn u32(&mut self) -> Read<u32> {
        match *self.bytes {
            [small @ 0..=0x7f, ref rest @ ..] => {
                self.bytes = rest;
                Ok(u32::from(small))
            }
            [0xcd, a, b, ref rest @ ..] => {
                self.bytes = rest;
                Ok(u32::from(u16::from_be_bytes([a, b])))
            }
            [0xce, a, b, c, d, ref rest @ ..] => {
                self.bytes = rest;
                Ok(u32::from_be_bytes([a, b, c, d]))
            }
            _ => match self.int()? {
                (bits, false) => u32::try_from(bits).map_err(|_| MsgpackError::Range),
                (_, true) => Err(MsgpackError::Range),
            },
        }
    }

    /// As many integers that fit in `u32` as there is room for.
    ///
    /// Token ids have one, two, three or five bytes in no order that a branch predictor could learn. So the length that each of the next
    /// bytes would have as a marker is worked out for many at once; going from one integer to the next is then one addition, and the
    /// values are shifted out of eight bytes each beside it.
    pub(super) fn u32s(&mut self, out: &mut [u32]) -> Read<()> {
        let mut done = 0;
        while let (Some(window), true) = (self.bytes.first_chunk::<WINDOW>(), done < out.len()) {
            let lengths = marker_lengths(window);
            let (mut inside, before) = (0, done);
            for slot in out.iter_mut().skip(done) {
                let Some((length, value)) = int_at(window, &lengths, inside) else {
                    break;
                };
                *slot = value;
                inside += length;
                done += 1;
            }
            self.bytes = self.bytes.get(inside..).unwrap_or_default();
            if done == before {
                break;
            }
        }
        for slot in out.iter_mut().skip(done) {
            *slot = self.u32()?;
        }
        Ok(())
    }

    /// An integer that fits in `i64`.
    pub(super) fn i64(&mut self) -> Read<i64> {
        let (bits, negative) = self.int()?;
        let value = bits.cast_signed();
        if negative == (value < 0) {
            Ok(value)
        } else {
            Err(MsgpackError::Range)
        }
    }

    /// A float, or an integer as a float.
    pub(super) fn f64(&mut self) -> Read<f64> {
        match self.peek()? {
            0xca => {
                self.take(1)?;
                Ok(f64::from(f32::from_be_bytes(self.take_array()?)))
            }
            0xcb => {
                self.take(1)?;
                Ok(f64::from_be_bytes(self.take_array()?))
            }
            _ => self.i64().map(|value| value as f64),
        }
    }

    pub(super) fn str(&mut self) -> Read<&'a str> {
        core::str::from_utf8(self.str_bytes()?).map_err(|_| MsgpackError::Utf8)
    }

    /// Bytes of a string, which are not looked at.
    #[inline]
    pub(super) fn str_bytes(&mut self) -> Read<&'a [u8]> {
        let len = match self.peek()? {
            marker @ 0xa0..=0xbf => {
                self.take(1)?;
                usize::from(marker & 0x1f)
            }
            0xd9 => self.length::<1>()?,
            0xda => self.length::<2>()?,
            0xdb => self.length::<4>()?,
            _ => return self.wrong_type(),
        };
        self.take(len)
    }

    pub(super) fn bin(&mut self) -> Read<&'a [u8]> {
        let len = match self.peek()? {
            0xc4 => self.length::<1>()?,
            0xc5 => self.length::<2>()?,
            0xc6 => self.length::<4>()?,
            _ => return self.wrong_type(),
        };
        self.take(len)
    }

    /// Number of elements of the array that follows. Never more than the bytes that are left.
    pub(super) fn array(&mut self) -> Read<usize> {
        let len = match self.peek()? {
            marker @ 0x90..=0x9f => {
                self.take(1)?;
                usize::from(marker & 0x0f)
            }
            0xdc => self.length::<2>()?,
            0xdd => self.length::<4>()?,
            _ => return self.wrong_type(),
        };
        self.claim(len, 1)
    }

    /// Number of entries of the map that follows. Never more than half the bytes that are left.
    pub(super) fn map(&mut self) -> Read<usize> {
        let len = match self.peek()? {
            marker @ 0x80..=0x8f => {
                self.take(1)?;
                usize::from(marker & 0x0f)
            }
            0xde => self.length::<2>()?,
            0xdf => self.length::<4>()?,
            _ => return self.wrong_type(),
        };
        self.claim(len, 2)
    }

    /// Refuses a claimed length that the bytes left can't hold (a value takes at least one byte).
    fn claim(&self, len: usize, values_each: usize) -> Read<usize> {
        if len.saturating_mul(values_each) > self.remaining() {
            return Err(MsgpackError::Truncated);
        }
        Ok(len)
    }

    /// Skips one value of any type, without recursion.
    pub(super) fn skip(&mut self) -> Read<()> {
        let mut values: usize = 1;
        while values > 0 {
            values -= 1;
            let bytes = match self.peek()? {
                0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => 1,
                0xcc | 0xd0 => 2,
                0xcd | 0xd1 | 0xd4 => 3,
                0xca | 0xce | 0xd2 => 5,
                0xcb | 0xcf | 0xd3 => 9,
                marker @ 0xa0..=0xbf => 1 + usize::from(marker & 0x1f),
                0xd9 | 0xc4 => self.length::<1>()?,
                0xda | 0xc5 => self.length::<2>()?,
                0xdb | 0xc6 => self.length::<4>()?,
                0xc7 => self.length::<1>()?.saturating_add(1),
                0xc8 => self.length::<2>()?.saturating_add(1),
                0xc9 => self.length::<4>()?.saturating_add(1),
                0xd5 => 4,
                0xd6 => 6,
                0xd7 => 10,
                0xd8 => 18,
                0x90..=0x9f | 0xdc | 0xdd => {
                    values = values.saturating_add(self.array()?);
                    0
                }
                0x80..=0x8f | 0xde | 0xdf => {
                    values = values.saturating_add(self.map()?.saturating_mul(2));
                    0
                }
                marker @ 0xc1 => return Err(MsgpackError::Type { marker }),
            };
            self.take(bytes)?;
            if values > self.remaining() {
                return Err(MsgpackError::Truncated);
            }
        }
        Ok(())
    }
}
