//! Simulated time, on a paused clock and without HTTP.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::config::Timing;
use crate::sequence::Scope;

/// tokio's timers are as coarse as a millisecond.
const COARSENESS: Duration = Duration::from_millis(2);

async fn engine(timing: Timing) -> Engine {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tinybpe");
    let config = EngineConfig {
        timing,
        events: None,
        ..EngineConfig::new("e", model)
    };
    start(config).await.unwrap()
}

fn timing() -> Timing {
    Timing {
        prefill_tokens_per_s: 1_000.0,
        chunk_tokens: 500,
        decode_ms_per_token: 10.0,
        decode_slowdown_per_running: 0.5,
    }
}

impl Engine {
    async fn submit(&self, first: u32, tokens: u32, output: usize) -> mpsc::Receiver<TokenUpdate> {
        let request = Request {
            id: self.shared.next_id(),
            prompt: (first..first + tokens).collect(),
            output: vec![1; output],
            scope: Scope::default(),
            session_id: None,
            reports_reused: false,
        };
        self.shared.submit(request).await
    }
}

/// Waits for `count` tokens; gives the time since `from`.
async fn tokens(
    receiver: &mut mpsc::Receiver<TokenUpdate>,
    count: usize,
    from: Instant,
) -> Duration {
    for _ in 0..count {
        receiver.recv().await.unwrap();
    }
    from.elapsed()
}

fn is_near(measured: Duration, expected_ms: u64) -> bool {
    let expected = Duration::from_millis(expected_ms);
    measured >= expected && measured <= expected + COARSENESS
}

#[tokio::test(start_paused = true)]
async fn the_first_token_takes_time_per_uncached_token() {
    let engine = engine(timing()).await;
    let mut cold = engine.submit(0, 400, 1).await;
    let cold = tokens(&mut cold, 1, Instant::now()).await;
    assert!(is_near(cold, 400), "{cold:?}");
    let mut warm = engine.submit(0, 420, 1).await;
    let warm = tokens(&mut warm, 1, Instant::now()).await;
    assert!(is_near(warm, 20), "{warm:?}");
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn prefills_wait_for_each_other_in_order_of_arrival() {
    let engine = engine(timing()).await;
    let now = Instant::now();
    let mut first = engine.submit(0, 1_000, 1).await;
    let mut second = engine.submit(5_000, 1_000, 1).await;
    let first = tokens(&mut first, 1, now).await;
    assert!(is_near(first, 1_000), "{first:?}");
    let second = tokens(&mut second, 1, now).await;
    assert!(is_near(second, 2_000), "{second:?}");
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn decoding_slows_with_the_number_of_running_requests() {
    let engine = engine(Timing {
        prefill_tokens_per_s: f64::INFINITY,
        ..timing()
    })
    .await;
    let now = Instant::now();
    let mut alone = engine.submit(0, 10, 11).await;
    let alone = tokens(&mut alone, 11, now).await;
    assert!(is_near(alone, 100), "{alone:?}");
    let now = Instant::now();
    let mut three = Vec::new();
    for number in 0..3 {
        three.push(engine.submit(number * 100, 10, 11).await);
    }
    let together = tokens(&mut three[2], 11, now).await;
    assert!(together >= Duration::from_millis(200), "{together:?}");
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_frees_its_blocks() {
    let engine = engine(timing()).await;
    let mut leaving = engine.submit(0, 100, 1_000).await;
    leaving.recv().await.unwrap();
    assert_eq!(engine.stats().running, 1);
    drop(leaving);
    sleep(Duration::from_millis(100)).await;
    assert_eq!((engine.stats().running, engine.stats().used_blocks), (0, 0));
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_engine_stands_still_until_it_is_released() {
    let engine = engine(timing()).await;
    engine.inject(Fault::Hang);
    let mut receiver = engine.submit(0, 100, 2).await;
    assert!(
        timeout(Duration::from_mins(1), receiver.recv())
            .await
            .is_err()
    );
    engine.inject(Fault::None);
    assert!(receiver.recv().await.is_some());
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn stopping_ends_requests_and_joins_everything() {
    let engine = engine(timing()).await;
    let mut receiver = engine.submit(0, 100, 1_000).await;
    receiver.recv().await.unwrap();
    engine.shutdown().await;
    while receiver.recv().await.is_some() {}
}
