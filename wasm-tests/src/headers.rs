//! Header maps.

/// Headers in the order they were added; names are kept in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The first value of `name`, or `None`.
    pub fn get(&self, name: &str) -> Option<&str> {
        let name = name.to_ascii_lowercase();
        self.0
            .iter()
            .find_map(|(n, value)| (*n == name).then_some(value.as_str()))
    }

    /// Every value of `name`, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let name = name.to_ascii_lowercase();
        self.0
            .iter()
            .filter_map(|(n, value)| (*n == name).then_some(value.as_str()))
            .collect()
    }

    /// Appends a value.
    pub fn add(&mut self, name: &str, value: &str) {
        self.0.push((name.to_ascii_lowercase(), value.to_owned()));
    }

    /// Removes every value of `name`.
    pub fn remove(&mut self, name: &str) {
        let name = name.to_ascii_lowercase();
        self.0.retain(|(n, _)| *n != name);
    }

    /// Replaces every value of `name` by one.
    pub fn set(&mut self, name: &str, value: &str) {
        self.remove(name);
        self.add(name, value);
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Name and value of every entry, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// The ABI's form: count, sizes, then names and values, each ended by a NUL.
    pub(crate) fn to_abi(&self) -> Vec<u8> {
        let size = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut bytes = u32::try_from(self.0.len())
            .unwrap_or(u32::MAX)
            .to_le_bytes()
            .to_vec();
        for (name, value) in &self.0 {
            bytes.extend(size(name));
            bytes.extend(size(value));
        }
        for (name, value) in &self.0 {
            bytes.extend(name.as_bytes());
            bytes.push(0);
            bytes.extend(value.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    /// Reads the ABI's form; `None` when it is malformed.
    pub(crate) fn from_abi(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::default());
        }
        let number = |at: usize| -> Option<usize> {
            let raw: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
            usize::try_from(u32::from_le_bytes(raw)).ok()
        };
        let count = number(0)?;
        let mut at = 4 + count.checked_mul(8)?;
        let mut take = |size: usize| -> Option<String> {
            let text = String::from_utf8_lossy(bytes.get(at..at.checked_add(size)?)?).into_owned();
            at += size + 1;
            Some(text)
        };
        let mut headers = Self::default();
        for i in 0..count {
            let name = take(number(4 + 8 * i)?)?;
            let value = take(number(8 + 8 * i)?)?;
            headers.add(&name, &value);
        }
        Some(headers)
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(iter: I) -> Self {
        let mut headers = Self::default();
        for (name, value) in iter {
            headers.add(name.as_ref(), value.as_ref());
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_abi_form_reads_back() {
        let headers = Headers::from_iter([(":path", "/v1"), ("x-a", ""), ("X-A", "2")]);
        assert_eq!(Headers::from_abi(&headers.to_abi()), Some(headers.clone()));
        assert_eq!(headers.all("x-a"), ["", "2"]);
        assert_eq!(Headers::from_abi(&[9, 0, 0, 0]), None);
    }
}
