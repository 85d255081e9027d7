use std::sync::Mutex;

use ringwell_core::Millis;
use ringwell_store::Location;

use super::*;
use crate::log::{NewEvent, publish};
use crate::webhook::NewEndpoint;

/// A transport whose endpoints never answer, except one.
#[derive(Clone)]
struct Hanging {
    healthy: String,
    delivered: Arc<Mutex<usize>>,
}

impl Transport for Hanging {
    async fn deliver(&self, due: Due) -> Ended {
        if due.endpoint != self.healthy {
            return std::future::pending().await;
        }
        *self.delivered.lock().unwrap() += 1;
        Ended::Answered { status: 200, retry_after: None }
    }
}

#[tokio::test]
async fn hundreds_of_endpoints_that_hang_delay_no_other() {
    const EVENTS: usize = 12;
    let folder = tempfile::TempDir::new().unwrap();
    let log = Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
    let mut healthy = String::new();
    for place in 0..250 {
        let url = format!("https://{place}.example/");
        let endpoint = NewEndpoint { url, ..NewEndpoint::default() };
        healthy = log.create_endpoint(&endpoint, Millis(0)).await.unwrap().id;
    }
    let delivered = Arc::<Mutex<usize>>::default();
    let transport = Hanging { healthy, delivered: Arc::clone(&delivered) };
    let stored = Arc::<Notify>::default();
    let worker = tokio::spawn(Worker::new(log.clone(), transport, Arc::clone(&stored)).run());
    let until = Instant::now() + Duration::from_mins(1);
    for event in 1..=EVENTS {
        let mut tx = log.database().write().await.unwrap();
        let data = serde_json::json!({});
        let event_of_a_call = NewEvent { kind: "call.started", call: None, at: now(), data };
        publish(&mut tx, vec![event_of_a_call]).await.unwrap();
        tx.commit().await.unwrap();
        stored.notify_one();
        while *delivered.lock().unwrap() < event {
            assert!(Instant::now() < until, "event {event} is delayed");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    worker.abort();
}
