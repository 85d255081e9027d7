//! The platform of one process: the machine of the other runs, which also reports its shards'
//! decisions to the judge.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use ringwell_core::{Millis, PromoNumber};
use ringwell_driver::watch::Served;
use ringwell_driver::{Moment, Platform, Watch};
use ringwell_engine::{Engine, Outcome};

use super::judge::{Grant, Judge};
use crate::clients::Mark;
use crate::files::SimFiles;
use crate::machine::{Sim, Wire};

/// A process of a machine.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) sim: Sim,
    pub(super) judge: Rc<RefCell<Judge>>,
    /// The process's number in the run.
    pub(super) process: u64,
}

impl Watched {
    pub(super) fn machine(&self) -> usize {
        self.sim.life.node
    }

    pub(super) fn now_us(&self) -> u64 {
        self.sim.shared.now.get()
    }

    pub(super) fn after_us(&self, takes: u64) -> impl Future<Output = ()> + 'static {
        self.sim.sleep_until(self.sim.moment() + Duration::from_micros(takes))
    }
}

impl Platform for Watched {
    const TURNS_TO_READ: usize = 1;

    type Files = SimFiles;
    type Net = Wire;

    fn files(&self) -> SimFiles {
        self.sim.files()
    }

    fn watch(&self) -> Option<&dyn Watch> {
        (!self.sim.life.is_dead.get()).then_some(self)
    }

    fn moment(&self) -> Moment {
        self.sim.moment()
    }

    fn boot_time(&self) -> Duration {
        self.sim.boot_time()
    }

    fn wall(&self) -> Duration {
        self.sim.wall()
    }

    fn sleep_until(&self, at: Moment) -> impl Future<Output = ()> + 'static {
        self.sim.sleep_until(at)
    }

    fn turn(&self) -> impl Future<Output = ()> + 'static {
        self.sim.turn()
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.sim.spawn(task);
    }

    fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + 'static {
        self.sim.offload(work)
    }
}

impl Watch for Watched {
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
            true_us: self.now_us(),
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
