//! The turn to hand out slots, which one VM of a proxy has at a time.
//!
//! ```text
//!  free ─ take: CAS ─► of one VM, for 50 ms ─ give: CAS ─► free
//!                           │ 50 ms are over: its VM has died, or was held up
//!                           └─ take: CAS ─► of another VM; the first one's give fails, and it gives up what it has booked
//! ```
//!
//! Value, little endian: u64 nonce of the VM that has it (0: nobody), u64 ms at which it runs out.

use crate::shared::{SharedData, SharedError, read_u64};

/// Time after which a turn runs out: a VM does in microseconds what it has it for, unless it has died.
pub const TURN_MS: u64 = 50;

/// Tries to take a turn that others take at the same time.
const TRIES: usize = 3;

/// Takes and gives the turn for one VM.
#[derive(Clone, Debug)]
pub struct Turn {
    key: String,
    nonce: u64,
}

/// A turn that was taken.
#[derive(Debug)]
#[must_use = "others wait for it"]
pub struct Taken {
    cas: Option<u32>,
}

impl Turn {
    /// The turn under this key, for the VM with this nonce.
    pub fn new(key: String, nonce: u64) -> Self {
        Self { key, nonce }
    }

    /// Takes the turn; `None` while another VM has it.
    ///
    /// # Errors
    /// When the host fails.
    pub fn take(
        &self,
        now_ms: u64,
        shared: &impl SharedData,
    ) -> Result<Option<Taken>, SharedError> {
        for _ in 0..TRIES {
            let Some((bytes, cas)) = shared.get(&self.key)? else {
                // Only a value that exists can be replaced by CAS.
                shared.set(&self.key, &value(0, 0), None)?;
                continue;
            };
            let number = |at| read_u64(&bytes, at).unwrap_or(0);
            let (holder, until_ms) = (number(0), number(8));
            // A time far ahead is none of this clock's.
            let runs = until_ms > now_ms && until_ms <= now_ms.saturating_add(2 * TURN_MS);
            if holder != 0 && holder != self.nonce && runs {
                return Ok(None);
            }
            let mine = value(self.nonce, now_ms.saturating_add(TURN_MS));
            match shared.set(&self.key, &mine, cas) {
                Ok(()) => {}
                Err(SharedError::CasMismatch) => continue,
                Err(error) => return Err(error),
            }
            // Read again for the number that giving it back needs.
            if let Some((bytes, cas)) = shared.get(&self.key)?
                && bytes == mine
            {
                return Ok(Some(Taken { cas }));
            }
        }
        Ok(None)
    }

    /// Gives the turn back; `false`: it had run out and another VM has taken it since, so that what was done under it may not stand.
    ///
    /// # Errors
    /// When the host fails; then it is not known whether it may stand.
    pub fn give(&self, taken: &Taken, shared: &impl SharedData) -> Result<bool, SharedError> {
        match shared.set(&self.key, &value(0, 0), taken.cas) {
            Ok(()) => Ok(true),
            Err(SharedError::CasMismatch) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn value(holder: u64, until_ms: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    let (first, second) = bytes.split_at_mut(8);
    first.copy_from_slice(&holder.to_le_bytes());
    second.copy_from_slice(&until_ms.to_le_bytes());
    bytes
}
