//! An allocator that counts while it is asked to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// What this thread counts; `None` while it doesn't.
    static TALLY: Cell<Option<Tally>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, Default)]
struct Tally {
    counts: Counts,
    /// Less than nothing where more was freed than allocated.
    live: i64,
}

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

/// Counts what `work` allocates on this thread.
pub fn count<T>(work: impl FnOnce() -> T) -> (T, Counts) {
    TALLY.set(Some(Tally::default()));
    let result = work();
    let tally = TALLY.take().unwrap_or_default();
    (result, tally.counts)
}

fn grown(bytes: usize) {
    if let Some(mut tally) = TALLY.get() {
        tally.counts.calls += 1;
        tally.counts.bytes += bytes as u64;
        tally.live = tally.live.saturating_add_unsigned(bytes as u64);
        let live = u64::try_from(tally.live).unwrap_or(0);
        tally.counts.peak = tally.counts.peak.max(live);
        TALLY.set(Some(tally));
    }
}

fn shrunk(bytes: usize) {
    if let Some(mut tally) = TALLY.get() {
        tally.live = tally.live.saturating_sub_unsigned(bytes as u64);
        TALLY.set(Some(tally));
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
