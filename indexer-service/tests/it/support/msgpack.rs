//! Just enough msgpack to write vLLM's batches.

/// A batch of events as vLLM 0.32 sends it: `[ts, events, rank]`.
pub(crate) fn batch(events: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0x93, 0xcb];
    out.extend_from_slice(&1.5f64.to_be_bytes());
    array(&mut out, events.len());
    for event in events {
        out.extend_from_slice(event);
    }
    out.push(0);
    out
}

/// Blocks of `block_size` tokens each in a tier, `hashes` one by one, below `parent`.
pub(crate) fn stored_in(
    medium: &str,
    hashes: &[u64],
    parent: Option<u64>,
    tokens: &[u32],
    block_size: u32,
) -> Vec<u8> {
    let mut out = vec![0x87];
    text(&mut out, "type");
    text(&mut out, "BlockStored");
    text(&mut out, "block_hashes");
    array(&mut out, hashes.len());
    for &hash in hashes {
        number(&mut out, hash);
    }
    text(&mut out, "parent_block_hash");
    match parent {
        Some(hash) => number(&mut out, hash),
        None => out.push(0xc0),
    }
    text(&mut out, "token_ids");
    array(&mut out, tokens.len());
    for &token in tokens {
        number(&mut out, token.into());
    }
    text(&mut out, "block_size");
    number(&mut out, block_size.into());
    text(&mut out, "lora_id");
    out.push(0xc0);
    text(&mut out, "medium");
    text(&mut out, medium);
    out
}

/// Removal of one block.
pub(crate) fn removed(hash: u64) -> Vec<u8> {
    let mut out = vec![0x83];
    text(&mut out, "type");
    text(&mut out, "BlockRemoved");
    text(&mut out, "block_hashes");
    array(&mut out, 1);
    number(&mut out, hash);
    text(&mut out, "medium");
    text(&mut out, "GPU");
    out
}

fn array(out: &mut Vec<u8>, len: usize) {
    out.push(0xdd);
    out.extend_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
}

fn number(out: &mut Vec<u8>, value: u64) {
    out.push(0xcf);
    out.extend_from_slice(&value.to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(0xd9);
    out.push(u8::try_from(text.len()).unwrap());
    out.extend_from_slice(text.as_bytes());
}
