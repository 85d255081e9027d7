//! A shard's journal as the driver's writer wants it: groups go to the journal's thread, what became of
//! them comes back by a channel.

use std::rc::Rc;

use ringwell_driver::store;
use ringwell_driver::writer::{Append, Appended};
use ringwell_journal::Group;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::disk::{Flushed, Journal, OsFiles};

/// The journal, and what its thread reports.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) journal: Rc<Journal>,
    pub(crate) flushed: UnboundedReceiver<Flushed>,
}

impl Append for Stored {
    type Files = OsFiles;

    async fn append(&mut self, group: Group) -> Appended {
        match self.journal.submit(group) {
            Some(flushed) => appended(flushed),
            None => self.again().await,
        }
    }

    async fn again(&mut self) -> Appended {
        match self.flushed.recv().await {
            Some(flushed) => appended(flushed),
            None => Appended::Failed("the journal's thread has ended".to_owned()),
        }
    }

    fn journal(&self) -> &store::Journal<OsFiles> {
        &self.journal
    }
}

fn appended(flushed: Flushed) -> Appended {
    match flushed {
        Flushed::Stored { spare, .. } => Appended::Stored { spare },
        Flushed::Full { .. } => Appended::Full,
        Flushed::Failed { error, .. } => Appended::Failed(error),
    }
}
