//! What the tests share.

pub(crate) mod engines;
pub(crate) mod indexer;
pub(crate) mod msgpack;
pub(crate) mod publisher;

use std::time::{Duration, Instant};

/// How long a test waits for an effect; generous, because the machine may be busy.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Asks until there is an answer.
///
/// # Panics
/// There is none in [`DEADLINE`].
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(start.elapsed() < DEADLINE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
