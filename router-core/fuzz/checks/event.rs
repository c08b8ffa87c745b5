//! Messages of engines: batches are decoded as far as they go.

use prefixway_core::event::{Event, Message, decode_batch, parse_frames};

/// Byte 0 is the number of frames, each of which follows its length (one byte); the last frame takes the rest.
pub(crate) fn check(data: &[u8]) {
    let Some((&count, mut rest)) = data.split_first() else {
        return;
    };
    let mut frames = Vec::new();
    for _ in 0..count % 5 {
        let Some((&length, after)) = rest.split_first() else {
            break;
        };
        let (frame, after) = after.split_at(usize::from(length).min(after.len()));
        frames.push(frame);
        rest = after;
    }
    frames.push(rest);
    if let Ok(Message::Batch { payload, .. }) = parse_frames(&frames) {
        batch(payload);
    }
    batch(data);
}

fn batch(payload: &[u8]) {
    let mut events = 0usize;
    decode_batch(payload, &mut |event| {
        events += 1;
        if let Event::Stored(stored) = event {
            // Whatever a count claims, a block takes bytes of the message.
            assert!(stored.hashes.len() <= payload.len());
            assert!(stored.tokens.len() <= payload.len());
            std::hint::black_box(stored.extra_keys.map(|keys| keys.blocks().count()));
        }
    });
    assert!(events <= payload.len());
}
