use super::encode::{EventSpec, Owned, StoredSpec, Writer, batch};
use super::*;
use proptest::prelude::*;

fn decode(payload: &[u8]) -> (BatchInfo, Vec<Owned>) {
    let mut events = Vec::new();
    let info = decode_batch(payload, &mut |event| events.push(Owned::from(event)));
    (info, events)
}

fn stored(hashes: &[u64]) -> EventSpec {
    EventSpec::Stored(StoredSpec {
        hashes: hashes.to_vec(),
        tokens: (0..u32::try_from(hashes.len()).unwrap() * 2)
            .map(|token| token * 40_000)
            .collect(),
        block_size: 2,
        ..StoredSpec::default()
    })
}

fn good(hashes: &[u64]) -> Owned {
    Owned::Stored {
        hashes: hashes.iter().copied().map(EngineHash).collect(),
        parent: None,
        tokens: (0..u32::try_from(hashes.len()).unwrap() * 2)
            .map(|token| token * 40_000)
            .collect(),
    }
}

/// A batch with raw bytes as its middle event.
fn around(middle: &[u8]) -> Vec<u8> {
    let first = batch(&[stored(&[1])]);
    let event = &first[1 + 2 + 9 + 3..first.len() - 1];
    let mut writer = Writer::default();
    writer.array(3).f64(0.0).array(3);
    writer.0.extend(event);
    writer.0.extend(middle);
    writer.0.extend(event);
    writer.u32(0);
    writer.0
}

#[test]
fn one_bad_event_never_costs_its_batch() {
    let (info, events) = decode(&around(&[0xc0]));
    assert_eq!(events, [good(&[1]), good(&[1])]);
    assert_eq!((info.bad_events, info.error, info.rank), (1, None, Some(0)));

    // A negative token, a stored event without hashes, an empty array, a map without a type.
    let mut negative = Writer::default();
    negative
        .array(5)
        .str("BlockStored")
        .array(1)
        .u64(7)
        .nil()
        .array(1);
    negative.0.push(0xff);
    negative.u32(1);
    let mut missing = Writer::default();
    missing.map(1).str("type").str("BlockStored");
    for event in [negative.0, missing.0, vec![0x90], vec![0x80]] {
        let (info, events) = decode(&around(&event));
        assert_eq!(events.len(), 2, "{event:x?}");
        assert_eq!((info.bad_events, info.unknown_events), (1, 0), "{event:x?}");
    }
}

#[test]
fn unknown_types_keys_and_elements_are_skipped_and_counted() {
    let mut array = Writer::default();
    array.array(3).str("BlockPinned").map(1).u32(1).nil().nil();
    let mut map = Writer::default();
    map.map(2)
        .str("block_hashes")
        .str("of another shape")
        .str("type")
        .str("BlockPinned");
    for event in [array.0, map.0] {
        let (info, events) = decode(&around(&event));
        assert_eq!(
            (events.len(), info.unknown_events, info.bad_events),
            (2, 1, 0)
        );
    }
    let mut keys = Writer::default();
    keys.map(4)
        .str("type")
        .str("AllBlocksCleared")
        .u32(3)
        .nil()
        .str("why")
        .str("sleep")
        .str("session_id")
        .str("s");
    let (info, events) = decode(&around(&keys.0));
    assert_eq!(events[1], Owned::Cleared);
    assert_eq!(info.unknown_keys, 2);
}

#[test]
fn the_same_bits_are_one_hash_and_bytes_are_another() {
    let mut event = Writer::default();
    event.array(2).str("BlockRemoved").array(4);
    event
        .0
        .extend([0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]);
    event.u64(u64::MAX - 1);
    event.0.push(0xfe);
    event.0.extend([0xc4, 2, 0xff, 0xfe]);
    let (_, events) = decode(&around(&event.0));
    let same = EngineHash(u64::MAX - 1);
    assert_eq!(
        events[1],
        Owned::Removed {
            hashes: vec![same, same, same, EngineHash::from_bytes(&[0xff, 0xfe])]
        }
    );
}

#[test]
fn claimed_lengths_do_not_decide_what_is_allocated() {
    for payload in [
        &[0xdd, 0x7f, 0xff, 0xff, 0xff][..],
        &[0x92, 0xc0, 0xdd, 0x7f, 0xff, 0xff, 0xff],
        &[0xdf, 0xff, 0xff, 0xff, 0xff],
        &[0x92, 0xc0, 0x91, 0x92, 0xdb, 0xff, 0xff, 0xff, 0xff],
        &[0x92, 0xc0, 0x91, 0xc9, 0xff, 0xff, 0xff, 0xff, 0x01],
    ] {
        let (info, events) = decode(payload);
        assert!(info.error.is_some() && events.is_empty(), "{payload:x?}");
    }
    // Lists of a size that fits in no memory, inside an event.
    let mut event = Writer::default();
    event.array(2).str("BlockRemoved");
    event.0.extend([0xdd, 0xff, 0xff, 0xff, 0xff]);
    let mut decoder = Decoder::default();
    let info = decoder.decode(&around(&event.0), &mut |_| {});
    assert_eq!(info.events, 1);
    assert!(info.error.is_some());
}

#[test]
fn deep_nesting_needs_no_stack() {
    let mut event = vec![0x91; 1 << 20];
    event.push(0xc0);
    let (info, events) = decode(&around(&event));
    assert_eq!((events.len(), info.bad_events, info.error), (2, 1, None));
    let (info, _) = decode(&event);
    assert_eq!(info.error, Some(MsgpackError::Type { marker: 0x91 }));
}

#[test]
fn batch_may_be_a_map_and_lack_its_rank() {
    let mut map = Writer::default();
    map.map(4)
        .str("data_parallel_rank")
        .u32(3)
        .str("ts")
        .f64(2.5)
        .str("version")
        .u32(1)
        .str("events");
    map.array(1).array(1).str("AllBlocksCleared");
    let (info, events) = decode(&map.0);
    assert_eq!(events, [Owned::Cleared]);
    assert_eq!(
        (info.rank, info.ts, info.unknown_keys),
        (Some(3), Some(2.5), 1)
    );

    let mut short = Writer::default();
    short.array(2).f64(2.5).array(0);
    assert_eq!(
        decode(&short.0).0,
        BatchInfo {
            ts: Some(2.5),
            ..BatchInfo::default()
        }
    );
}

#[test]
fn extra_keys_are_told_apart() {
    let mut event = Writer::default();
    event
        .array(9)
        .str("BlockStored")
        .array(3)
        .u64(1)
        .u64(2)
        .u64(3)
        .nil()
        .array(3)
        .u32(1)
        .u32(2)
        .u32(3)
        .u32(1);
    event.nil().nil().str("lora");
    event
        .array(4)
        .array(2)
        .str("lora")
        .str("salt")
        .nil()
        .array(1)
        .array(2)
        .str("image")
        .u32(5)
        .str("bare");
    let mut keys = Vec::new();
    let mut read = |event: Event<'_>| {
        if let Event::Stored(stored) = event
            && let Some(extra) = stored.extra_keys
        {
            keys = extra
                .blocks()
                .map(|block| block.map(|key| format!("{key:?}")).collect::<Vec<_>>())
                .collect();
        }
    };
    assert_eq!(decode_batch(&around(&event.0), &mut read).bad_events, 0);
    assert_eq!(keys[0], ["Text(\"lora\")", "Text(\"salt\")"]);
    assert!(keys[1].is_empty());
    assert_eq!(keys[2], ["Item(\"image\")"]);
    assert_eq!(keys[3], ["Text(\"bare\")"]);
}

#[test]
fn events_of_sglang_are_read_by_the_same_decoder() {
    // [ts, events]: no rank; events are arrays that end with `lora_id`; hashes are signed.
    let mut payload = vec![0x92, 0xca, 0x3f, 0xc0, 0x00, 0x00, 0x93];
    payload.extend(b"\x96\xabBlockStored\x91\xd3");
    payload.extend((-5i64).to_be_bytes());
    payload.extend(b"\xd0\xf9\x92\x01\xcd\x01\x00\x02\xc0");
    payload.extend(b"\x92\xacBlockRemoved\x91\xfb");
    payload.extend(b"\x91\xb0AllBlocksCleared");
    let mut seen = Vec::new();
    let info = decode_batch(&payload, &mut |event| {
        seen.push(match event {
            Event::Stored(stored) => {
                assert_eq!((stored.tokens, stored.block_size), (&[1, 256][..], 2));
                assert_eq!((stored.medium, stored.lora_id), (None, None));
                format!("stored {:?} below {:?}", stored.hashes, stored.parent)
            }
            Event::Removed(removed) => format!("removed {:?}", removed.hashes),
            Event::Cleared => "cleared".to_owned(),
        });
    });
    assert_eq!(
        (info.decode_errors(), info.rank, info.unknown_keys),
        (0, None, 0)
    );
    let hash = |value: i64| EngineHash(value.cast_unsigned());
    assert_eq!(
        seen,
        [
            format!("stored {:?} below {:?}", [hash(-5)], Some(hash(-7))),
            format!("removed {:?}", [hash(-5)]),
            "cleared".to_owned(),
        ]
    );
}

#[test]
fn tokens_that_a_hash_covers_beyond_its_block_are_counted() {
    let stored = |lookahead: &[u8]| {
        let mut payload = b"\x92\xc0\x91\x85\xa4type\xabBlockStored\xacblock_hashes\x91\x01\xa9token_ids\x91\x02\xaablock_size\x01".to_vec();
        payload.extend(b"\xb3lookahead_token_ids");
        payload.extend(lookahead);
        let mut found = None;
        let info = decode_batch(&payload, &mut |event| {
            if let Event::Stored(stored) = event {
                found = Some(stored.lookahead);
            }
        });
        (found, info.decode_errors())
    };
    assert_eq!(stored(b"\x91\x92\x05\x06"), (Some(2), 0));
    assert_eq!(stored(b"\x92\x91\x05\x93\x05\x06\x07"), (Some(3), 0));
    assert_eq!(stored(b"\xc0"), (Some(0), 0));
    assert_eq!(stored(b"\xa1x"), (Some(0), 0));
}

#[test]
fn frames_are_read_from_the_end() {
    let seq = 5u64.to_be_bytes();
    let end = [0xff; 8];
    let topic: &[u8] = b"kv@pod";
    let batch = |topic| {
        Ok(Message::Batch {
            topic,
            seq: 5,
            payload: &b"p"[..],
        })
    };
    assert_eq!(parse_frames(&[topic, &seq, b"p"]), batch(topic));
    assert_eq!(parse_frames(&[b"", topic, &seq, b"p"]), batch(topic));
    assert_eq!(parse_frames(&[&b""[..], &seq, b"p"]), batch(b""));
    assert_eq!(
        parse_frames(&[&b""[..], b"", &end, b""]),
        Ok(Message::ReplayEnd)
    );
    assert_eq!(parse_frames(&[&b""[..], &end, b""]), Ok(Message::ReplayEnd));
}

#[test]
fn malformed_frames_are_errors_that_keep_a_readable_number() {
    let seq = 5u64.to_be_bytes();
    let topic: &[u8] = b"kv@pod";
    assert_eq!(
        parse_frames(&[topic, &seq[..3], b"p"]),
        Err(FrameError::SequenceLength { bytes: 3 })
    );
    assert_eq!(
        parse_frames(&[topic, &seq]).map_err(FrameError::seq),
        Err(Some(5))
    );
    assert_eq!(parse_frames(&[topic]).map_err(FrameError::seq), Err(None));
    assert_eq!(
        parse_frames::<&[u8]>(&[]).map_err(FrameError::seq),
        Err(None)
    );
}

proptest! {
    #[test]
    fn random_bytes_never_panic(payload in prop::collection::vec(any::<u8>(), 0..300)) {
        decode(&payload);
        decode(&around(&payload));
    }

    #[test]
    fn token_ids_of_every_width_are_read(
        tokens in prop::collection::vec(
            prop_oneof![0u32..0x80, 0x80u32..0x100, 0x100u32..0x1_0000, any::<u32>()],
            0..150,
        ),
        wide in any::<usize>(),
    ) {
        let mut writer = Writer::default();
        for (at, &token) in tokens.iter().enumerate() {
            if at == wide % 200 {
                writer.u64(u64::from(token));
            } else {
                writer.u32(token);
            }
        }
        let mut read = vec![0; tokens.len()];
        let mut cursor = cursor::Cursor::new(&writer.0);
        prop_assert!(cursor.u32s(&mut read).is_ok());
        prop_assert_eq!(&read, &tokens);
        prop_assert_eq!(cursor.remaining(), 0);
        let mut more = vec![0; tokens.len() + 1];
        prop_assert!(cursor::Cursor::new(&writer.0).u32s(&mut more).is_err());
    }

    #[test]
    fn damaged_batches_never_panic_and_hand_on_what_came_before(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = batch(&[stored(&[1, 2, 3]), EventSpec::Cleared, stored(&[4])]);
        let cut = cut.index(whole.len());
        let (info, events) = decode(&whole[..cut]);
        prop_assert!(info.error.is_some());
        prop_assert!(decode(&whole).1.starts_with(&events));
        let mut damaged = whole;
        let at = at.index(damaged.len());
        damaged[at] = byte;
        decode(&damaged);
    }
}
