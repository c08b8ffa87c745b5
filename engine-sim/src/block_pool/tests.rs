use super::*;

fn filled(pool: &mut BlockPool, hashes: &[u64]) -> Vec<BlockId> {
    let chain = pool.allocate(hashes.len(), &mut Vec::new()).unwrap();
    for (&id, &hash) in chain.iter().zip(hashes) {
        pool.cache(id, BlockHash(hash));
    }
    chain
}

#[test]
fn the_null_block_is_never_handed_out() {
    let mut pool = BlockPool::new(4);
    assert_eq!(pool.capacity(), 3);
    assert!(pool.allocate(4, &mut Vec::new()).is_none());
    assert_eq!(pool.free_count(), 3, "a refused allocation takes nothing");
    assert!(
        !pool
            .allocate(3, &mut Vec::new())
            .unwrap()
            .contains(&BlockId(0))
    );
}

#[test]
fn the_tail_of_a_freed_chain_is_evicted_first() {
    let mut pool = BlockPool::new(4);
    let chain = filled(&mut pool, &[1, 2, 3]);
    pool.release(&chain);
    let mut evicted = Vec::new();
    pool.allocate(2, &mut evicted);
    assert_eq!(evicted, [BlockHash(3), BlockHash(2)]);
    assert!(pool.lookup(BlockHash(1)).is_some());
}

#[test]
fn a_freed_block_that_caches_nothing_is_taken_first() {
    let mut pool = BlockPool::new(4);
    let chain = filled(&mut pool, &[1, 2]);
    let partial = pool.allocate(1, &mut Vec::new()).unwrap();
    pool.release(&chain);
    pool.release(&partial);
    let mut evicted = Vec::new();
    assert_eq!(pool.allocate(1, &mut evicted).unwrap(), partial);
    assert!(evicted.is_empty());
}

#[test]
fn a_touched_block_is_not_evicted_and_moves_to_the_back_when_released() {
    let mut pool = BlockPool::new(4);
    let chain = filled(&mut pool, &[1, 2, 3]);
    pool.release(&chain);
    let hit = pool.lookup(BlockHash(3)).unwrap();
    pool.touch(hit);
    assert!(!pool.is_free(hit));
    pool.release(&[hit]);
    let mut evicted = Vec::new();
    pool.allocate(3, &mut evicted);
    assert_eq!(evicted, [BlockHash(2), BlockHash(1), BlockHash(3)]);
}

#[test]
fn a_shared_block_becomes_free_with_its_last_reference() {
    let mut pool = BlockPool::new(3);
    let chain = filled(&mut pool, &[7]);
    pool.touch(chain[0]);
    pool.release(&chain);
    assert!(!pool.is_free(chain[0]));
    pool.release(&chain);
    assert!(pool.is_free(chain[0]));
}

#[test]
fn each_copy_of_a_hash_is_evicted_on_its_own() {
    let mut pool = BlockPool::new(3);
    let first = filled(&mut pool, &[9]);
    let second = filled(&mut pool, &[9]);
    assert_eq!(pool.lookup(BlockHash(9)), first.first().copied());
    pool.release(&first);
    pool.release(&second);
    let mut evicted = Vec::new();
    pool.allocate(1, &mut evicted);
    assert_eq!(evicted, [BlockHash(9)]);
    assert_eq!(pool.lookup(BlockHash(9)), second.first().copied());
    pool.allocate(1, &mut evicted);
    assert_eq!(evicted, [BlockHash(9), BlockHash(9)]);
    assert_eq!(pool.lookup(BlockHash(9)), None);
}

#[test]
fn reset_waits_until_nothing_is_held() {
    let mut pool = BlockPool::new(3);
    let chain = filled(&mut pool, &[5]);
    assert!(!pool.reset());
    pool.release(&chain);
    assert!(pool.reset());
    assert_eq!(pool.cached_count(), 0);
    let mut evicted = Vec::new();
    pool.allocate(2, &mut evicted);
    assert!(
        evicted.is_empty(),
        "a reset block has nothing left to evict"
    );
}
