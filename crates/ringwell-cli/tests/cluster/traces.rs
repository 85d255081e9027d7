//! A batch's trace continues at the other node, which owns some of the rows' pools.

use super::collector::{Taker, attribute, until};
use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[test]
fn a_batch_is_one_trace_on_both_nodes() {
    let collector = Taker::start();
    // The server itself samples so few batches that only traces requested by a client are kept.
    let settings = format!(
        "log.traces = \"http://127.0.0.1:{}\"\nlog.traces_one_in = 1000000\n\
         [links]\ndeadline = \"5s\"\nslow = \"5s\"\nwait = \"5s\"\n",
        collector.port
    );
    let cluster = Cluster::with("10s", &settings, 50, HALF_AN_HOUR);
    let servers = cluster.start_both();
    let mut client = servers[0].client();
    cluster.ask_until(&mut client, 0, true);
    let asks: Vec<Ask> = (1..=POOLS).map(|pool| Ask { pool, id: pool.to_string() }).collect();
    let body = batch::body(&asks, cluster.pools());
    let own = format!("00-{TRACE}-b7ad6b7169203331-01");
    let rows = batch::rows(&client.post(BULK, &[("traceparent", &own)], &body).unwrap());
    assert!(rows.iter().all(|row| !row.overflow), "{rows:?}");
    client.post(BULK, &[("traceparent", &own.replace("-01", "-00"))], &body).unwrap();

    let of = |name: &str| {
        let spans = collector.spans(name).into_iter();
        spans.filter(|span| span["traceId"] == TRACE).collect::<Vec<_>>()
    };
    let one = |name: &str| until(name, || of(name).first().cloned());
    let batch = one("POST or GET /api");
    let (sent, served) = (one("a request to another node"), one("a request from another node"));
    assert_eq!(batch["parentSpanId"], "b7ad6b7169203331");
    assert_eq!(sent["parentSpanId"], batch["spanId"]);
    assert_eq!(served["parentSpanId"], sent["spanId"]);
    assert_eq!(attribute(&served, "http.response.status_code"), "200");
    assert_eq!(of("a request from another node").len(), 1, "one of three batches is kept");
    let all = format!("{:?}", collector.taken());
    assert!(cluster.pools().iter().all(|pool| !all.contains(&pool.key)), "{all}");
    for server in servers {
        server.stop();
    }
}
