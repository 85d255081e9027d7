//! Numbered requests to read the list of pools again from its source.

use tokio::sync::watch;

/// The requests that the threads of the process send to the task that reloads the list.
#[derive(Debug, Default)]
pub struct ReloadRequests {
    asked: watch::Sender<u64>,
    done: watch::Sender<u64>,
}

impl ReloadRequests {
    /// Requests that the list be read again, and returns the number of this request.
    #[must_use]
    pub fn ask(&self) -> u64 {
        let mut request = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            request = *asked;
        });
        request
    }

    /// Waits until `request` or a later request is done.
    pub async fn wait(&self, request: u64) {
        // This cannot fail, because the sender lives as long as `self`.
        let _ = self.done.subscribe().wait_for(|done| *done >= request).await;
    }

    /// Returns a receiver of the newest request's number, for the task that reloads the list.
    #[must_use]
    pub fn asked(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Records that `request` and all earlier requests are done.
    pub fn finish(&self, request: u64) {
        self.done.send_modify(|done| *done = request.max(*done));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_request_is_done_when_it_or_a_later_one_is() {
        let reload_requests = ReloadRequests::default();
        let is_done = |request| {
            let mut waiting = pin!(reload_requests.wait(request));
            waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        };
        let requests = [(); 3].map(|()| reload_requests.ask());
        assert_eq!((requests, *reload_requests.asked().borrow()), ([1, 2, 3], 3));
        assert_eq!(requests.map(is_done), [false; 3]);
        reload_requests.finish(2);
        assert_eq!(requests.map(is_done), [true, true, false]);
        // Finishing an earlier request after a later one changes nothing.
        reload_requests.finish(1);
        assert_eq!(requests.map(is_done), [true, true, false]);
    }
}
