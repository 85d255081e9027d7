//! Visitors' taps on promo numbers: records them, and adds them to the allocations that a call may
//! belong to.

use ringwell_core::{Millis, PromoNumber};
use ringwell_store::Repeated;

use super::Service;
use crate::attribution::ReportedAllocation;
use crate::clock::now;
use crate::log::Tap;

/// The maximum lag of a provider's clock behind this server's clock.
const CLOCKS_DIFFER: Millis = Millis(5_000);

static UNREAD: Repeated = Repeated::new();
static DROPPED: Repeated = Repeated::new();

impl Service {
    /// Records that a visitor tapped `number` now. Never blocks.
    pub fn tapped(&self, number: PromoNumber) {
        let tap = Tap { number: format!("+{}", number.to_e164()), at: now() };
        if self.inner.taps.try_send(tap).is_err()
            && let Some(left_out) = DROPPED.pass()
        {
            tracing::warn!(
                left_out,
                "a tap on a number was dropped: too many taps are waiting for the call log"
            );
        }
    }

    /// For each allocation in `held`, adds the visitor's last tap on `number` before a call at
    /// `at`. Adds no taps if the log does not answer.
    pub(super) async fn add_taps(&self, number: &str, at: Millis, held: &mut [ReportedAllocation]) {
        let Some(oldest) = held.last().map(|it| it.allocated_at) else { return };
        let until = Millis(at.0.saturating_add(CLOCKS_DIFFER.0));
        let taps = match self.inner.log.taps(number, oldest, until).await {
            Ok(taps) => taps,
            Err(error) => {
                if !self.inner.log.reports(&error)
                    && let Some(left_out) = UNREAD.pass()
                {
                    let what = "a call is attributed without regard to visitors' taps";
                    tracing::warn!(%error, left_out, "{what}");
                }
                return;
            }
        };
        // `taps` and `held` are sorted newest first. A tap belongs to the newest allocation before
        // it.
        for tap in taps {
            let of = held.iter_mut().find(|it| it.allocated_at <= tap);
            if let Some(held) = of {
                held.tapped_at = held.tapped_at.max(Some(tap));
            }
        }
    }
}
