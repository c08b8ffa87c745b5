//! An allocator that counts while it is asked to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

/// The system's allocator; outside of [`count`] it costs one load more.
#[derive(Debug)]
pub struct Counting;

/// What a piece of work allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that got new or larger memory.
    pub calls: u64,
    /// Bytes that they asked for; of a larger piece only what it grew by.
    pub bytes: u64,
    /// Most bytes that were in use at one time, beyond those in use at the start.
    pub peak: u64,
}

/// Counts what `work` allocates, on all threads.
pub fn count<T>(work: impl FnOnce() -> T) -> (T, Counts) {
    // Live bytes start in the middle: what was allocated before may be freed meanwhile.
    const MIDDLE: u64 = 1 << 62;
    for counter in [&CALLS, &BYTES] {
        counter.store(0, Relaxed);
    }
    LIVE.store(MIDDLE, Relaxed);
    PEAK.store(MIDDLE, Relaxed);
    IS_COUNTING.store(true, Relaxed);
    let result = work();
    IS_COUNTING.store(false, Relaxed);
    let counts = Counts {
        calls: CALLS.load(Relaxed),
        bytes: BYTES.load(Relaxed),
        peak: PEAK.load(Relaxed) - MIDDLE,
    };
    (result, counts)
}

fn grown(bytes: usize) {
    if IS_COUNTING.load(Relaxed) {
        CALLS.fetch_add(1, Relaxed);
        BYTES.fetch_add(bytes as u64, Relaxed);
        let live = LIVE.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        PEAK.fetch_max(live, Relaxed);
    }
}

fn shrunk(bytes: usize) {
    if IS_COUNTING.load(Relaxed) {
        LIVE.fetch_sub(bytes as u64, Relaxed);
    }
}

#[expect(
    unsafe_code,
    reason = "an allocator is an unsafe trait; every call goes to the system's"
)]
// SAFETY: all memory comes from and goes to `System`, with the layouts that the caller gave.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's promises hold for `System` too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrunk(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match size.checked_sub(layout.size()) {
            Some(more) => grown(more),
            None => shrunk(layout.size() - size),
        }
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
