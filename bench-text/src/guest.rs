//! The exports of the wasm module.
//!
//! A host gives bytes by writing them where `reserve` says. All numbers are finite; a phase that does not exist takes no time.

use std::cell::RefCell;

use crate::counting::Counts;
use crate::subject::{Phase, Subject};

#[expect(unsafe_code, reason = "the host's clock")]
unsafe extern "C" {
    /// Nanoseconds since some time.
    fn bench_now() -> f64;
}

thread_local! {
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static PROFILE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static SUBJECT: RefCell<Option<Subject>> = const { RefCell::new(None) };
    static COUNTS: RefCell<Counts> = RefCell::new(Counts::default());
}

#[expect(unsafe_code, reason = "the host's clock")]
fn now() -> f64 {
    // SAFETY: the host provides it and it takes nothing.
    unsafe { bench_now() }
}

/// Makes room for `bytes` bytes, and tells where.
#[expect(unsafe_code, reason = "export")]
#[unsafe(no_mangle)]
extern "C" fn reserve(bytes: usize) -> usize {
    INPUT.with_borrow_mut(|input| {
        *input = vec![0; bytes];
        input.as_mut_ptr() as usize
    })
}

/// Takes what was written as the profile.
#[expect(unsafe_code, reason = "export")]
#[unsafe(no_mangle)]
extern "C" fn take_profile() {
    PROFILE.set(INPUT.take());
}

/// Takes what was written as the body; 1 when it has text under the profile, else 0.
#[expect(unsafe_code, reason = "export")]
#[unsafe(no_mangle)]
extern "C" fn take_body() -> u32 {
    let subject = PROFILE.with_borrow(|profile| Subject::try_new(profile, INPUT.take()).ok());
    let is_usable = subject.is_some();
    SUBJECT.set(subject);
    u32::from(is_usable)
}

/// Nanoseconds of one run of a phase.
#[expect(unsafe_code, reason = "export")]
#[unsafe(no_mangle)]
extern "C" fn measure(phase: u32, rounds: u32) -> f64 {
    let Some(phase) = Phase::from_number(phase) else {
        return 0.0;
    };
    SUBJECT.with_borrow_mut(|subject| {
        subject
            .as_mut()
            .map_or(0.0, |subject| subject.measure(phase, rounds, now))
    })
}

/// Counts what a phase allocates; the three getters below tell.
#[expect(unsafe_code, reason = "export")]
#[unsafe(no_mangle)]
extern "C" fn count(phase: u32) {
    let counts = SUBJECT.with_borrow(|subject| {
        let phase = Phase::from_number(phase)?;
        Some(subject.as_ref()?.count(phase))
    });
    COUNTS.set(counts.unwrap_or_default());
}

/// Allocations.
#[expect(unsafe_code, reason = "export")]
#[unsafe(no_mangle)]
extern "C" fn counted_calls() -> f64 {
    COUNTS.with_borrow(|counts| counts.calls as f64)
}

/// Their bytes.
#[expect(unsafe_code, reason = "export")]
#[unsafe(no_mangle)]
extern "C" fn counted_bytes() -> f64 {
    COUNTS.with_borrow(|counts| counts.bytes as f64)
}

/// Most bytes in use.
#[expect(unsafe_code, reason = "export")]
#[unsafe(no_mangle)]
extern "C" fn counted_peak() -> f64 {
    COUNTS.with_borrow(|counts| counts.peak as f64)
}
