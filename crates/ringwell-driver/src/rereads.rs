//! Requests to read the list of pools again from where it comes from, by number.

use tokio::sync::watch;

/// Requests by any thread of the process, for the keeper of the directory.
#[derive(Debug, Default)]
pub struct Rereads {
    asked: watch::Sender<u64>,
    done: watch::Sender<u64>,
}

impl Rereads {
    /// Asks for the list to be read again; returns the request's number.
    #[must_use]
    pub fn ask(&self) -> u64 {
        let mut request = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            request = *asked;
        });
        request
    }

    /// Waits until a request, or a later one, is done.
    pub async fn wait(&self, request: u64) {
        // The sender lives as long as `self`.
        let _ = self.done.subscribe().wait_for(|done| *done >= request).await;
    }

    /// The number of the newest request, for the keeper.
    #[must_use]
    pub fn asked(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Records that a request and all before it are done.
    pub fn finish(&self, request: u64) {
        self.done.send_modify(|done| *done = request.max(*done));
    }
}
