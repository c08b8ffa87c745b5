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

fn zstd(body: &[u8], level: i32) -> Vec<u8> {
    ::zstd::encode_all(body, level).unwrap()
}

fn zstd_with_checksum(body: &[u8], level: i32) -> Vec<u8> {
    let mut encoder = ::zstd::Encoder::new(Vec::new(), level).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn flipped(coded: Vec<u8>, flips: &[(proptest::sample::Index, u8)]) -> Vec<u8> {
    let mut coded = coded;
    for (at, bits) in flips {
        let at = at.index(coded.len());
        coded[at] ^= bits;
    }
    coded
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
            ("zstd", zstd(&body, 3)),
            (" ZSTD ", zstd(&body, 19)),
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
    let coded = zlib(&zstd(&gzip(&body), 3));
    let decoded = decode("gzip, identity, zstd,deflate", &coded, CAP);
    assert!(decoded.unwrap() == body);
    assert_eq!(decode("zstd, gzip", &coded, CAP), Err(DecodeError::Corrupt));
    assert_eq!(
        decode("gzip,gzip,gzip,gzip,gzip", &coded, CAP),
        Err(DecodeError::Unknown)
    );
}

#[test]
fn unknown_codings_are_named_so() {
    for name in ["br", "gzip, br", "compress", "gzip;q=1", "utf-8"] {
        assert_eq!(decode(name, b"", CAP), Err(DecodeError::Unknown), "{name}");
    }
}

#[test]
fn several_members_and_frames_are_one_body() {
    let whole = [gzip(b"one "), gzip(b""), gzip(b"two"), vec![0; 5]].concat();
    assert_eq!(decode("gzip", &whole, CAP).unwrap(), &b"one two"[..]);
    let skipped = [&0x184d_2a55_u32.to_le_bytes()[..], &[3, 0, 0, 0], b"abc"].concat();
    let whole = [zstd(b"one ", 1), skipped.clone(), zstd(b"two", 1)].concat();
    assert_eq!(decode("zstd", &whole, CAP).unwrap(), &b"one two"[..]);
    assert_eq!(decode("zstd", &skipped, CAP).unwrap(), &b""[..]);
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
        ("zstd", zstd(&body, 3)),
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
        ("zstd", zstd(&zeros, 3)),
    ] {
        assert!(coded.len() < CAP);
        assert_eq!(
            decode(name, &coded, CAP),
            Err(DecodeError::TooLong),
            "{name}"
        );
    }
    let nested = gzip(&zstd(&zeros, 3));
    assert_eq!(
        decode("zstd, gzip", &nested, CAP),
        Err(DecodeError::TooLong)
    );
}

#[test]
fn a_claim_of_size_takes_no_memory() {
    // A frame that claims 2^62 bytes and ends.
    let mut frame = 0xfd2f_b528_u32.to_le_bytes().to_vec();
    frame.extend([0xe0]);
    frame.extend((1_u64 << 62).to_le_bytes());
    frame.extend([1, 0, 0]);
    assert_eq!(decode("zstd", &frame, CAP), Err(DecodeError::Corrupt));
}

#[test]
fn zstd_frames_of_all_kinds_are_read() {
    let body = chat(400_000);
    for level in [-5, 1, 2, 4, 7, 11, 16, 19] {
        assert!(
            decode("zstd", &zstd(&body, level), CAP).unwrap() == body,
            "{level}"
        );
    }
    let coded = |set: &dyn Fn(&mut ::zstd::Encoder<'_, Vec<u8>>)| {
        let mut encoder = ::zstd::Encoder::new(Vec::new(), 5).unwrap();
        set(&mut encoder);
        encoder.write_all(&body).unwrap();
        encoder.finish().unwrap()
    };
    let with_sum = coded(&|encoder| encoder.include_checksum(true).unwrap());
    assert!(decode("zstd", &with_sum, CAP).unwrap() == body);
    let with_size = coded(&|encoder| {
        encoder
            .set_pledged_src_size(Some(body.len() as u64))
            .unwrap();
    });
    assert!(decode("zstd", &with_size, CAP).unwrap() == body);
    let mut wrong = with_sum;
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(decode("zstd", &wrong, CAP), Err(DecodeError::Corrupt));
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
    fn zstd_is_read_as_the_reference_writes_it(body in any_body(), level in -7..13_i32) {
        let coded = zstd(&body, level);
        prop_assert!(decode("zstd", &coded, CAP).unwrap() == body);
        if !body.is_empty() {
            prop_assert_eq!(decode("zstd", &coded, body.len() - 1), Err(DecodeError::TooLong));
        }
    }

    #[test]
    fn broken_bodies_are_errors_or_short(
        body in any_body(),
        level in 1..9_i32,
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let coded = [
            ("zstd", zstd(&body, level)),
            ("gzip", gzip(&body)),
            ("deflate", zlib(&body)),
            ("deflate", bare(&body)),
        ];
        for (name, coded) in coded {
            if let Ok(decoded) = decode(name, &flipped(coded, &flips), CAP) {
                prop_assert!(decoded.len() <= CAP);
            }
        }
    }

    /// Without a checksum a broken frame may be taken for another body, and not even decoders agree which. A broken head of zlib is
    /// taken for bare deflate, which has none.
    #[test]
    fn broken_bodies_with_a_checksum_are_errors_or_the_body(
        body in any_body(),
        level in 1..9_i32,
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let coded = [("zstd", zstd_with_checksum(&body, level)), ("gzip", gzip(&body))];
        for (name, coded) in coded {
            if let Ok(decoded) = decode(name, &flipped(coded, &flips), CAP) {
                prop_assert!(decoded == body, "{name}");
            }
        }
    }

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
    fn noise_is_no_panic(noise in proptest::collection::vec(any::<u8>(), 0..200), name in "gzip|deflate|zstd") {
        let frame = [&0xfd2f_b528_u32.to_le_bytes()[..], &noise].concat();
        _ = decode(&name, &noise, 1 << 16);
        _ = decode("zstd", &frame, 1 << 16);
    }
}
