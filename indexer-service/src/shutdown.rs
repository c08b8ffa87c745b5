//! One signal that ends every task.

use tokio::sync::watch;

/// Waits for the signal; clones wait for the same one.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// Gives the signal, also by being dropped.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// A trigger and what waits for it.
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    /// Gives the signal.
    pub fn shut_down(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Returns once the signal is given, at once where it was.
    pub async fn wait(mut self) {
        // An error means that the trigger is gone, which is the signal too.
        let _ = self.0.wait_for(|&given| given).await;
    }
}

/// Returns at SIGINT or SIGTERM.
///
/// # Errors
/// The handlers can't be set.
pub async fn signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_signal_reaches_all_and_comes_also_by_dropping() {
        let (trigger, shutdown) = channel();
        let other = shutdown.clone();
        trigger.shut_down();
        shutdown.wait().await;
        other.wait().await;
        let (trigger, shutdown) = channel();
        drop(trigger);
        shutdown.wait().await;
    }
}
