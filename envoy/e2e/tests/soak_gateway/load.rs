//! Clients that go on until they are told to pause or to end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use prefixway::demo::process::wait_for;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::corpus::Corpus;
use crate::ledger::Ledger;

/// Clients at once.
const CLIENTS: u64 = 16;
/// Longest wait for the requests under way.
const LIMIT: Duration = Duration::from_mins(1);

/// The clients; dropping it ends them.
#[derive(Debug)]
pub(crate) struct Load {
    goes_on: watch::Sender<bool>,
    busy: Arc<AtomicUsize>,
    clients: JoinSet<()>,
}

impl Load {
    /// Clients that wait to be let go.
    pub(crate) fn new(gateway: SocketAddr, seed: u64, ledger: &Arc<Ledger>) -> Self {
        let goes_on = watch::Sender::new(false);
        let busy = Arc::new(AtomicUsize::new(0));
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let corpus = Corpus::new(seed, number);
            let (goes_on, busy) = (goes_on.subscribe(), Arc::clone(&busy));
            clients.spawn(go_on(gateway, corpus, goes_on, busy, Arc::clone(ledger)));
        }
        Self {
            goes_on,
            busy,
            clients,
        }
    }

    /// Lets them go on.
    pub(crate) fn resume(&self) {
        self.goes_on.send_replace(true);
    }

    /// Lets what is under way end, and nothing else begin.
    pub(crate) async fn pause(&self) -> anyhow::Result<()> {
        self.goes_on.send_replace(false);
        wait_for("the requests under way", LIMIT, async || {
            (self.busy.load(Ordering::SeqCst) == 0).then_some(())
        })
        .await?;
        anyhow::ensure!(self.clients.len() as u64 == CLIENTS, "a client has ended");
        Ok(())
    }
}

async fn go_on(
    gateway: SocketAddr,
    mut corpus: Corpus,
    mut goes_on: watch::Receiver<bool>,
    busy: Arc<AtomicUsize>,
    ledger: Arc<Ledger>,
) {
    let mut client = Client::new(gateway);
    loop {
        // Counted before the look at the sign: a pause that sees nobody busy is one.
        busy.fetch_add(1, Ordering::SeqCst);
        if *goes_on.borrow() {
            let (kind, ask) = corpus.draw();
            let from = Instant::now();
            let end = client.send(&ask).await;
            ledger.ended(kind, &ask, &end, from);
        }
        busy.fetch_sub(1, Ordering::SeqCst);
        if *goes_on.borrow() {
            tokio::time::sleep(corpus.pause()).await;
        } else if goes_on.wait_for(|goes_on| *goes_on).await.is_err() {
            return;
        }
    }
}
