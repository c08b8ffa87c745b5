//! CPU time of the thread: everything here runs on one, and a busy machine takes others' time into the wall clock.

use std::time::Duration;

#[derive(Clone, Copy)]
pub struct Instant(Duration);

impl Instant {
    pub fn now() -> Self {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a local of the right type.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        assert_eq!(result, 0, "the thread has a CPU clock");
        Self(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    pub fn elapsed(self) -> Duration {
        Self::now().0 - self.0
    }
}
