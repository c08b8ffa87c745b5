//! A whole header map, read with one host call: that costs little more than reading one value, and a request needs several.

/// Name and value of every header of a map, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Headers {
    /// The ABI's form: the number of headers, the sizes of each name and value, then names and values, each ended by a NUL.
    bytes: Vec<u8>,
}

impl Headers {
    /// A map in the ABI's form. Where the bytes are not what they say, the map ends.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// The first value of a header (its name in lower case); `None` when it is absent or no UTF-8.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut headers = self.iter();
        let (_, value) = headers.find(|(other, _)| *other == name.as_bytes())?;
        core::str::from_utf8(value).ok()
    }

    /// Whether there is a header of this name (in lower case).
    pub(crate) fn has(&self, name: &str) -> bool {
        self.iter().any(|(other, _)| other == name.as_bytes())
    }

    /// Name (in lower case) and value of each, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (count, rest) = split_number(&self.bytes).unwrap_or_default();
        let (sizes, mut texts) = rest
            .split_at_checked(count.saturating_mul(8))
            .unwrap_or_default();
        let mut text = move |size: usize| {
            let (text, rest) = texts.split_at_checked(size)?;
            texts = rest.get(1..)?;
            Some(text)
        };
        sizes.as_chunks::<8>().0.iter().map_while(move |sizes| {
            let (name, sizes) = split_number(sizes)?;
            let (value, _) = split_number(sizes)?;
            Some((text(name)?, text(value)?))
        })
    }
}

fn split_number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number) as usize, rest))
}

#[cfg(test)]
mod tests {
    use super::super::pairs;
    use super::*;

    fn map(headers: &[(&str, &str)]) -> Headers {
        Headers::new(pairs(headers))
    }

    #[test]
    fn the_first_value_of_a_name_is_given() {
        let headers = map(&[(":path", "/a"), ("x", ""), ("y", "1"), ("y", "2")]);
        assert_eq!(headers.get(":path"), Some("/a"));
        assert_eq!((headers.get("x"), headers.has("x")), (Some(""), true));
        assert_eq!(headers.get("y"), Some("1"));
        assert_eq!((headers.get("z"), headers.has("z")), (None, false));
        assert_eq!(map(&[]).get("x"), None);
    }

    #[test]
    fn a_value_that_is_no_text_is_there_but_not_given() {
        let mut bytes = pairs(&[("x", "ab")]);
        let at = bytes.len() - 2;
        bytes[at] = 0xff;
        let headers = Headers::new(bytes);
        assert_eq!((headers.get("x"), headers.has("x")), (None, true));
    }

    #[test]
    fn maps_that_are_cut_short_or_lie_end_early() {
        let whole = pairs(&[("a", "1"), ("bc", "23")]);
        for length in 0..whole.len() {
            let cut = Headers::new(whole[..length].to_vec());
            assert!(cut.iter().count() < 2, "{length}");
        }
        assert_eq!(Headers::new(vec![0xff; 64]).iter().count(), 0);
    }
}
