//! Batches of blocks that no other batch has.

use super::msgpack;

/// Token ids of the prompt of a batch of up to 99 blocks, and the batch that says that they are stored.
pub(crate) fn stored(batch: u32, blocks: u32, block_tokens: u32) -> (Vec<u32>, Vec<u8>) {
    let tokens: Vec<u32> = (0..blocks * block_tokens)
        .map(|at| {
            300 + if at < 4 {
                batch / 10u32.pow(2 * at) % 100
            } else {
                at * 7 % 1000
            }
        })
        .collect();
    let hashes: Vec<u64> = (1..=u64::from(blocks))
        .map(|block| u64::from(batch) * 100 + block)
        .collect();
    let stored = msgpack::stored_in("GPU", &hashes, None, &tokens, block_tokens);
    (tokens, msgpack::batch(&[stored]))
}
