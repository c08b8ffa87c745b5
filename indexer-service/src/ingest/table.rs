//! How large the published table may be, and what is done when it would be larger: fewer rungs are published.
//!
//! ```text
//!  a gateway comes with less room ─┐
//!  the table has no room any more ─┴─► a new epoch with half as many rungs, until they fit
//!  a quarter of the room would do for twice as many, looked at every 20 s ─► a new epoch with twice as many
//! ```
//!
//! All gateways are sent the same table, so the one with the least room decides. Which rungs are left follows from their hashes; what a prompt is
//! found to have is less exact then, and never more than is held.

use std::time::{Duration, Instant};

use prefixway_core::hash::Seed;
use prefixway_core::index::Changes;
use prefixway_core::snapshot::{PublishError, Publisher, PublisherConfig, Thinning};

use super::{Ingest, IngestError, RING_DELTAS};
use crate::config::Config;
use crate::metrics::Reason;

/// The least that a table is made for; a gateway with less room than that goes without.
const MIN_BYTES: u64 = 1 << 20;
/// Time between two looks at whether more rungs would fit.
const RELAX: Duration = Duration::from_secs(20);

impl Ingest {
    /// What the table may take: of a gateway's room three quarters, since images there are divided in another way.
    fn table_bytes(&self, newcomer: u64) -> usize {
        let rooms = [self.gateways.table_bytes(), Some(newcomer)];
        let said = rooms.into_iter().flatten().filter(|room| *room > 0).min();
        let fits = said.map_or(u64::MAX, |room| (room / 4 * 3).max(MIN_BYTES));
        usize::try_from(self.config.index.max_bytes.min(fits)).unwrap_or(usize::MAX)
    }

    /// A gateway subscribes that has so much room for a table; 0 = it does not say.
    pub(super) fn make_room(&mut self, newcomer: u64) {
        let max_bytes = self.table_bytes(newcomer);
        self.publisher.set_max_bytes(max_bytes);
        if self.publisher.table().bytes() > max_bytes {
            self.begin_epoch(self.publisher.table().thinning());
        }
    }

    /// Publishes more rungs again, when there is room for them.
    pub(super) fn relax_table(&mut self, now: Instant) {
        if now < self.relax_at {
            return;
        }
        self.relax_at = now + RELAX;
        let max_bytes = self.table_bytes(0);
        self.publisher.set_max_bytes(max_bytes);
        let table = self.publisher.table();
        if let Some(less) = table.thinning().less()
            && table.bytes() < max_bytes / 4
        {
            self.begin_epoch(less);
        }
    }

    /// The table has no room for a change.
    pub(super) fn table_is_full(&mut self, error: &PublishError) {
        let thinning = self.publisher.table().thinning();
        tracing::warn!(%error, "can't publish all rungs");
        self.begin_epoch(thinning.more().unwrap_or(thinning));
    }

    /// A new version line, with as many of the rungs as there is room for, but no more than asked.
    fn begin_epoch(&mut self, most: Thinning) {
        let max_bytes = self.publisher.max_bytes();
        let all = Changes {
            upserts: self.index.all_rungs().collect(),
            removes: Vec::new(),
        };
        let mut thinning = Some(most);
        while let Some(level) = thinning {
            match publisher(&self.config, self.seed, level, max_bytes) {
                Ok(publisher) => self.publisher = publisher,
                Err(error) => tracing::error!(%error, "can't begin a new epoch"),
            }
            thinning = match self.publisher.apply(&all) {
                Ok(_) => None,
                Err(_) => level.more(),
            };
        }
        let level = self.publisher.table().thinning().level();
        self.metrics.table_thinning.set(i64::from(level));
        if level == 0 {
            tracing::info!("all rungs are published");
        } else {
            tracing::warn!(
                max_bytes,
                "one of {} rungs is published, so that the table fits: prefixes are credited less exactly; hint: raise limits.max_vm_bytes of \
                 the gateways, or index.max_bytes where that is less",
                1 << level
            );
        }
        self.gateways.close_all(Reason::Epoch);
    }
}

/// A publisher of nothing, under a new epoch.
pub(super) fn publisher(
    config: &Config,
    seed: Seed,
    thinning: Thinning,
    max_bytes: usize,
) -> Result<Publisher, IngestError> {
    let mut epoch = [0u8; 8];
    getrandom::fill(&mut epoch).map_err(IngestError::Random)?;
    Ok(Publisher::try_new(PublisherConfig {
        epoch: u64::from_le_bytes(epoch).max(1),
        seed,
        shard: config.shard.clone(),
        ring_deltas: RING_DELTAS,
        max_bytes,
        thinning,
    })?)
}
