//! Sends the conversations through a gateway and collects what came back.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client::{Client, Reply, ReplyError};
use super::workload::Conversation;

/// Results waiting for the collector; far more than can be under way.
const QUEUED_RESULTS: usize = 4096;

/// One request's result.
pub type Outcome = Result<Reply, ReplyError>;

/// Everything that one run brought.
#[derive(Debug, Default)]
pub struct Run {
    /// Whole answers, in order of their end.
    pub replies: Vec<Reply>,
    /// Failures.
    pub errors: Vec<ReplyError>,
    /// From the first request to the last answer.
    pub elapsed: Duration,
}

/// Sends all conversations, each turn after the answer to the one before, and calls `progress` with each result.
///
/// A failed turn ends its conversation; the turns that cannot follow count as failed too. Dropping the future stops everything.
pub async fn run(
    client: &Client,
    conversations: &[Conversation],
    answer_tokens: u32,
    mut progress: impl FnMut(&Outcome),
) -> Run {
    let (results, mut collected) = mpsc::channel::<Outcome>(QUEUED_RESULTS);
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for conversation in conversations {
        let task = converse(
            client.clone(),
            conversation.clone(),
            answer_tokens,
            results.clone(),
        );
        tasks.spawn(async move {
            tokio::time::sleep_until(begin + task.1).await;
            task.0.await;
        });
    }
    drop(results);

    let mut run = Run::default();
    while let Some(outcome) = collected.recv().await {
        progress(&outcome);
        match outcome {
            Ok(reply) => run.replies.push(reply),
            Err(error) => run.errors.push(error),
        }
    }
    run.elapsed = begin.elapsed();
    run
}

/// The conversation's future and its start.
fn converse(
    client: Client,
    conversation: Conversation,
    answer_tokens: u32,
    results: mpsc::Sender<Outcome>,
) -> (impl Future<Output = ()>, Duration) {
    let start = conversation.start;
    let talk = async move {
        let mut messages: Vec<Value> =
            vec![json!({"role": "system", "content": conversation.system})];
        let mut broken = false;
        for (pause, text) in conversation.turns {
            if broken {
                let _ = results.send(Err(ReplyError::Cut)).await;
                continue;
            }
            tokio::time::sleep(pause).await;
            messages.push(json!({"role": "user", "content": text}));
            let outcome = client.chat(&messages, answer_tokens, &[]).await;
            match &outcome {
                Ok(reply) => messages.push(json!({"role": "assistant", "content": reply.text})),
                Err(_) => broken = true,
            }
            // The collector lives as long as this task's set.
            let _ = results.send(outcome).await;
        }
    };
    (talk, start)
}
