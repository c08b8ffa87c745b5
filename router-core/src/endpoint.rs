//! Identities of endpoints, holders and tiers.

use core::fmt;

/// Number of an endpoint (one addressable engine rank); not reused within an epoch of the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

/// Number of a holder: one (endpoint, tier, incarnation). It is the bit number in holder sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(pub u32);

/// Where a block lives, from the engine's `medium`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Accelerator memory (`GPU`, absent or empty).
    Gpu,
    /// Host memory (`CPU`, `CPU_TIER1`).
    Cpu,
    /// Local or shared storage (`STORAGE`, `DISK`).
    Disk,
}

impl Tier {
    /// All tiers, fastest first.
    pub const ALL: [Self; 3] = [Self::Gpu, Self::Cpu, Self::Disk];

    /// Reads an engine's `medium`, compared without case; `None` when the name is not known.
    pub fn from_medium(medium: Option<&str>) -> Option<Self> {
        let Some(name) = medium else {
            return Some(Self::Gpu);
        };
        let is = |word: &str| name.eq_ignore_ascii_case(word);
        let starts = |word: &str| {
            name.get(..word.len())
                .is_some_and(|head| head.eq_ignore_ascii_case(word))
        };
        if name.is_empty() || is("gpu") || is("device") || is("hbm") {
            Some(Self::Gpu)
        } else if is("cpu") || is("host") || is("dram") || starts("cpu_") {
            Some(Self::Cpu)
        } else if is("disk") || is("storage") || is("ssd") || is("nvme") {
            Some(Self::Disk)
        } else {
            None
        }
    }

    /// The tier's name on the wire and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Cpu => "cpu",
            Self::Disk => "disk",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medium_is_read_without_case_and_absent_means_gpu() {
        for (medium, tier) in [
            (None, Some(Tier::Gpu)),
            (Some(""), Some(Tier::Gpu)),
            (Some("GPU"), Some(Tier::Gpu)),
            (Some("cpu"), Some(Tier::Cpu)),
            (Some("CPU_TIER1"), Some(Tier::Cpu)),
            (Some("cpu_pinned"), Some(Tier::Cpu)),
            (Some("Host"), Some(Tier::Cpu)),
            (Some("DISK"), Some(Tier::Disk)),
            (Some("NVMe"), Some(Tier::Disk)),
            (Some("Device"), Some(Tier::Gpu)),
            (Some("cpus"), None),
            (Some("Storage"), Some(Tier::Disk)),
            (Some("tape"), None),
        ] {
            assert_eq!(Tier::from_medium(medium), tier, "{medium:?}");
        }
    }
}
