use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;

use super::*;

const CAP: usize = 1 << 20;

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn bare(body: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// Text like a chat: words that repeat, numbers that don't.
fn chat(bytes: usize) -> Vec<u8> {
    let mut text = String::new();
    let mut number = 7_u64;
    while text.len() < bytes {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let word = ["the", "weather", "in", "Oslo", "\"role\":\"user\"", "é"];
        text.push_str(word[usize::try_from(number >> 33).unwrap() % word.len()]);
        if number >> 60 == 0 {
            text.push_str(&number.to_string());
        }
        text.push(' ');
    }
    text.into_bytes()
}

#[test]
fn each_coding_is_undone() {
    for body in [
        Vec::new(),
        b"{}".to_vec(),
        chat(100_000),
        vec![b'a'; 300_000],
    ] {
        for (name, coded) in [
            ("gzip", gzip(&body)),
            ("X-GZip", gzip(&body)),
            ("deflate", zlib(&body)),
            ("deflate", bare(&body)),
            (" DEFLATE ", zlib(&body)),
        ] {
            assert!(decode(name, &coded, CAP).unwrap() == body, "{name}");
            assert!(decode(name, &coded, body.len()).unwrap() == body, "{name}");
        }
    }
}

#[test]
fn what_changes_nothing_gives_the_body_itself() {
    for name in ["", "identity", " Identity , ", ",,"] {
        let decoded = decode(name, b"\x1f\x8b", 0);
        assert!(matches!(decoded, Ok(Cow::Borrowed(b"\x1f\x8b"))), "{name}");
        assert!(Codings::from_header(name).unwrap().is_identity());
    }
}

#[test]
fn a_list_is_undone_from_its_end() {
    let body = chat(5000);
    let coded = zlib(&gzip(&body));
    let decoded = decode("gzip, identity,deflate", &coded, CAP);
    assert!(decoded.unwrap() == body);
    assert_eq!(
        decode("deflate, gzip", &coded, CAP),
        Err(DecodeError::Corrupt)
    );
    assert_eq!(
        decode("gzip,gzip,gzip,gzip,gzip", &coded, CAP),
        Err(DecodeError::Unknown)
    );
}

#[test]
fn unknown_codings_are_named_so() {
    for name in [
        "br",
        "gzip, br",
        "zstd",
        "zstd, gzip",
        "compress",
        "gzip;q=1",
        "utf-8",
    ] {
        assert_eq!(decode(name, b"", CAP), Err(DecodeError::Unknown), "{name}");
    }
}

#[test]
fn several_members_are_one_body() {
    let whole = [gzip(b"one "), gzip(b""), gzip(b"two"), vec![0; 5]].concat();
    assert_eq!(decode("gzip", &whole, CAP).unwrap(), &b"one two"[..]);
    let many = gzip(b"").repeat(1025);
    assert_eq!(decode("gzip", &many, CAP), Err(DecodeError::Corrupt));
}

#[test]
fn whatever_is_cut_off_or_goes_on_is_corrupt() {
    let body = chat(3000);
    for (name, coded) in [
        ("gzip", gzip(&body)),
        ("deflate", zlib(&body)),
        ("deflate", bare(&body)),
    ] {
        for end in 0..coded.len() {
            assert_eq!(
                decode(name, &coded[..end], CAP),
                Err(DecodeError::Corrupt),
                "{name} {end}"
            );
        }
        let longer = [&coded[..], b"x"].concat();
        assert_eq!(decode(name, &longer, CAP), Err(DecodeError::Corrupt));
    }
}

#[test]
fn the_cap_stops_a_bomb_early() {
    let zeros = vec![0; 8 << 20];
    for (name, coded) in [
        ("gzip", gzip(&zeros)),
        ("deflate", zlib(&zeros)),
        ("deflate", bare(&zeros)),
    ] {
        assert!(coded.len() < CAP);
        assert_eq!(
            decode(name, &coded, CAP),
            Err(DecodeError::TooLong),
            "{name}"
        );
    }
    let nested = gzip(&zlib(&zeros));
    assert_eq!(
        decode("deflate, gzip", &nested, CAP),
        Err(DecodeError::TooLong)
    );
}

/// Bytes of few or many kinds, with repeats near and far.
fn any_body() -> impl Strategy<Value = Vec<u8>> {
    let run = (any::<u8>(), 1..400_usize).prop_map(|(byte, count)| vec![byte; count]);
    let noise = proptest::collection::vec(any::<u8>(), 0..300);
    let letters = proptest::collection::vec(b'a'..b'f', 0..2000);
    let pieces = proptest::collection::vec(prop_oneof![run, noise, letters], 0..12);
    (pieces, any::<bool>()).prop_map(|(pieces, twice)| {
        let once = pieces.concat();
        if twice { once.repeat(2) } else { once }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_coded_is_read_and_no_byte_more(body in any_body()) {
        for (name, coded) in [("gzip", gzip(&body)), ("deflate", zlib(&body)), ("deflate", bare(&body))] {
            prop_assert!(decode(name, &coded, body.len()).unwrap() == body);
            if !body.is_empty() {
                prop_assert_eq!(decode(name, &coded, body.len() - 1), Err(DecodeError::TooLong));
            }
        }
    }

    #[test]
    fn broken_bodies_are_errors_or_short(
        body in any_body(),
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for (name, mut coded) in [("gzip", gzip(&body)), ("deflate", zlib(&body)), ("deflate", bare(&body))] {
            for (at, byte) in &flips {
                let at = at.index(coded.len());
                coded[at] ^= byte;
            }
            if let Ok(decoded) = decode(name, &coded, CAP) {
                prop_assert!(decoded.len() <= CAP);
            }
        }
    }

    #[test]
    fn noise_is_no_panic(noise in proptest::collection::vec(any::<u8>(), 0..200), name in "gzip|deflate") {
        _ = decode(&name, &noise, 1 << 16);
    }
}
