//! Reports decisions made by one process's shards to the judge.

use std::cell::RefCell;
use std::rc::Rc;

use ringwell_core::{Millis, PromoNumber};
use ringwell_driver::Watch;
use ringwell_driver::watch::Served;
use ringwell_engine::{Engine, Outcome};

use super::judge::{Grant, Judge};
use crate::machine::Shared;
use crate::message::Mark;

/// Observes a process for the judge.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) shared: Rc<Shared>,
    pub(super) judge: Rc<RefCell<Judge>>,
    /// The number of the process in the run.
    pub(super) process: u64,
}

impl Watch for Watcher {
    fn served(&self, shard: u16, engine: &Engine, row: &Served<'_>) {
        let text = String::from_utf8_lossy(&row.params.concat()).into_owned();
        let Some(mark) = Mark::read(&text) else { return };
        let Outcome::Allocated { number } = row.outcome else { return };
        self.judge.borrow_mut().granted(Grant {
            process: self.process,
            batch: mark.batch,
            row: mark.row,
            shard,
            pool: row.pool.0,
            number: number.to_code(),
            true_us: self.shared.now.get(),
            at_ms: row.at.0,
            group: engine.newest_group(),
            params: text,
        });
    }

    fn withdrawn(&self, _: u16, _: &Engine, _: PromoNumber, _: [Millis; 2]) {}

    fn released(&self, _: u16, _: PromoNumber, _: Millis) {}

    fn changed(&self, _: u16) {}

    fn answers_lost(&self, _: u16) {}
}
