//! Golden vectors of what indexer and gateways must agree on. The hashes were computed by another implementation of XXH3 (Python's
//! `xxhash` 4.1.0) from the definitions in the module docs; the messages by hand from the protobuf encoding.
//! The layouts of segments, pages, head, meta and VM records have theirs beside the code.

use prefixway_core::{
    hash::{ChunkHash, Scope, Seed, Space, chunk_hashes},
    proto::{Delta, Down, HolderSet, Routed, Up, down, up},
    snapshot::{EndpointKey, Entry, PromptHashes, SetId, Sets},
};
use prost::Message as _;

const SEED: Seed = Seed(0x0123_4567_89AB_CDEF);

#[test]
fn scopes_and_the_seed_check() {
    let scope = Scope {
        space: Space::Text,
        profile: "llama",
        revision: 7,
        adapter: "lora",
        salt: "salt",
    };
    assert_eq!(scope.hash(SEED), ChunkHash(0x69B9_781E_E36C_27A7));
    let empty = Scope {
        space: Space::Token,
        profile: "",
        revision: 0,
        adapter: "",
        salt: "",
    };
    assert_eq!(empty.hash(Seed(0)), ChunkHash(0xED28_FC3D_584D_BF31));
    assert_eq!(SEED.check(), 0x8905_488D_7FC3_47E9);
}

#[test]
fn chunk_hashes_of_a_text() {
    let text: Vec<u8> = (0..200u8).map(|at| b'a' + at % 23).collect();
    let expected = [
        0x770E_E750_C11A_374F,
        0xF1D8_C85B_9444_2A38,
        0xC23E_6E81_CB3F_4FE6,
    ];
    let scope = ChunkHash(0x69B9_781E_E36C_27A7);
    assert_eq!(
        chunk_hashes(scope, &text, SEED)
            .map(|hash| hash.0)
            .collect::<Vec<_>>(),
        expected
    );
    let prompt = PromptHashes::new(scope, &text, SEED, usize::MAX);
    assert_eq!(
        prompt
            .rungs
            .iter()
            .map(|rung| rung.hash)
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn endpoint_keys() {
    assert_eq!(
        EndpointKey::new("10.0.0.1:8000", None),
        EndpointKey(0x8406_580F_7B4E_9683)
    );
    assert_eq!(
        EndpointKey::new("10.0.0.1:8000", Some(3)),
        EndpointKey(0x4EAF_CB57_6EC5_F444)
    );
}

#[test]
fn sums_of_the_checksum() {
    let entry = Entry {
        hash: 0x0102_0304_0506_0708,
        set: SetId(0x0A0B),
        token_depth: 0x10,
    };
    assert_eq!(entry.sum(), 0x6BB9_9B55_91CB_B005);
    let mut sets = Sets::default();
    sets.insert(1, &[5]).unwrap();
    assert_eq!(sets.checksum(), 0xEAE8_A7BE_2657_BBC7);
}

#[test]
fn messages() {
    let entry = Entry {
        hash: 0x0102_0304_0506_0708,
        set: SetId(1),
        token_depth: 16,
    };
    let delta = Delta {
        version: 2,
        sets: vec![HolderSet {
            id: 1,
            bits: vec![5].into(),
        }],
        dropped_sets: vec![3],
        upserts: entry.to_bytes().to_vec().into(),
        removes: 9u64.to_le_bytes().to_vec().into(),
        checksum: 0x0A,
    };
    let down = Down {
        kind: Some(down::Kind::Delta(delta)),
    };
    let mut expected = b"\x3A\x31\x08\x02\x12\x05\x08\x01\x12\x01\x05\x1A\x01\x03\x22\x10".to_vec();
    expected.extend(b"\x08\x07\x06\x05\x04\x03\x02\x01\x01\0\0\0\x10\0\0\0");
    expected.extend(b"\x2A\x08\x09\0\0\0\0\0\0\0\x31\x0A\0\0\0\0\0\0\0");
    assert_eq!(down.encode_to_vec(), expected);
    assert_eq!(Down::decode(expected.as_slice()).unwrap(), down);

    let routed = Routed {
        request: 1,
        endpoint: 2,
        rungs: 9u64.to_le_bytes().to_vec().into(),
        ..Routed::default()
    };
    let up = Up {
        seq: 4,
        kind: Some(up::Kind::Routed(routed)),
    };
    assert_eq!(
        up.encode_to_vec(),
        b"\x08\x04\x22\x0E\x08\x01\x10\x02\x1A\x08\x09\0\0\0\0\0\0\0"
    );
}
