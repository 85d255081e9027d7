//! Traces received by a collector: a client's own trace continues, and a call and its webhooks form
//! one trace. A missing collector delays nothing.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "support/collector.rs"]
mod collector;
#[allow(dead_code, reason = "each test program uses its own part")]
#[path = "calls/phone.rs"]
mod phone;
mod support;

use std::time::Duration;

use collector::{Taker, attribute, until};
use phone::{Phone, Provider};
use serde_json::json;
use support::batch::{self, Ask, BULK};
use support::server::Server;
use support::site::{Pool, Site, TOKEN};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn a_batch_is_a_part_of_its_client_s_trace_and_contains_no_key() {
    let collector = Taker::start();
    // The server starts a trace for only one batch in a million. It also continues clients' traces.
    let settings = format!(
        "log.traces = \"http://127.0.0.1:{}\"\nlog.traces_one_in = 1000000\nshards = 2",
        collector.port
    );
    let site = Site::new(vec![Pool::new(1, 50, Duration::from_mins(1))], &settings);
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let body = batch::body(&[Ask { pool: 1, id: "1".to_owned() }], &site.pools);
    // Of these batches, only the first is traced.
    for _ in 0..10 {
        client.post(BULK, &[], &body).unwrap();
    }
    client.post(BULK, &[("traceparent", TRACEPARENT)], &body).unwrap();
    let not_kept = TRACEPARENT.replace("-01", "-00");
    client.post(BULK, &[("traceparent", not_kept.as_str())], &body).unwrap();
    client.post(BULK, &[("traceparent", "planted")], &body).unwrap();
    let path = format!("/api/2013-07-01/ring_pools/{}", site.pools[0].suffix("gclid=planted"));
    client.get(&path, &[("traceparent", TRACEPARENT)]).unwrap();
    let spans = until("three spans", || {
        let spans = collector.spans("POST or GET /api");
        (spans.len() >= 3).then_some(spans)
    });
    assert_eq!(spans.len(), 3, "{spans:#?}");
    let of_client: Vec<_> =
        spans.iter().filter(|span| span["parentSpanId"] == "b7ad6b7169203331").collect();
    assert_eq!(of_client.len(), 2, "{spans:#?}");
    for span in &of_client {
        assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(attribute(span, "http.response.status_code"), "200");
        let time = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
        assert!(time("endTimeUnixNano") >= time("startTimeUnixNano"));
    }
    let sent = format!("{:?}", collector.taken());
    assert!(!sent.contains(&site.pools[0].key) && !sent.contains("planted"), "{sent}");
    server.stop();
}

#[test]
fn a_call_and_its_webhooks_are_one_trace() {
    let (collector, receiver) = (Taker::start(), Taker::start());
    let settings = format!(
        "log.traces = \"http://127.0.0.1:{}\"\nlog.traces_one_in = 1\n{}\
         [[calls.destination]]\nring_pools = [16]\nto = [\"+18005550199\"]\n\
         [calls.webhooks]\nallow_networks = [\"127.0.0.0/8\"]\nallow_http = true\nallow_ports = [{}]\n",
        collector.port,
        Phone::settings(),
        receiver.port
    );
    let site = Site::new(vec![Pool::new(16, 10, Duration::from_mins(1))], &settings);
    Phone::write_secrets(&site);
    let server = Server::start(site.serve(&[]));
    let bearer = format!("Bearer {TOKEN}");
    let url = format!("http://127.0.0.1:{}/in", receiver.port);
    let new = json!({ "url": url, "types": ["call.completed"] }).to_string();
    let made = server.client().post("/v1/webhooks", &[("authorization", &bearer)], &new).unwrap();
    assert_eq!(made.status, 201, "{}", made.body);
    let twilio = Provider::twilio(&Phone::at(&server));
    let ring = "CallSid=CA1&CallStatus=ringing&From=%2B14155551234&To=%2B12001600000";
    assert_eq!(twilio.post("/t/main/answer", ring).status, 200);
    let done = "CallSid=CA1&DialCallStatus=completed&DialCallDuration=5";
    assert_eq!(twilio.post("/t/main/dial?leg=0&last=1", done).status, 200);
    let webhook = until("the webhook's span", || collector.spans("a webhook").first().cloned());
    let call = until("the call's span", || collector.spans("an incoming call").first().cloned());
    let report = until("a report", || collector.spans("a report about a call").first().cloned());
    assert_eq!(attribute(&call, "ringwell.attribution"), "none");
    for span in [&webhook, &report] {
        assert_eq!(span["traceId"], call["traceId"]);
        assert_eq!(attribute(span, "ringwell.call"), attribute(&call, "ringwell.call"));
    }
    assert_eq!(attribute(&webhook, "http.response.status_code"), "200");
    // The webhook's receiver can continue the trace.
    let (_, traceparent, event) = receiver.taken()[0].clone();
    assert_eq!(event["type"], "call.completed");
    let trace = call["traceId"].as_str().unwrap();
    let span = webhook["spanId"].as_str().unwrap();
    assert_eq!(traceparent, format!("00-{trace}-{span}-01"));
    assert!(!format!("{:?}", collector.taken()).contains("14155551234"), "who called is not sent");
    server.stop();
}

#[test]
fn an_unreachable_collector_delays_no_request() {
    let settings = "log.traces = \"http://127.0.0.1:1\"\nlog.traces_one_in = 1";
    let site = Site::new(vec![Pool::new(1, 50, Duration::from_mins(1))], settings);
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let body = batch::body(&[Ask { pool: 1, id: "1".to_owned() }], &site.pools);
    // Causes more spans than fit into the queue.
    for _ in 0..6_000 {
        assert_eq!(client.post(BULK, &[], &body).unwrap().status, 200);
    }
    server.says("spans are lost");
    server.stop();
}
