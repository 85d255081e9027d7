//! Callers, who call numbers that visitors have seen, while faults happen.
//!
//! A call is attributed once, at its first event, by the same look-up as in `ringwell-calls`, which
//! finds the number's holder at that time, by the wall clock. Owns the choice of numbers to call,
//! and the decision which answers are wrong. A node that cannot answer is not a fault: the caller
//! is connected without a visitor.

use ringwell_core::Millis;
use ringwell_engine::{Missing, Moment};

use crate::event::Rung;
use crate::fault::Kind;
use crate::model::{Grant, Judged, Wanted};
use crate::world::{ORIGIN_US, World};

/// Look-ups of calls are numbered from this value; those at the end of a run from zero.
const FIRST: usize = 1 << 32;

impl World {
    /// Calls a number that no other visitor has been given since its visitor saw it.
    pub(crate) fn ring(&mut self) {
        // Assumes a slightly earlier beginning, because owners' clocks may differ by that much.
        let Some(began_us) = self.now().checked_sub(self.dated_within_us()) else { return };
        let counts = |grant: &Grant| {
            let home = self.cluster.home(grant.shard);
            // The node's clock may be set before it continues and answers.
            let goes_on = self.nodes[home].paused_until <= self.now();
            goes_on && self.is_dated(home, grant.true_us) && self.is_dated(home, began_us)
        };
        let dated = self.shared.model.borrow().dated_attributions(counts);
        let can_ring = |wanted: &Wanted| {
            wanted.next_us.is_none() && wanted.true_us + self.dated_within_us() < began_us
        };
        let mut seen: Vec<Wanted> = dated.into_iter().filter(can_ring).collect();
        if seen.is_empty() {
            return;
        }
        let drawn = self.faults.stream(Kind::Call).below(seen.len() as u64);
        let wanted = seen.swap_remove(usize::try_from(drawn).unwrap_or(0));
        let at = Moment::Wall(Millis((ORIGIN_US + began_us) / 1000));
        let which = FIRST + self.rung.len();
        self.begin_look_up(which, &wanted, at);
        let has_gaps = self.has_gaps();
        self.rung.push(Rung { which, wanted, at, has_gaps });
    }

    /// Checks that each attributed call names the visitor who was shown its number.
    pub(crate) fn check_calls(&mut self) -> Judged {
        for Rung { which, mut wanted, at, has_gaps } in std::mem::take(&mut self.rung) {
            // The number may have gone out again before the answer: the visitor's record need not be
            // kept any more, and a wrong clock may date the next visitor before the call.
            let was_right = {
                let model = self.shared.model.borrow();
                let later = model.grants_after(&wanted);
                wanted.is_newest &= later.is_empty();
                later.iter().all(|it| self.was_right(self.cluster.home(it.shard), it.true_us))
            };
            // Unanswered: the node was down, or ended in the meantime. If the disk was too slow for
            // the visitor's record, the call is looked up again later.
            let answer = self.looked.remove(&which).and_then(Result::ok);
            let answer = answer.filter(|it| was_right && (it.held.is_some() || !has_gaps));
            if let Some(found) = answer.filter(|it| it.missing != Some(Missing::TooLong)) {
                self.attributed_calls += u64::from(found.held.is_some());
                self.check_attribution(&wanted, at, Ok(found))?;
            }
        }
        Ok(())
    }
}
