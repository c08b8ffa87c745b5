//! Messages of an indexer: taken or refused, within the table's budget.

use prefixway_core::proto::Down;
use prefixway_core::snapshot::Replica;
use prost::Message;

const MAX_BYTES: usize = 1 << 20;

/// Messages one after the other, each after its length (two bytes, little endian).
pub(crate) fn check(mut data: &[u8]) {
    let mut replica = Replica::new(MAX_BYTES, None);
    replica.subscribe(&["p".to_owned()], "g");
    while let Some((length, rest)) = data.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (message, rest) = rest.split_at(length);
        data = rest;
        let Ok(message) = Down::decode(message) else {
            continue;
        };
        if replica.feed(message).is_err() {
            assert!(!replica.is_live());
            replica.subscribe(&["p".to_owned()], "g");
        }
        std::hint::black_box(replica.snapshot().checksum());
    }
}
