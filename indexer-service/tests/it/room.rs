//! Gateways that have no room for all rungs.

use crate::support::indexer::{Chain, Gateway, get, ready, settings, start};
use crate::support::publisher::Publisher;
use crate::support::{DEADLINE, eventually};

/// Some 68,000 rungs, 1.6 MB.
const CHAINS: u64 = 400;
const BLOCKS: u32 = 150;
/// Three quarters of it are too little for them.
const ROOM: usize = 1_600_000;

fn level(gateway: &Gateway) -> u32 {
    gateway.replica.snapshot().table.thinning().level()
}

fn is_held(gateway: &Gateway, chain: &Chain) -> bool {
    let full = chain.credit(BLOCKS as usize);
    let credit = gateway.credits(&chain.text).first().copied();
    credit.is_some_and(|credit| credit <= full && credit >= full / 4 * 3)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_with_the_least_room_decides_how_many_rungs_are_published() {
    let mut publisher = Publisher::bind_anywhere();
    let running = start(&settings(&[&publisher])).await;
    ready(&running).await;
    let chains: Vec<Chain> = (1..=CHAINS).map(|seed| Chain::new(seed, BLOCKS)).collect();
    for chain in &chains {
        publisher.publish(&chain.stored(0, BLOCKS as usize));
    }
    let last = &chains[chains.len() - 1];
    let mut large = Gateway::connect(running.grpc(), "large").await;
    large.holds(last, &[BLOCKS as usize]).await;
    assert_eq!(level(&large), 0);
    let all = large.replica.snapshot().table.len();
    drop(large);

    let mut small = Gateway::with_room(running.grpc(), "small", ROOM).await;
    small
        .until("a base", |gateway| (gateway.bases == 1).then_some(()))
        .await;
    assert!(level(&small) > 0 && small.replica.snapshot().table.len() < all / 2 + all / 10);
    assert!(chains.iter().all(|chain| is_held(&small, chain)));
    let page = get(running.http(), "/metrics").await.1;
    let line = format!("prefixway_table_thinning {}", level(&small));
    assert!(page.lines().any(|found| found == line), "no {line}");

    // What is new is as coarse, and what goes is gone.
    let new = Chain::new(CHAINS + 1, BLOCKS);
    publisher.publish(&new.stored(0, BLOCKS as usize));
    small
        .until("a new chain", |gateway| {
            is_held(gateway, &new).then_some(())
        })
        .await;
    publisher.publish(&new.removed(0));
    small
        .until("its first block gone", |gateway| {
            (gateway.credits(&new.text) != [0]).then_some(())
        })
        .await;
    drop(small);

    // Without it there is room again, in a while.
    eventually("all rungs", async || {
        let page = get(running.http(), "/metrics").await.1;
        page.contains("prefixway_table_thinning 0\n").then_some(())
    })
    .await;
    let mut large = Gateway::connect(running.grpc(), "large").await;
    large.holds(last, &[BLOCKS as usize]).await;
    assert_eq!(level(&large), 0, "within {DEADLINE:?}");
    running.shut_down().await.unwrap();
}
