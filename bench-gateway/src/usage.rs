//! CPU time as the kernel accounts it.

use std::time::Duration;

/// CPU time of a process so far, or of this one's threads whose name begins with `name`.
///
/// # Errors
/// When the system doesn't say (`/proc/PID/task/*/schedstat`).
pub(crate) fn cpu_time(process: Option<u32>, name: &str) -> anyhow::Result<Duration> {
    let process = process.map_or_else(|| "self".to_owned(), |process| process.to_string());
    let mut sum = Duration::ZERO;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?.path();
        // A thread may end at any time.
        let Ok(comm) = std::fs::read_to_string(task.join("comm")) else {
            continue;
        };
        if !comm.starts_with(name) {
            continue;
        }
        let Ok(stat) = std::fs::read_to_string(task.join("schedstat")) else {
            continue;
        };
        let on_cpu = stat.split(' ').next().unwrap_or_default();
        sum += Duration::from_nanos(on_cpu.parse()?);
    }
    Ok(sum)
}
