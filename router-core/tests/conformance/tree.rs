//! JSON that is made at random, kept as spelled, and made smaller step by step.

/// `SplitMix64`: small, seeded, the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    /// A literal or a number, as spelled.
    Word(String),
    Text(String),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl Tree {
    pub(crate) fn null() -> Self {
        Self::Word("null".into())
    }

    pub(crate) fn flag(flag: bool) -> Self {
        Self::Word(flag.to_string())
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn object<const N: usize>(entries: [(&str, Self); N]) -> Self {
        Self::Object(
            entries
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        )
    }

    /// Adds an entry to an object.
    pub(crate) fn set(&mut self, key: &str, value: Self) {
        if let Self::Object(entries) = self {
            entries.push((key.to_owned(), value));
        }
    }

    pub(crate) fn json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Word(word) => out.push_str(word),
            Self::Text(text) => out.push_str(&serde_json::to_string(text).unwrap()),
            Self::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(entries) => {
                out.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    out.push_str(&serde_json::to_string(key).unwrap());
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// Makes the tree smaller as long as `fails` says that the smaller one fails too.
    pub(crate) fn shrink(mut self, mut fails: impl FnMut(&Self) -> bool) -> Self {
        loop {
            let smaller = self.smaller();
            match smaller.into_iter().find(|candidate| fails(candidate)) {
                Some(found) => self = found,
                None => return self,
            }
        }
    }

    /// Trees with one thing less, large steps first.
    fn smaller(&self) -> Vec<Self> {
        let mut found = Vec::new();
        match self {
            Self::Word(_) => {}
            Self::Text(text) => {
                let letters: Vec<char> = text.chars().collect();
                if letters.len() > 1 {
                    let half = letters.len() / 2;
                    found.push(Self::Text(letters[..half].iter().collect()));
                    found.push(Self::Text(letters[half..].iter().collect()));
                }
                if letters.len() <= 24 {
                    for i in 0..letters.len() {
                        let rest = letters
                            .iter()
                            .enumerate()
                            .filter(|&(at, _)| at != i)
                            .map(|(_, c)| c);
                        found.push(Self::Text(rest.collect()));
                    }
                }
            }
            Self::List(items) => {
                for i in 0..items.len() {
                    let mut fewer = items.clone();
                    fewer.remove(i);
                    found.push(Self::List(fewer));
                }
                for (i, item) in items.iter().enumerate() {
                    for smaller in item.smaller() {
                        let mut other = items.clone();
                        other[i] = smaller;
                        found.push(Self::List(other));
                    }
                }
            }
            Self::Object(entries) => {
                for i in 0..entries.len() {
                    let mut fewer = entries.clone();
                    fewer.remove(i);
                    found.push(Self::Object(fewer));
                }
                for (i, (_, value)) in entries.iter().enumerate() {
                    for smaller in value.smaller() {
                        let mut other = entries.clone();
                        other[i].1 = smaller;
                        found.push(Self::Object(other));
                    }
                }
            }
        }
        found
    }
}
