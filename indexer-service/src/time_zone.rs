//! Where a server's clock stands: an offset, or a zone whose offset changes.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A server's local time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Seconds ahead of UTC.
    Offset(i32),
    /// A zone of the IANA database.
    Zone(TimeZone),
}

impl Clock {
    /// The zone of this name, such as `Europe/Zurich`; `None`: there is none.
    pub fn zone(name: &str) -> Option<Self> {
        TimeZone::get(name).ok().map(Self::Zone)
    }

    /// Seconds ahead of UTC at `time`.
    pub fn offset_s(&self, time: SystemTime) -> i32 {
        match self {
            Self::Offset(seconds) => *seconds,
            Self::Zone(zone) => {
                // Times beyond the year 9999 have no offset that matters.
                let at = Timestamp::try_from(time).unwrap_or_default();
                zone.to_offset(at).seconds()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_zone_follows_its_daylight_saving() {
        let at = |unix_s| SystemTime::UNIX_EPOCH + Duration::from_secs(unix_s);
        let zurich = Clock::zone("Europe/Zurich").unwrap();
        // 2026-03-29 01:00 UTC, and a second before.
        assert_eq!(zurich.offset_s(at(1_774_746_000 - 1)), 3600);
        assert_eq!(zurich.offset_s(at(1_774_746_000)), 7200);
        assert_eq!(
            Clock::zone("America/New_York")
                .unwrap()
                .offset_s(at(1_774_746_000)),
            -14400
        );
        assert_eq!(Clock::zone("UTC").unwrap().offset_s(at(0)), 0);
        assert_eq!(Clock::Offset(-60).offset_s(at(0)), -60);
        assert_eq!(Clock::zone("Europe/Nowhere"), None);
    }
}
