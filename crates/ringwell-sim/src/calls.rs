//! Simulates calls to the numbers that visitors have seen, while faults happen.
//!
//! A call is attributed once, at its first event. The simulation uses the same look-up as
//! `ringwell-calls`. The look-up finds the visitor who held the number at the wall-clock time of
//! that event. Owns the choice of the numbers to call, and the rules for wrong answers. It is not a
//! violation if a node cannot answer: the call is then connected without attribution.

use ringwell_core::Millis;
use ringwell_driver::platform::CLOCK_DIFFERENCE_MIN_MS;
use ringwell_engine::{Missing, Moment};

use crate::event::Rung;
use crate::fault::Kind;
use crate::model::{Grant, Judged, Wanted};
use crate::pace::{MS, ORIGIN_US};
use crate::world::World;

/// The look-ups of calls are numbered from this value on. The look-ups at the end of a run are
/// numbered from zero.
const FIRST: usize = 1 << 32;

impl World {
    /// Calls a number that has not been given to another visitor since its visitor saw it. With
    /// [`Kind::CallLate`], may instead report a call from before the number went to another
    /// visitor.
    pub(crate) fn ring(&mut self) {
        // Assumes that the call began slightly before now, because the clocks of owners may differ
        // slightly.
        let Some(latest_us) = self.now().checked_sub(self.dated_within_us()) else { return };
        let within_us = self.dated_within_us();
        let began_us = |wanted: &Wanted| {
            wanted.next_us.map_or(Some(latest_us), |next_us| next_us.checked_sub(within_us))
        };
        let counts = |grant: &Grant| {
            let home = self.cluster.home(grant.shard);
            // The clock of a paused node may be set before the node answers, so grants of paused
            // nodes are left out.
            let goes_on = self.nodes[home].paused_until <= self.now();
            goes_on && self.is_dated(home, grant.true_us) && self.is_dated(home, latest_us)
        };
        let dated = self.shared.model.borrow().dated_attributions(counts);
        let can_ring = |wanted: &Wanted| {
            let home = self.cluster.home(wanted.shard);
            let is_dated =
                |began_us| wanted.true_us + within_us < began_us && self.is_dated(home, began_us);
            began_us(wanted).is_some_and(is_dated)
        };
        let (mut seen, mut former): (Vec<Wanted>, Vec<Wanted>) =
            dated.into_iter().filter(can_ring).partition(|wanted| wanted.next_us.is_none());
        if !former.is_empty() && self.faults.strikes(Kind::CallLate) {
            std::mem::swap(&mut seen, &mut former);
        }
        if seen.is_empty() {
            return;
        }
        let drawn = self.faults.stream(Kind::Call).below(seen.len() as u64);
        let mut wanted = seen.swap_remove(usize::try_from(drawn).unwrap_or(0));
        // The node that handed the number out again may be down.
        wanted.end_us = None;
        let home = self.cluster.home(wanted.shard);
        let asked = self.receiver(home);
        // A node dates a call by its own wall clock.
        let skew_us = self.shared.clocks[asked].skew_us.get();
        let Some(began_us) = began_us(&wanted) else { return };
        let at = (ORIGIN_US + began_us).saturating_add_signed(skew_us);
        let at = Moment::Wall(Millis(at / 1000));
        let which = FIRST + self.rung.len();
        self.begin_look_up(which, &wanted, at, asked);
        let has_gaps = self.has_gaps();
        self.rung.push(Rung { which, wanted, at, has_gaps });
    }

    /// Returns the node that receives a call to a number of node `home`. This is usually `home`,
    /// whose clock is right. With [`Kind::CallElsewhere`], it is another node, whose clock may be
    /// wrong.
    fn receiver(&mut self, home: usize) -> usize {
        let is_elsewhere = self.faults.strikes(Kind::CallElsewhere);
        let serves = |node: &usize| {
            let machine = &self.nodes[*node];
            let is_serving = machine.running.as_ref().is_some_and(|running| running.is_serving);
            // Smaller differences do not count.
            let skew_us = self.shared.clocks[*node].skew_us.get().unsigned_abs();
            let is_counted = skew_us == 0 || skew_us >= CLOCK_DIFFERENCE_MIN_MS * 1_000 + MS;
            *node != home && is_serving && is_counted && machine.paused_until <= self.now()
        };
        let mut others = (0..self.nodes.len()).filter(serves);
        others.next().filter(|_| is_elsewhere).unwrap_or(home)
    }

    /// Checks that each attribution names the visitor who was shown the number.
    pub(crate) fn check_calls(&mut self) -> Judged {
        for Rung { which, mut wanted, at, has_gaps } in std::mem::take(&mut self.rung) {
            // The number may have been handed out again before the look-up was answered. In that
            // case, the first visitor's record may already have been dropped, and a wrong clock may
            // date the next visitor's allocation before the call.
            let was_right = {
                let model = self.shared.model.borrow();
                let later = model.grants_after(&wanted);
                wanted.is_newest &= later.is_empty();
                // A node that requests another node's history corrects all times by the present
                // difference between the two clocks.
                let is_right = |home| wanted.next_us.is_none() || self.was_right(home, self.now());
                later.iter().all(|it| {
                    let home = self.cluster.home(it.shard);
                    self.was_right(home, it.true_us) && is_right(home)
                })
            };
            // If there is no answer, the node was down, or it stopped before it answered. If the
            // visitor's record was not on the disk in time, the call is looked up again later.
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
