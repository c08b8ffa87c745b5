//! Batches as vLLM sends them: `[ts, [{"type": "BlockStored", ...}], rank]`.

use crate::generator::Store;

pub fn store(event: &Store) -> Vec<u8> {
    let mut out = Vec::with_capacity(128 + event.blocks.len() * 96);
    begin(&mut out);
    out.push(0x87);
    text(&mut out, "type");
    text(&mut out, "BlockStored");
    text(&mut out, "block_hashes");
    array(&mut out, event.blocks.len());
    for block in &event.blocks {
        uint64(&mut out, block.engine);
    }
    text(&mut out, "parent_block_hash");
    match event.parent {
        Some(parent) => uint64(&mut out, parent),
        None => out.push(0xc0),
    }
    text(&mut out, "token_ids");
    array(
        &mut out,
        event.blocks.len() * crate::generator::BLOCK_TOKENS,
    );
    for token in event.blocks.iter().flat_map(|block| block.tokens()) {
        token_id(&mut out, token);
    }
    text(&mut out, "block_size");
    out.push(16);
    text(&mut out, "lora_id");
    out.push(0xc0);
    text(&mut out, "medium");
    text(&mut out, "GPU");
    out.push(0);
    out
}

fn begin(out: &mut Vec<u8>) {
    out.extend([0x93, 0xcb]);
    out.extend(1.5f64.to_be_bytes());
    out.push(0x91);
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(0xa0 | text.len() as u8);
    out.extend(text.as_bytes());
}

fn array(out: &mut Vec<u8>, len: usize) {
    if len < 16 {
        out.push(0x90 | len as u8);
    } else {
        out.push(0xdc);
        out.extend((len as u16).to_be_bytes());
    }
}

fn uint64(out: &mut Vec<u8>, value: u64) {
    out.push(0xcf);
    out.extend(value.to_be_bytes());
}

fn token_id(out: &mut Vec<u8>, token: u32) {
    match token {
        0..0x80 => out.push(token as u8),
        0x80..0x100 => out.extend([0xcc, token as u8]),
        0x100..0x1_0000 => {
            out.push(0xcd);
            out.extend((token as u16).to_be_bytes());
        }
        _ => {
            out.push(0xce);
            out.extend(token.to_be_bytes());
        }
    }
}
