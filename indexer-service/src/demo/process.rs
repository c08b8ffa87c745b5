//! Child processes that never outlive their owner, and waiting with a deadline.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::Instant;

/// Lines of a log that an error quotes.
const QUOTED_LINES: usize = 15;
/// Pause between two looks at a condition.
const POLL: Duration = Duration::from_millis(20);

/// What can go wrong with a child process.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The program could not be started.
    #[error("cannot start {name} ({program})")]
    Start {
        /// What it is.
        name: String,
        /// The program's path.
        program: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A file or a socket that a process needs could not be made.
    #[error("cannot prepare {what}")]
    Prepare {
        /// File or address.
        what: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// It ended although it should be running.
    #[error("{name} ended early ({status}); its last lines:\n{log}")]
    Ended {
        /// What it is.
        name: String,
        /// Exit status.
        status: std::process::ExitStatus,
        /// End of its log.
        log: String,
    },
    /// A condition did not come true in time.
    #[error("waited {waited:?} for {what}")]
    Deadline {
        /// The condition.
        what: String,
        /// How long.
        waited: Duration,
    },
}

/// A running child. Dropping it kills it; its output goes to a file.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with standard output and error appended to `log`.
    ///
    /// # Errors
    /// When the log cannot be opened or the program not be started.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Self, ProcessError> {
        let prepare = |source| ProcessError::Prepare {
            what: log.display().to_string(),
            source,
        };
        let output = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(prepare)?;
        let errors = output.try_clone().map_err(prepare)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| ProcessError::Start {
                name: name.to_owned(),
                program: command
                    .as_std()
                    .get_program()
                    .to_string_lossy()
                    .into_owned(),
                source,
            })?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        })
    }

    /// Its process id; `None` once it has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The end of its output.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(QUOTED_LINES);
        lines.get(from..).unwrap_or_default().join("\n")
    }

    /// Checks that it still runs.
    ///
    /// # Errors
    /// [`ProcessError::Ended`] with the end of its log when it does not.
    pub fn check(&mut self) -> Result<(), ProcessError> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(ProcessError::Ended {
                name: self.name.clone(),
                status,
                log: self.log_tail(),
            }),
            _ => Ok(()),
        }
    }

    /// Kills it at once (`SIGKILL`) and waits for its end.
    pub async fn kill(mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill().await;
    }

    /// Waits until `condition` gives a value, looking every 20 ms, and fails early when the process ends.
    ///
    /// # Errors
    /// [`ProcessError::Ended`] or [`ProcessError::Deadline`].
    pub async fn wait_for<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut condition: impl AsyncFnMut() -> Option<T>,
    ) -> Result<T, ProcessError> {
        let start = Instant::now();
        loop {
            if let Some(value) = condition().await {
                return Ok(value);
            }
            self.check()?;
            expire(what, start, limit)?;
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Waits until `condition` gives a value, looking every 20 ms.
///
/// # Errors
/// [`ProcessError::Deadline`] after `limit`.
pub async fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> Result<T, ProcessError> {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return Ok(value);
        }
        expire(what, start, limit)?;
        tokio::time::sleep(POLL).await;
    }
}

fn expire(what: &str, start: Instant, limit: Duration) -> Result<(), ProcessError> {
    if start.elapsed() < limit {
        return Ok(());
    }
    Err(ProcessError::Deadline {
        what: what.to_owned(),
        waited: limit,
    })
}

/// A loopback address that was free a moment ago, for programs that must be told their port and keep it over a restart.
///
/// # Errors
/// When the system has no free port.
pub fn free_address() -> Result<SocketAddr, ProcessError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|socket| socket.local_addr())
        .map_err(|source| ProcessError::Prepare {
            what: "a loopback port".to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn an_early_end_is_told_with_the_last_lines() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Process::start(
            "probe",
            shell("echo broken; exit 3"),
            &folder.path().join("log"),
        )
        .unwrap();
        let error = process
            .wait_for("never", Duration::from_secs(10), async || None::<()>)
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("probe ended early") && text.contains("broken"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_dropped_process_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(
            "sleeper",
            shell("exec sleep 600"),
            &folder.path().join("log"),
        )
        .unwrap();
        let status = PathBuf::from(format!("/proc/{}/stat", process.id().unwrap()));
        drop(process);
        wait_for(
            "the end of the child",
            Duration::from_secs(10),
            async || {
                // Until it is reaped a killed process is a zombie (state Z).
                let text = std::fs::read_to_string(&status).unwrap_or_default();
                (text.is_empty() || text.contains(") Z ")).then_some(())
            },
        )
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn a_condition_that_stays_false_meets_its_deadline() {
        let error = wait_for("the impossible", Duration::from_millis(30), async || {
            None::<()>
        })
        .await
        .unwrap_err();
        assert_eq!(error.to_string(), "waited 30ms for the impossible");
    }
}
