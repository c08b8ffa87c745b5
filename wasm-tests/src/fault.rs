//! Host calls that fail on purpose.

use crate::status::Status;

/// Makes a host call return a status without doing anything.
#[derive(Clone, Debug)]
pub struct Fault {
    call: &'static str,
    key: Option<String>,
    vm: Option<usize>,
    status: Status,
    left: Option<u32>,
}

impl Fault {
    /// Every call of `call` (its ABI name, as in `proxy_set_shared_data`) returns `status`.
    pub fn on(call: &'static str, status: Status) -> Self {
        Self {
            call,
            key: None,
            vm: None,
            status,
            left: None,
        }
    }

    /// Only calls whose key or name contains `part`.
    #[must_use]
    pub fn key(mut self, part: &str) -> Self {
        self.key = Some(part.to_owned());
        self
    }

    /// Only calls of one VM.
    #[must_use]
    pub fn vm(mut self, index: usize) -> Self {
        self.vm = Some(index);
        self
    }

    /// Only the next `times` calls.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.left = Some(times);
        self
    }

    /// The status for this call, counting it, or `None` when the fault is about another.
    pub(crate) fn hit(&mut self, vm: usize, call: &str, key: &str) -> Option<Status> {
        let fits = self.call == call
            && self.vm.is_none_or(|v| v == vm)
            && self.key.as_ref().is_none_or(|k| key.contains(k.as_str()));
        if !fits {
            return None;
        }
        match &mut self.left {
            None => Some(self.status),
            Some(0) => None,
            Some(left) => {
                *left -= 1;
                Some(self.status)
            }
        }
    }
}
