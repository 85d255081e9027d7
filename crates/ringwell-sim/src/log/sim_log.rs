//! One shard's log as one machine sees it: requests take time, and some get no answer.

use std::future::Future;
use std::ops::Range;

use bytes::Bytes;
use ringwell_driver::Platform as _;
use ringwell_driver::store::{Log, NotAppended, Unreached};
use tokio::sync::mpsc;

use super::servers::{AppendReply, Servers, Shared, lock};
use crate::machine::Sim;
use crate::pace::SECOND;

/// The client's timeouts for an append and for any other request.
const APPEND_MAX_US: u64 = 2 * SECOND;
const ANSWER_MAX_US: u64 = 3 * SECOND;

/// One shard's log as one machine sees it.
#[derive(Clone, Debug)]
pub(super) struct SimLog {
    pub(super) platform: Sim,
    pub(super) servers: Shared,
    pub(super) shard: usize,
}

impl SimLog {
    fn of(&self) -> (usize, usize) {
        (self.shard, self.platform.machine())
    }

    /// Completes when a message has travelled to the servers, or back from them.
    fn way(&self) -> impl Future<Output = ()> + 'static {
        let takes = lock(&self.servers).latency(self.platform.now_us());
        self.platform.after_us(takes)
    }

    fn appended(
        &self,
        send: impl FnOnce(&mut Servers, u64) -> AppendReply + 'static,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        let log = self.clone();
        async move {
            log.way().await;
            let answer = send(&mut lock(&log.servers), log.platform.now_us());
            match answer {
                AppendReply::Done(answered) => {
                    log.way().await;
                    answered
                }
                AppendReply::Silence => {
                    log.platform.after_us(APPEND_MAX_US).await;
                    Err(NotAppended::Unknown)
                }
            }
        }
    }
}

impl Log for SimLog {
    fn append(
        &self,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        let of = self.of();
        self.appended(move |servers, now| servers.append(of, n, message, now))
    }

    #[cfg(canary)]
    fn append_named(
        &self,
        id: String,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        let of = self.of();
        self.appended(move |servers, now| servers.append_named(of, id, n, message, now))
    }

    fn read(&self, n: u64) -> impl Future<Output = Result<Option<Bytes>, Unreached>> + 'static {
        let log = self.clone();
        async move {
            log.way().await;
            let read = lock(&log.servers).read(log.of(), n, log.platform.now_us());
            if read.is_err() {
                log.platform.after_us(ANSWER_MAX_US).await;
            }
            log.way().await;
            read
        }
    }

    fn read_ahead(&self, messages: Range<u64>) -> mpsc::Receiver<Bytes> {
        let (sender, receiver) = mpsc::channel(8);
        let log = self.clone();
        let read = async move {
            for n in messages {
                log.way().await;
                let now = log.platform.now_us();
                let read = lock(&log.servers).read_ahead(log.of(), n, now);
                let Ok(read) = read else { return };
                // A message that the servers lack is left out.
                if let Some(message) = read
                    && sender.send(message).await.is_err()
                {
                    return;
                }
            }
        };
        self.platform.spawn(read);
        receiver
    }

    fn ends(&self) -> impl Future<Output = Result<Range<u64>, Unreached>> + 'static {
        let log = self.clone();
        async move {
            log.way().await;
            let ends = lock(&log.servers).ends(log.of(), log.platform.now_us());
            log.way().await;
            Ok(ends)
        }
    }

    fn trim(&self, before: u64) -> impl Future<Output = Result<(), Unreached>> + 'static {
        let log = self.clone();
        async move {
            log.way().await;
            lock(&log.servers).trim(log.of(), before, log.platform.now_us())
        }
    }

    fn change_leader(&self) -> impl Future<Output = Result<(), Unreached>> + 'static {
        let log = self.clone();
        async move {
            log.way().await;
            lock(&log.servers).change_leader(log.shard);
            Ok(())
        }
    }
}
