//! Requests from web pages to the real program: numbers for visitors, keep-alives, and requests
//! that are refused.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::client::{Client, HttpAnswer};
use support::server::Server;
use support::site::{Pool, Site, TOKEN};

const ORIGIN: &str = "https://shop.example";
const KEY: &str = "pk_shop";
const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
const NUMBERS: &str = "/site/v1/numbers";
const BEAT: &str = "/site/v1/beat";
/// The number in the page's source.
const OWN: &str = "+18005550100";

fn start(numbers: u64, lifetime: Duration, more: &str) -> (Site, Server) {
    let settings = format!(
        "shards = 2\n[[site]]\nkey = \"{KEY}\"\norigins = [\"{ORIGIN}\"]\n\
         edge_key = \"only-the-edge-knows\"\nparams = [\"plan\"]\n{more}\n\
         [[site.swap]]\nnumber = \"{OWN}\"\nring_pool = 1\n"
    );
    let site = Site::new(vec![Pool::new(1, numbers, lifetime)], &settings);
    let server = Server::start(site.serve(&[]));
    (site, server)
}

fn headers() -> [(&'static str, &'static str); 2] {
    [("origin", ORIGIN), ("user-agent", FIREFOX)]
}

fn ask(client: &mut Client, path: &str, body: &Value) -> HttpAnswer {
    client.post(path, &headers(), &body.to_string()).unwrap()
}

/// Requests numbers for a new visitor, and returns the answer.
fn visit(client: &mut Client) -> Value {
    let body = json!({"site": KEY, "params": {"gclid": "c-7", "email": "a@b"},
                      "landing": "https://shop.example/a?token=x"});
    let answer = ask(client, NUMBERS, &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

fn again(path: &str, client: &mut Client, known: &Value) -> HttpAnswer {
    let body = json!({"site": KEY, "visitor": known["visitor"], "lease": known["lease"]});
    ask(client, path, &body)
}

fn to(answer: &Value) -> &str {
    answer["swaps"][0]["to"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// Returns the sum of all series of a metric.
fn metric(client: &mut Client, name: &str) -> u64 {
    let metrics = client.get("/metrics", &[]).unwrap().body;
    let lines = metrics.lines().filter(|line| line.starts_with(name));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

fn allocations(client: &mut Client) -> u64 {
    metric(client, "ringwell_allocations_total")
}

fn provisional(client: &mut Client) -> u64 {
    metric(client, "ringwell_site_provisional")
}

#[test]
fn pages_have_a_separate_address_if_configured_and_nothing_else_is_there() {
    let (_site, server) = start(
        50,
        Duration::from_mins(30),
        "leases_per_minute = 60\n[sites]\nlisten = [\"127.0.0.1:0\"]",
    );
    server.says("\"pages\":");
    let serving = server.log();
    let serving = serving.lines().find(|line| line.contains("\"pages\":")).unwrap();
    let serving: Value = serde_json::from_str(serving).unwrap();
    let pages: Vec<String> = serde_json::from_str(serving["pages"].as_str().unwrap()).unwrap();
    let mut pages = Client::connect(&pages[0]).unwrap();
    let mut clients = server.client();
    assert_eq!(pages.get("/rw.js", &[]).unwrap().status, 200);
    let given = visit(&mut pages);
    assert_eq!(again(BEAT, &mut pages, &given).status, 200);
    // Requests from pages use the same shards and journal as batches, so the server's metrics show
    // the page's allocation.
    assert_eq!(allocations(&mut clients), 1);
    let body = json!({"site": KEY}).to_string();
    let status = clients.post(NUMBERS, &headers(), &body).unwrap().status;
    assert!(matches!(status, 403 | 404), "{status}");
    assert_eq!(clients.post(NUMBERS, &[], &body).unwrap().status, 404);
    assert_eq!(allocations(&mut clients), 1);
    assert_eq!(clients.get("/rw.js", &[]).unwrap().status, 404);
    for path in
        ["/v1/shards", "/metrics", "/readyz", "/api/2/ring_pools/1/allocate_number.json", "/"]
    {
        assert_eq!(pages.get(path, &[]).unwrap().status, 404, "{path}");
    }
    let bulk = pages.post("/api/1/ring_pools/bulk_allocate_numbers.json", &[], "{}").unwrap();
    assert_eq!(bulk.status, 404);
    let long = format!("/rw.js?{}", "x".repeat(9000));
    assert_eq!(pages.get(&long, &[]).unwrap().status, 414);
}

#[test]
fn unknown_clients_at_the_address_of_pages_leave_half_of_the_connections_to_others() {
    let settings = format!(
        "shards = 1\nlimits.connections = 8\n[sites]\nlisten = [\"127.0.0.1:0\"]\n\
         [[site]]\nkey = \"{KEY}\"\norigins = [\"{ORIGIN}\"]\n\
         [[site.swap]]\nnumber = \"{OWN}\"\nring_pool = 1\n"
    );
    let site = Site::new(vec![Pool::new(1, 50, Duration::from_mins(30))], &settings);
    let server = Server::start(site.serve(&[]));
    server.says("\"pages\":");
    let log = server.log();
    let serving = log.lines().find(|line| line.contains("\"pages\":")).unwrap();
    let serving: Value = serde_json::from_str(serving).unwrap();
    let pages: Vec<String> = serde_json::from_str(serving["pages"].as_str().unwrap()).unwrap();
    let mut silent: Vec<_> =
        (0..20).map(|_| std::net::TcpStream::connect(&pages[0]).unwrap()).collect();
    // The first four connections are accepted, and the others are refused.
    let mut clients = server.client();
    let until = Instant::now() + Duration::from_secs(10);
    while metric(&mut clients, "ringwell_connections_refused_total") < 16 {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(20));
    }
    let more: Vec<_> = (0..3).map(|_| server.client()).collect();
    for mut client in more {
        assert_eq!(client.get("/healthz", &[]).unwrap().status, 200);
    }
    assert_eq!(clients.get("/healthz", &[]).unwrap().status, 200);
    // Pages are served again as soon as the silent clients disconnect.
    silent.clear();
    let script = || Client::connect(&pages[0]).ok()?.get("/rw.js", &[]).ok();
    while script().is_none_or(|answer| answer.status != 200) {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_visitor_gets_a_number_keeps_it_and_is_attributed_the_call() {
    let (_site, server) = start(50, Duration::from_mins(30), "");
    let mut client = server.client();
    let first = visit(&mut client);
    assert_eq!(first["swaps"][0]["from"], OWN);
    assert_eq!((&first["ttl"], &first["beat"]), (&json!(1800), &json!(60)));
    let number = &to(&first)[2..];
    let formatted = format!("({}) {}-{}", &number[..3], &number[3..6], &number[6..]);
    assert_eq!(first["swaps"][0]["formatted"], formatted);
    for path in [BEAT, "/site/v1/tap", NUMBERS] {
        assert_eq!(to(&again(path, &mut client, &first).json()), to(&first), "{path}");
    }
    assert_ne!(to(&visit(&mut client)), to(&first), "another visitor");
    let token = format!("Bearer {TOKEN}");
    let path = format!("/v1/attributions?number={number}");
    let held = client.get(&path, &[("authorization", token.as_str())]).unwrap().json();
    let stored = json!({"gclid": "c-7", "landing": "https://shop.example/a"});
    assert_eq!(held["parameters"], stored, "{held}");
}

/// The pool for the page's second number has only one number, which is free again by the time of
/// the keep-alive.
#[test]
fn a_number_that_a_keep_alive_brings_has_the_parameters_of_the_page() {
    let second = "+18005550111";
    let settings = format!(
        "shards = 2\n[[site]]\nkey = \"{KEY}\"\norigins = [\"{ORIGIN}\"]\n\
         [[site.swap]]\nnumber = \"{OWN}\"\nring_pool = 1\n\
         [[site.swap]]\nnumber = \"{second}\"\nring_pool = 2\n"
    );
    let pools = [(1, 50, 1800), (2, 1, 2)];
    let pools = pools.map(|(id, count, s)| Pool::new(id, count, Duration::from_secs(s)));
    let site = Site::new(pools.into(), &settings);
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let busy = support::batch::one(&mut client, &site.pools[1], "another visitor").number;
    let page = json!({"site": KEY, "params": {"gclid": "c-7"}});
    let mut given = ask(&mut client, NUMBERS, &page).json();
    let of_second = |given: &Value| {
        let swaps = given["swaps"].as_array().unwrap();
        let swap = swaps.iter().find(|swap| swap["from"] == second);
        swap.map(|swap| swap["to"].as_str().unwrap().to_owned())
    };
    let wanted = format!("+1{busy}");
    assert_ne!(of_second(&given), Some(wanted.clone()), "{given}");
    let until = Instant::now() + Duration::from_secs(20);
    while of_second(&given) != Some(wanted.clone()) {
        assert!(Instant::now() < until, "{given}");
        thread::sleep(Duration::from_millis(200));
        let mut body = page.clone();
        (body["visitor"], body["lease"]) = (given["visitor"].clone(), given["lease"].clone());
        given = ask(&mut client, BEAT, &body).json();
    }
    let token = format!("Bearer {TOKEN}");
    let path = format!("/v1/attributions?number={busy}");
    let held = client.get(&path, &[("authorization", token.as_str())]).unwrap().json();
    assert_eq!(held["parameters"], json!({"gclid": "c-7"}), "{held}");
}

#[test]
fn other_origins_programs_and_forged_visitors_are_refused_and_use_up_nothing() {
    let (_site, server) = start(50, Duration::from_mins(30), "");
    let mut client = server.client();
    let known = visit(&mut client);
    let before = allocations(&mut client);
    let body = json!({"site": KEY, "params": {}}).to_string();
    let agent = ("user-agent", FIREFOX);
    let chrome =
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/156.0.0.0 Safari/537.36";
    let refused: [(&[(&str, &str)], u16); 10] = [
        (&[agent], 403),
        (&[agent, ("origin", "null")], 403),
        (&[agent, ("origin", "https://evil.example")], 403),
        (&[agent, ("origin", "http://shop.example")], 403),
        (&[agent, ("origin", ORIGIN), ("origin", ORIGIN)], 403),
        (&[("origin", ORIGIN)], 204),
        (&[("origin", ORIGIN), ("user-agent", "Googlebot/2.1")], 204),
        (&[("origin", ORIGIN), ("user-agent", "HeadlessChrome/156.0")], 204),
        (&[("origin", ORIGIN), ("user-agent", chrome)], 204),
        (&[agent, ("origin", ORIGIN), ("sec-purpose", "prefetch;prerender")], 204),
    ];
    for (headers, status) in refused {
        let answer = client.post(NUMBERS, headers, &body).unwrap();
        assert_eq!(answer.status, status, "{headers:?}: {}", answer.body);
        let is_allowed =
            answer.headers.iter().any(|(name, _)| name == "access-control-allow-origin");
        assert_eq!(is_allowed, status == 204, "{headers:?}");
    }
    let mut forged = known.clone();
    let visitor = forged["visitor"].as_str().unwrap();
    let flipped = if visitor.starts_with('0') { "1" } else { "0" };
    forged["visitor"] = json!(format!("{flipped}{}", &visitor[1..]));
    assert_eq!(again(BEAT, &mut client, &forged).status, 204);
    for wrong in [
        json!({}),
        json!({"site": "pk_other"}),
        json!({"site": KEY, "visitor": known["visitor"]}),
        json!({"site": KEY, "lease": known["lease"]}),
    ] {
        assert_eq!(ask(&mut client, BEAT, &wrong).status, 403, "{wrong}");
    }
    let large = json!({"site": KEY, "params": {"gclid": "x".repeat(5000)}});
    assert_eq!(ask(&mut client, NUMBERS, &large).status, 413);
    let mut client = server.client();
    // The site's key is neither a management token nor a ring pool key.
    let token = format!("Bearer {KEY}");
    let answer = client.get("/v1/shards", &[("authorization", token.as_str())]).unwrap();
    assert_eq!(answer.status, 401);
    let suffix = format!("1/allocate_number.json?ring_pool_key={KEY}");
    let bulk = json!({"requests": [{"api_suffix": suffix}]}).to_string();
    let answer = client.post("/api/2013-07-01/bulk.json", &[], &bulk).unwrap().json();
    assert!(answer["responses"][0]["promo_number"].is_null(), "{answer}");
    assert_eq!(allocations(&mut client), before);
}

#[test]
fn five_thousand_requests_from_one_address_cost_sixty_numbers_at_most() {
    let (_site, server) = start(500, Duration::from_mins(30), "");
    let mut client = server.client();
    let body = json!({"site": KEY, "params": {}}).to_string();
    let mut numbers = BTreeSet::new();
    for _ in 0..5000 {
        let answer = client.post(NUMBERS, &headers(), &body).unwrap();
        if answer.status == 200 {
            numbers.insert(to(&answer.json()).to_owned());
        }
    }
    // If a minute ends during the test, up to 60 more numbers may be handed out.
    assert!((60..=120).contains(&numbers.len()), "{}", numbers.len());
    assert_eq!(allocations(&mut client), numbers.len() as u64);
}

#[test]
fn a_lapsed_lease_is_not_extended_and_the_visitor_may_get_a_new_one() {
    let (_site, server) = start(2, Duration::from_millis(300), "");
    let mut client = server.client();
    let first = visit(&mut client);
    thread::sleep(Duration::from_millis(400));
    let before = allocations(&mut client);
    assert_eq!(again(BEAT, &mut client, &first).status, 204);
    assert_eq!(allocations(&mut client), before);
    let anew = again(NUMBERS, &mut client, &first).json();
    assert_ne!(anew["lease"], first["lease"]);
}

#[test]
fn the_script_is_served_and_a_preflight_names_the_origin() {
    let (_site, server) = start(2, Duration::from_mins(1), "");
    let mut client = server.client();
    let script = client.get("/rw.js", &[]).unwrap();
    let find = |answer: &HttpAnswer, wanted: &str| {
        let found = answer.headers.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    assert_eq!(find(&script, "content-type"), "text/javascript; charset=utf-8");
    assert!(script.body.contains("/site/v1/"), "{}", script.body);
    // Requests that no page would send also get an answer.
    for path in ["/rw.js", "/site/v1/", "/site/v1/other", "/site/v1/number"] {
        let answer = client.post(path, &headers(), &json!({"site": KEY}).to_string()).unwrap();
        assert_eq!(answer.status, 404, "{path}");
    }
    let preflight = support::client::request("OPTIONS", NUMBERS, &[("origin", ORIGIN)], "");
    client.send(preflight.as_bytes()).unwrap();
    let answer = client.receive().unwrap();
    assert_eq!((answer.status, find(&answer, "access-control-allow-origin")), (204, ORIGIN.into()));
}

#[test]
fn an_edge_gets_the_number_by_headers_and_other_clients_do_not() {
    let (_site, server) = start(50, Duration::from_mins(30), "");
    let mut client = server.client();
    let path = format!("/site/v1/number?site={KEY}");
    assert_eq!(client.get(&path, &[("user-agent", FIREFOX)]).unwrap().status, 403);
    let edge = [("user-agent", FIREFOX), ("ringwell-edge-key", "only-the-edge-knows")];
    let answer = client.get(&path, &edge).unwrap();
    let find = |answer: &HttpAnswer, wanted: &str| {
        let found = answer.headers.iter().find(|(name, _)| name == wanted);
        found.unwrap_or_else(|| panic!("no {wanted}: {:?}", answer.headers)).1.clone()
    };
    assert_eq!(answer.status, 204);
    assert!(find(&answer, "ringwell-number").starts_with('('));
    let cookie = find(&answer, "set-cookie");
    let visitor = cookie.strip_prefix("rw_v=").unwrap().split(';').next().unwrap();
    let known = [edge[0], edge[1], ("x-visitor", visitor)];
    let again = client.get(&path, &known).unwrap();
    assert_eq!(find(&again, "ringwell-tel"), find(&answer, "ringwell-tel"));
}

#[test]
fn an_amp_page_gets_a_number_and_other_sites_pages_do_not() {
    let (_site, server) = start(50, Duration::from_mins(30), "");
    let mut client = server.client();
    let path =
        format!("/site/v1/amp?site={KEY}&gclid=c-7&landing=https%3A%2F%2Fshop.example%2Fa%3Fx");
    let agent = ("user-agent", FIREFOX);
    let find = |answer: &HttpAnswer, wanted: &str| {
        let found = answer.headers.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let answer = client.get(&path, &[agent, ("origin", ORIGIN)]).unwrap();
    assert_eq!(find(&answer, "access-control-allow-origin"), ORIGIN);
    assert_eq!(find(&answer, "access-control-allow-credentials"), "true");
    let given = answer.json();
    let number = given["phoneNumber"].as_str().unwrap()[2..].to_owned();
    let formatted = format!("({}) {}-{}", &number[..3], &number[3..6], &number[6..]);
    assert_eq!(given["formattedPhoneNumber"], formatted);
    let token = format!("Bearer {TOKEN}");
    let held = format!("/v1/attributions?number={number}");
    let held = client.get(&held, &[("authorization", token.as_str())]).unwrap().json();
    assert_eq!(held["parameters"], json!({"gclid": "c-7", "landing": "https://shop.example/a"}));
    // A browser sends no `Origin` header to the page's own host, so AMP sends `AMP-Same-Origin`
    // instead.
    let same = client.get(&path, &[agent, ("amp-same-origin", "true")]).unwrap();
    assert_ne!(same.json()["phoneNumber"], given["phoneNumber"], "another visitor");
    let before = allocations(&mut client);
    let refused: [&[(&str, &str)]; 3] = [
        &[agent],
        &[agent, ("origin", "https://evil.example")],
        &[agent, ("origin", "https://evil.example"), ("amp-same-origin", "true")],
    ];
    for headers in refused {
        assert_eq!(client.get(&path, headers).unwrap().status, 403, "{headers:?}");
    }
    let bot = [("user-agent", "Googlebot/2.1"), ("origin", ORIGIN)];
    assert_eq!(client.get(&path, &bot).unwrap().json(), json!({}));
    assert_eq!(allocations(&mut client), before);
}

/// Sends a request as an edge server. Returns the visitor's number and the cookie, if the answer
/// has them.
fn edge(client: &mut Client, more: &[(&str, &str)]) -> (Option<String>, Option<String>) {
    let own = [
        ("user-agent", FIREFOX),
        ("ringwell-edge-key", "only-the-edge-knows"),
        ("x-original-uri", "/a?gclid=c-7"),
    ];
    let path = format!("/site/v1/number?site={KEY}");
    let answer = client.get(&path, &[&own[..], more].concat()).unwrap();
    assert_eq!(answer.status, 204, "{}", answer.body);
    let find = |wanted: &str| {
        let found = answer.headers.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.clone())
    };
    (find("ringwell-tel"), find("set-cookie"))
}

/// Returns the stored parameters of the visitor who has `number`.
fn stored(client: &mut Client, number: &str) -> Value {
    let token = format!("Bearer {TOKEN}");
    let path = format!("/v1/attributions?number={}", &number[2..]);
    client.get(&path, &[("authorization", &token)]).unwrap().json()["parameters"].clone()
}

#[test]
fn without_the_required_consent_no_number_is_handed_out_and_nothing_is_stored() {
    let (_site, server) = start(50, Duration::from_mins(30), "consent = \"required\"");
    let mut client = server.client();
    let refused: [&[(&str, &str)]; 5] = [
        &[],
        &[("sec-gpc", "1")],
        &[("ringwell-consent", "denied")],
        &[("ringwell-consent", "")],
        &[("ringwell-consent", "granted"), ("sec-gpc", "1")],
    ];
    for headers in refused {
        assert_eq!(edge(&mut client, headers), (None, None), "{headers:?}");
    }
    let page = json!({"site": KEY, "landing": "https://shop.example/a"});
    let params = json!({"gclid": "c-7"});
    for (consent, params) in [(None, None), (Some(true), None), (Some(false), Some(&params))] {
        let mut body = page.clone();
        body["consent"] = consent.map_or(Value::Null, Value::Bool);
        body["params"] = params.cloned().unwrap_or_default();
        assert_eq!(ask(&mut client, NUMBERS, &body).status, 204, "{body}");
    }
    let amp = format!("/site/v1/amp?site={KEY}&gclid=c-7");
    assert_eq!(client.get(&amp, &headers()).unwrap().json(), json!({}));
    assert_eq!(allocations(&mut client), 0);

    let (number, cookie) = edge(&mut client, &[("ringwell-consent", "granted")]);
    assert!(cookie.unwrap().starts_with("rw_v="));
    assert_eq!(stored(&mut client, &number.unwrap()), json!({"gclid": "c-7", "landing": "/a"}));
    let given = visit(&mut client);
    // The visitor withdraws the consent.
    let mut body = json!({"site": KEY, "visitor": given["visitor"], "lease": given["lease"],
                          "params": params, "consent": false});
    assert_eq!(ask(&mut client, BEAT, &body).status, 204);
    body["consent"] = true.into();
    assert_eq!(ask(&mut client, BEAT, &body).status, 200);
}

#[test]
fn a_site_without_cookies_stores_no_parameters_and_sets_no_cookie() {
    let (_site, server) = start(50, Duration::from_mins(30), "consent = \"cookieless\"");
    let mut client = server.client();
    for headers in [&[][..], &[("ringwell-consent", "granted")]] {
        let (number, cookie) = edge(&mut client, headers);
        assert_eq!(cookie, None, "{headers:?}");
        assert_eq!(stored(&mut client, &number.unwrap()), json!({}));
    }
    let given = visit(&mut client);
    assert_eq!(stored(&mut client, to(&given)), json!({}));
}

#[test]
fn a_refused_consent_stores_no_parameters_even_if_the_site_does_not_require_consent() {
    let (_site, server) = start(50, Duration::from_mins(30), "");
    let mut client = server.client();
    let body = json!({"site": KEY, "consent": false, "params": {"gclid": "c-7"},
                      "landing": "https://shop.example/a", "referrer": "https://a.example/"});
    let given = ask(&mut client, NUMBERS, &body).json();
    assert_eq!(stored(&mut client, to(&given)), json!({}));
    let (number, cookie) = edge(&mut client, &[]);
    assert!(cookie.is_some());
    assert_eq!(stored(&mut client, &number.unwrap()), json!({"gclid": "c-7", "landing": "/a"}));
}

#[test]
fn behind_a_known_proxy_the_limit_applies_to_each_visitor_s_address() {
    let ask = |more: &str, forwarded: &str| {
        // Top-level settings must precede the first table of the configuration.
        let site = Site::new(
            vec![Pool::new(1, 200, Duration::from_mins(30))],
            &format!(
                "shards = 1\n{more}\n[[site]]\nkey = \"{KEY}\"\norigins = [\"{ORIGIN}\"]\n\
             leases_per_minute = 3\n[[site.swap]]\nnumber = \"{OWN}\"\nring_pool = 1\n"
            ),
        );
        let server = Server::start(site.serve(&[]));
        let mut client = server.client();
        let body = json!({"site": KEY, "params": {}}).to_string();
        let mut given = 0;
        for visitor in 0..9 {
            let address = forwarded.replace('N', &visitor.to_string());
            let headers = [headers()[0], headers()[1], ("x-forwarded-for", &address)];
            given += u32::from(client.post(NUMBERS, &headers, &body).unwrap().status == 200);
        }
        given
    };
    let trusted = "trusted_proxies = [\"127.0.0.1\"]";
    assert_eq!(ask(trusted, "203.0.N.5"), 9);
    assert_eq!(ask(trusted, "203.0.113.N"), 3, "neighbours share a limit");
    // If a client is not a known proxy, its `X-Forwarded-For` header is ignored, because the client
    // can set it to any value.
    assert_eq!(ask("", "203.0.N.5"), 3);
    assert_eq!(ask(trusted, "203.0.N.5, 198.51.100.9"), 3, "the proxy has seen one address");
}

#[test]
fn a_number_becomes_free_a_minute_after_its_visitor_left_and_a_kept_one_does_not() {
    let (site, server) = start(4, Duration::from_mins(30), "");
    let mut client = server.client();
    let (silent, kept) = (visit(&mut client), visit(&mut client));
    let (by_edge, by_row) = (visit(&mut client), visit(&mut client));
    assert_eq!(provisional(&mut client), 4);
    assert_eq!(again(BEAT, &mut client, &kept).status, 200);
    // Edge servers and clients of the bulk API get numbers for the whole lifetime.
    let known = by_edge["visitor"].as_str().unwrap();
    let edge = [
        ("user-agent", FIREFOX),
        ("ringwell-edge-key", "only-the-edge-knows"),
        ("x-visitor", known),
    ];
    let answer = client.get(&format!("/site/v1/number?site={KEY}"), &edge).unwrap();
    let tel = answer.headers.iter().find(|(name, _)| name == "ringwell-tel").unwrap();
    assert_eq!(tel.1, to(&by_edge));
    let row = by_row["visitor"].as_str().unwrap();
    let suffix = site.pools[0].suffix(&format!("ringwell_visitor={}", &row[..32]));
    let bulk = json!({"requests": [{"api_suffix": suffix}]}).to_string();
    let answer = client.post("/api/2013-07-01/bulk.json", &[], &bulk).unwrap();
    assert!(answer.body.contains(&to(&by_row)[2..]), "{}", answer.body);
    // The list of provisional leases still contains the lease of `by_row`, although the number's
    // owner has already extended that lease.
    assert_eq!(provisional(&mut client), 2);
    let until = Instant::now() + Duration::from_secs(90);
    // All numbers are locked, so another visitor gets the overflow number until a number becomes
    // free.
    let began = Instant::now();
    loop {
        let third = visit(&mut client);
        if third["lease"].is_string() {
            assert_eq!(to(&third), to(&silent));
            break;
        }
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_secs(2));
    }
    // The number is kept long enough for the page's first keep-alive.
    assert!(began.elapsed() > Duration::from_secs(65), "{:?}", began.elapsed());
    thread::sleep(Duration::from_secs(3));
    assert!(visit(&mut client)["lease"].is_null(), "the others are kept");
    for known in [&kept, &by_edge, &by_row] {
        assert_eq!(to(&again(BEAT, &mut client, known).json()), to(known));
    }
}

#[test]
fn a_forgotten_visitor_is_a_new_one() {
    let (_site, server) = start(50, Duration::from_mins(30), "leases_per_minute = 2");
    let mut client = server.client();
    let known = visit(&mut client);
    let mut forged = known.clone();
    let visitor = known["visitor"].as_str().unwrap();
    let flipped = if visitor.starts_with('0') { "1" } else { "0" };
    forged["visitor"] = json!(format!("{flipped}{}", &visitor[1..]));
    let anew = again(NUMBERS, &mut client, &forged).json();
    assert_ne!(to(&anew), to(&known));
    assert!(anew["visitor"] != known["visitor"] && anew["visitor"] != forged["visitor"]);
    assert_eq!(again(NUMBERS, &mut client, &forged).status, 204, "and counts as a new one");
    // If a proxy is missing from `trusted_proxies`, all visitors behind it share one limit.
    server.says("add it to trusted_proxies");
    assert_eq!(again(NUMBERS, &mut client, &forged).status, 204);
    assert_eq!(server.log().matches("add it to trusted_proxies").count(), 1);
}

#[test]
fn an_unreadable_body_is_reported_as_such() {
    let (_site, server) = start(2, Duration::from_mins(30), "");
    let mut client = server.client();
    let text = format!("{{\"site\":\"{KEY}\",\"params\":[]}}");
    for (body, said) in [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("\u{1f}gz", "not JSON"),
        ("[]", "not a JSON object"),
        ("[\"pk_shop\"]", "not a JSON object"),
        ("\"planted\"", "not a JSON object"),
        ("{\"site\":\"planted\",\"lease\":7}", "wrong type"),
        (&text, "wrong type"),
    ] {
        for path in [NUMBERS, BEAT] {
            let answer = client.post(path, &headers(), body).unwrap();
            assert_eq!(answer.status, 400, "{body}: {}", answer.body);
            assert!(answer.body.contains(said), "{body}: {}", answer.body);
            assert!(!answer.body.contains("planted"), "{}", answer.body);
        }
    }
}
