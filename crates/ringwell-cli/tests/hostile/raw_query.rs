//! Tests clients that do not escape their query, and clients that read the answer only after they
//! have sent everything.

use super::raw::{Raw, good_body, start};
use super::support::batch::BULK;

const SINGLE: &str = "/api/2015-12-09/ring_pools";

#[test]
fn a_raw_query_is_read_also_in_pieces() {
    let (site, server) = start("");
    let pool = &site.pools[0];
    let line = format!(
        "GET {SINGLE}/{}/allocate_number.json?ring_pool_key={}&m1=two words \u{e9} HTTP/1.1\r\n",
        pool.id, pool.key
    );
    let request = format!("{line}host: x\r\n\r\n");
    for cut in [1, 3, 5, line.len() - 12, line.len() - 1, line.len(), line.len() + 3] {
        let mut raw = Raw::connect(&server);
        raw.send(&request.as_bytes()[..cut]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        raw.send(&request.as_bytes()[cut..]);
        let reply = raw.reply(true).unwrap();
        assert_eq!(reply.status, 200, "cut at {cut}: {reply:?}");
        assert!(reply.body.contains("promo_number"), "{reply:?}");
    }
}

#[test]
fn a_raw_query_behind_another_request_is_refused() {
    let (site, server) = start("");
    let pool = &site.pools[0];
    let single = |query: &str| {
        let (id, key) = (&pool.id, &pool.key);
        format!(
            "GET {SINGLE}/{id}/allocate_number.json?ring_pool_key={key}{query} HTTP/1.1\r\n\
             host: x\r\n\r\n"
        )
    };
    // The second request is sent either together with the first or after the first answer.
    for is_at_once in [true, false] {
        let mut raw = Raw::connect(&server);
        raw.send(single("").as_bytes());
        if !is_at_once {
            assert_eq!(raw.reply(true).unwrap().status, 200);
        }
        raw.send(single("&m1=two words").as_bytes());
        if is_at_once {
            assert_eq!(raw.reply(true).unwrap().status, 200);
        }
        let reply = raw.reply(true).unwrap();
        assert_eq!(reply.status, 400);
        assert!(reply.body.contains("the request's head is malformed"), "{reply:?}");
        assert_eq!(raw.rest(), 0);
    }
}

#[test]
fn a_client_with_an_oversized_body_sees_the_answer_after_sending_everything() {
    let (site, server) = start("limits.body_bytes = \"4KiB\"");
    let body = format!("{}{}", good_body(&site.pools[0]), " ".repeat(6 << 20));
    let head = |fields: &str| format!("POST {BULK} HTTP/1.1\r\nhost: x\r\n{fields}\r\n");
    let sized = head(&format!("content-length: {}\r\n", body.len())) + &body;
    let chunked = head("transfer-encoding: chunked\r\n")
        + &format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for request in [sized, chunked] {
        let mut raw = Raw::connect(&server);
        raw.must_send(request.as_bytes());
        let reply = raw.reply(true).unwrap();
        assert_eq!(reply.status, 413);
        assert!(reply.body.contains("the body may have at most 4096 bytes"), "{reply:?}");
        raw.end_of_sending();
        assert_eq!(raw.rest(), 0);
    }
}
