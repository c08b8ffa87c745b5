//! The deployment's secret hash seed: given, read from a file, or generated once and kept.

use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use prefixway_core::hash::Seed;
use serde::de::{self, Visitor};

/// Name of the generated seed's file inside `state_dir`.
pub(super) const SEED_FILE_NAME: &str = "seed";

/// Longest seed file read; a seed is 18 characters.
const MAX_SEED_FILE_BYTES: u64 = 256;

/// Where the seed comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum SeedSource {
    /// Written in the configuration.
    Given(Seed),
    /// In a file that must exist.
    File(PathBuf),
    /// In a file that is made, readable by its owner only, when it does not exist.
    Generated(PathBuf),
}

impl fmt::Debug for SeedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("Given(secret)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Generated(path) => f.debug_tuple("Generated").field(path).finish(),
        }
    }
}

/// A seed that can't be had.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The seed file can't be read.
    #[error("can't read seed file {path}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The seed file holds something else.
    #[error("seed file {path} does not hold a seed, allowed: 0x and 1 to 16 hexadecimal digits, not zero", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
    },
    /// The seed file can't be made.
    #[error("can't store a generated seed in {path}", path = path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The system gives no random bytes.
    #[error("can't generate a seed: {0}")]
    Random(getrandom::Error),
}

impl SeedSource {
    /// The seed; generates and stores one where that is the source and there is none yet.
    ///
    /// # Errors
    /// A file can't be read or made, or holds no seed.
    pub fn resolve(&self) -> Result<Seed, SeedError> {
        match self {
            Self::Given(seed) => Ok(*seed),
            Self::File(path) => read(path),
            Self::Generated(path) => match read(path) {
                Err(SeedError::Read { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound =>
                {
                    generate(path)
                }
                other => other,
            },
        }
    }
}

fn read(path: &Path) -> Result<Seed, SeedError> {
    let read_error = |source| SeedError::Read {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_SEED_FILE_BYTES).read_to_string(&mut text))
        .map_err(read_error)?;
    parse(text.trim()).ok_or_else(|| SeedError::Content {
        path: path.to_owned(),
    })
}

/// Makes the seed beside its place and renames it, so that a crash never leaves half a seed.
fn generate(path: &Path) -> Result<Seed, SeedError> {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes).map_err(SeedError::Random)?;
    let seed = u64::from_le_bytes(bytes).max(1);
    let store = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        // A temporary file is made with mode 0600; `persist_noclobber` never replaces another process's seed.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        writeln!(file, "{seed:#018x}")?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path)
            .map(drop)
            .map_err(|error| error.error)
    };
    match store() {
        Ok(()) => Ok(Seed(seed)),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => read(path),
        Err(source) => Err(SeedError::Store {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Reads `0x` and hexadecimal digits, or decimal digits; zero is refused, it is what a forgotten seed looks like.
pub(super) fn parse(text: &str) -> Option<Seed> {
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok()?,
        Some(_) => return None,
        None => text.parse().ok()?,
    };
    (value != 0).then_some(Seed(value))
}

/// A seed as written; `None` when it is not one. The text is not kept, so that no error can show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawSeed(pub(super) Option<Seed>);

impl<'de> serde::Deserialize<'de> for RawSeed {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SeedVisitor;
        impl Visitor<'_> for SeedVisitor {
            type Value = RawSeed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a seed such as 0x0123456789abcdef")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<RawSeed, E> {
                Ok(RawSeed((value != 0).then_some(Seed(value))))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<RawSeed, E> {
                Ok(RawSeed(
                    u64::try_from(value).ok().filter(|&v| v != 0).map(Seed),
                ))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawSeed, E> {
                Ok(RawSeed(parse(text)))
            }
        }
        deserializer.deserialize_any(SeedVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_generated_once_and_only_its_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper").join(SEED_FILE_NAME);
        let source = SeedSource::Generated(path.clone());
        let seed = source.resolve().unwrap();
        assert_eq!(source.resolve().unwrap(), seed);
        assert_eq!(SeedSource::File(path.clone()).resolve().unwrap(), seed);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = SeedSource::Generated(folder.path().join("other"))
            .resolve()
            .unwrap();
        assert_ne!(other, seed);
    }

    #[test]
    fn a_seed_file_must_exist_and_hold_a_seed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        assert!(matches!(
            SeedSource::File(path.clone()).resolve(),
            Err(SeedError::Read { .. })
        ));
        for text in ["", "0", "0x0", "0x+1", "nonsense", "0x11111111111111111"] {
            std::fs::write(&path, text).unwrap();
            for source in [
                SeedSource::File(path.clone()),
                SeedSource::Generated(path.clone()),
            ] {
                assert!(
                    matches!(source.resolve(), Err(SeedError::Content { .. })),
                    "{text:?}"
                );
            }
        }
    }

    #[test]
    fn a_seed_is_never_printed() {
        assert_eq!(
            format!("{:?}", SeedSource::Given(Seed(42))),
            "Given(secret)"
        );
        assert!(!format!("{:?}", RawSeed(Some(Seed(42)))).contains("42"));
    }
}
