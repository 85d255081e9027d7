//! Internal faults in individual requests, and secrets that must not leave the process.

use std::time::Duration;

use serde_json::{Value, json};

use super::metrics;
use super::support::batch::BULK;
use super::support::server::Server;
use super::support::site::{Pool, Site, TOKEN};

fn site(settings: &str) -> Site {
    let pools =
        vec![Pool::new(1, 4, Duration::from_mins(30)), Pool::new(2, 4, Duration::from_mins(30))];
    Site::new(pools, &format!("shards = 2\n{settings}"))
}

fn drilled(site: &Site) -> Server {
    let mut command = site.serve(&[]);
    command.env("RINGWELL_DRILL_PANIC_ON", "BOOM");
    command.env("RINGWELL_DRILL_PANIC_AT_OWNER_ON", "BANG");
    Server::start(command)
}

fn batch(site: &Site, parameters: [&str; 3]) -> String {
    let pools = [0, 1, 0].map(|place| &site.pools[place]);
    let rows = (1..).zip(pools.iter().zip(parameters));
    let rows: Vec<Value> = rows
        .map(|(id, (pool, text))| json!({"api_suffix": pool.suffix(text), "request_id": id}))
        .collect();
    json!({ "requests": rows }).to_string()
}

#[test]
fn a_panic_costs_one_batch_and_nothing_else() {
    let site = site("");
    let server = drilled(&site);
    let mut client = server.client();
    let mut handles = Vec::new();
    for round in 1..=3 {
        let answer = client.post(BULK, &[], &batch(&site, ["a=1", "b=BOOM", "c=3"])).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        let rows = answer.json()["responses"].as_array().unwrap().clone();
        assert_eq!(rows.len(), 3);
        let handle = rows[0]["message"].as_str().unwrap().strip_prefix("refer to error handle ");
        let handle: u64 = handle.unwrap().parse().unwrap();
        for (id, row) in (1..).zip(&rows) {
            let message = format!("refer to error handle {handle}");
            let class = "InternalServiceError";
            let wanted = json!({"request_id": id, "error_class": class, "message": message});
            assert_eq!(*row, wanted);
        }
        assert_eq!(metrics::sum(&server, "ringwell_panics_total"), round);
        handles.push(handle);
    }
    let single = format!("/api/2013-07-01/ring_pools/{}", site.pools[0].suffix("a=BOOM"));
    let answer = client.get(&single, &[]).unwrap();
    assert_eq!(answer.status, 500);
    let handle =
        answer.body.trim_end().strip_prefix("InternalServiceError: refer to error handle ");
    handles.push(handle.unwrap().parse().unwrap());
    handles.sort_unstable();
    handles.dedup();
    assert_eq!(handles.len(), 4, "each fault has its own handle");

    // Both pools must still have all their numbers, and no batch may have been partly served.
    assert_eq!(metrics::sum(&server, "ringwell_allocations_total"), 0);
    for _ in 0..2 {
        let answer = client.post(BULK, &[], &batch(&site, ["a=1", "b=2", "c=3"])).unwrap();
        assert_eq!(answer.body.matches("promo_number\"").count(), 3, "{}", answer.body);
        assert!(!answer.body.contains("overflow"), "{}", answer.body);
    }
    let log = server.stop();
    for handle in handles {
        assert!(log.contains(&handle.to_string()), "{handle} is not in the log:\n{log}");
    }
}

#[test]
fn a_panic_in_the_owner_of_a_row_costs_only_that_row() {
    let site = site("");
    let server = drilled(&site);
    let mut client = server.client();
    let count =
        |body: &str| (body.matches("promo_number\"").count(), body.matches("overflow").count());
    // Pools 1 and 2 have different owners, so at least one pool is not owned by the shard that
    // receives the batch.
    let panicked = client.post(BULK, &[], &batch(&site, ["a=1", "b=BANG", "c=3"])).unwrap().body;
    let (rows, overflow) = count(&panicked);
    assert_eq!(rows, 3, "{panicked}");
    assert!((1..=2).contains(&overflow), "{panicked}");
    assert_eq!(metrics::sum(&server, "ringwell_panics_total"), 1);
    let after = client.post(BULK, &[], &batch(&site, ["a=1", "b=2", "c=3"])).unwrap().body;
    assert_eq!(count(&after), (3, 0), "{after}");
}

#[test]
fn a_late_row_of_a_pool_without_overflow_does_not_report_that_its_numbers_are_in_use() {
    let site = site(
        "[[ring_pool]]\nid = 9\nring_pool_key = \"key-of-nine\"\nlifetime = \"30m\"\n\
         numbers = [\"8885550100\"]\nallow_overflow = false",
    );
    let server = drilled(&site);
    let suffix = "9/allocate_number.json?ring_pool_key=key-of-nine&a=BANG";
    let body = json!({"requests": [{"api_suffix": suffix}]}).to_string();
    // Connects repeatedly until a shard that does not own the pool accepts the connection.
    let late = (0..64).find_map(|_| {
        let answer = server.client().post(BULK, &[], &body).unwrap().json();
        let row = answer["responses"][0].clone();
        (row["error_class"] == "ServiceUnavailable").then_some(row)
    });
    let late = late.expect("another shard owns the pool");
    let message = "Ring pool 9 cannot hand out numbers at the moment and has no overflow number; \
                   ask again in a second";
    assert_eq!(late["message"], message);
}

#[test]
fn neither_keys_nor_tokens_appear_in_logs_metrics_or_health() {
    let site = site("log.level = \"trace\"");
    let server = drilled(&site);
    let mut client = server.client();
    let guess = "planted-wrong-key";
    let bad_token = "Bearer planted-wrong-token";
    let token = format!("Bearer {TOKEN}");
    let pool = &site.pools[0];
    for parameters in [["a=1", "b=2", "c=3"], ["a=1", "b=BOOM", "c=3"]] {
        let retry = [("idempotency-key", "planted-retry-key")];
        client.post(BULK, &retry, &batch(&site, parameters)).unwrap();
    }
    let wrong = batch(&site, ["a=1", "b=2", "c=3"]).replace(&pool.key, guess);
    assert!(client.post(BULK, &[], &wrong).unwrap().body.contains("InvalidKey"));
    client.post(BULK, &[], &wrong[..wrong.len() - 4]).unwrap();
    for suffix in
        [pool.suffix("a=1"), pool.suffix("a=BOOM"), pool.suffix("").replace(&pool.key, guess)]
    {
        client.get(&format!("/api/2013-07-01/ring_pools/{suffix}"), &[]).unwrap();
        client.get(&format!("/api/nonsense/ring_pools/{suffix}"), &[]).unwrap();
    }
    for token in [bad_token, token.as_str()] {
        for path in ["/v1/attributions?number=2000100000", "/v1/attributions?number=x", "/v1/nope"]
        {
            client.get(path, &[("authorization", token)]).unwrap();
        }
        client.post("/v1/releases", &[("authorization", token)], "{}").unwrap();
    }
    client
        .send(
            format!("GET / HTTP/1.1\r\nauthorization: {token}\r\n{}:\r\n\r\n", pool.key).as_bytes(),
        )
        .unwrap();
    client.receive().unwrap();
    let mut texts: Vec<String> = ["/metrics", "/healthz", "/readyz"]
        .iter()
        .map(|path| server.client().get(path, &[]).unwrap().body)
        .collect();
    texts.push(server.stop());
    let secrets = [
        &site.pools[0].key,
        &site.pools[1].key,
        TOKEN,
        guess,
        "planted-wrong-token",
        "planted-retry-key",
    ];
    for text in &texts {
        for secret in secrets {
            assert!(!text.contains(secret), "{secret} is in\n{text}");
        }
    }
    assert!(
        texts[3].contains("serving") && texts[3].contains("drill: "),
        "it did log:\n{}",
        texts[3]
    );
}
