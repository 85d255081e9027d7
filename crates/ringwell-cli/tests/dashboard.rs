//! Tests changes that users make in the dashboard: the required permissions, the effects, and the
//! authors in the audit log. The pages' appearance is tested in a browser (`web/dashboard`).

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "dashboard/open_pages.rs"]
mod open_pages;
#[allow(dead_code, reason = "each test program uses its own part")]
#[path = "calls/phone.rs"]
mod phone;
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use phone::{Phone, Provider};
use serde_json::{Value, json};
use support::batch::{self, Ask, BULK};
use support::client::{Client, HttpAnswer};
use support::server::Server;
use support::site::{Pool, Site, TOKEN};

const PATIENCE: Duration = Duration::from_secs(30);

/// A webhook receiver that answers with a status chosen by the test.
struct Receiver {
    port: u16,
    status: Arc<AtomicU16>,
    taken: Arc<AtomicU16>,
}

impl Receiver {
    fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (status, taken) = (Arc::new(AtomicU16::new(status)), Arc::new(AtomicU16::new(0)));
        let receiver = Self { port, status: Arc::clone(&status), taken: Arc::clone(&taken) };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream);
                let (mut length, mut line) = (0, String::new());
                while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                    let field = line.to_ascii_lowercase();
                    let value = field.strip_prefix("content-length:").map(str::trim);
                    length = value.map_or(length, |value| value.parse().unwrap());
                    line.clear();
                }
                let mut body = vec![0; length];
                if reader.read_exact(&mut body).is_err() {
                    continue;
                }
                let status = status.load(Ordering::Relaxed);
                taken.fetch_add(u16::from(status == 200), Ordering::Relaxed);
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n");
                let _ = write!(reader.get_mut(), "{head}Connection: close\r\n\r\n");
            }
        });
        receiver
    }
}

/// A server with calls, a dashboard, and ring pools in a database.
struct DashboardServer {
    site: Site,
    server: Server,
    /// The management address.
    ui: String,
}

impl DashboardServer {
    fn open(pool: Pool, receiver: Option<&Receiver>, database: bool) -> Self {
        let webhooks = receiver.map_or_else(String::new, |receiver| {
            format!(
                "[calls.webhooks]\nallow_networks = [\"127.0.0.0/8\"]\nallow_http = true\n\
                 allow_ports = [{}]\n",
                receiver.port
            )
        });
        let kept = if database {
            "[directory]\ndatabase = \"sqlite:directory.sqlite\"\n\
                    [inventory]\ncheck_numbers = \"possible\"\n"
        } else {
            ""
        };
        let settings = format!(
            "shards = 1\nmanagement.address = \"127.0.0.1:0\"\nmanagement.dashboard = true\n{kept}\
             {}[[calls.destination]]\nring_pools = [{}]\nto = [\"+18005550199\"]\n{webhooks}",
            Phone::settings(),
            pool.id
        );
        let site = Site::new(vec![pool], &settings);
        Phone::write_secrets(&site);
        let server = Server::start(site.serve(&[]));
        server.says("\"management\"");
        let log = server.log();
        let line = log.lines().find(|line| line.contains("\"message\":\"management\"")).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        let ui = line["address"].as_str().unwrap().to_owned();
        Self { site, server, ui }
    }

    fn manage(&self, path: &str, body: &Value) -> HttpAnswer {
        let bearer = format!("Bearer {TOKEN}");
        let mut client = Client::connect(&self.ui).unwrap();
        client.post(path, &[("authorization", &bearer)], &body.to_string()).unwrap()
    }

    fn of_v1(&self, path: &str) -> Value {
        let bearer = format!("Bearer {TOKEN}");
        let mut client = Client::connect(&self.ui).unwrap();
        client.get(path, &[("authorization", &bearer)]).unwrap().json()
    }

    /// Creates a token with the role `role`.
    fn token(&self, role: &str) -> String {
        let made =
            self.manage("/v1/tokens", &json!({ "name": format!("the {role}"), "role": role }));
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["token"].as_str().unwrap().to_owned()
    }

    fn log_in(&self, token: &str) -> Person<'_> {
        let mut client = Client::connect(&self.ui).unwrap();
        let answer = client.post("/ui/login", &[], &format!("token={token}")).unwrap();
        assert_eq!(answer.status, 303, "{}", answer.body);
        let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let person = Person { place: self, cookie, form: String::new() };
        let page = person.see("/ui/pools");
        let form = page.split("name=\"form\" value=\"").nth(1).unwrap()[..64].to_owned();
        Person { form, ..person }
    }
}

/// A logged-in user.
struct Person<'a> {
    place: &'a DashboardServer,
    cookie: String,
    /// The secret in the forms on the user's pages.
    form: String,
}

impl Person<'_> {
    fn see(&self, path: &str) -> String {
        let mut client = Client::connect(&self.place.ui).unwrap();
        let answer = client.get(path, &[("cookie", &self.cookie)]).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }

    fn send(&self, path: &str, fields: &str, more: &[(&str, &str)]) -> HttpAnswer {
        let mut client = Client::connect(&self.place.ui).unwrap();
        let headers = [&[("cookie", self.cookie.as_str())][..], more].concat();
        client.post(path, &headers, fields).unwrap()
    }

    fn change(&self, path: &str, fields: &str) -> HttpAnswer {
        let form = &self.form;
        self.send(path, &format!("form={form}&{fields}"), &[("sec-fetch-site", "same-origin")])
    }
}

fn until<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = holds() {
            return found;
        }
        assert!(Instant::now() < until, "{what} has not come");
        thread::sleep(Duration::from_millis(50));
    }
}

fn numbers_of(place: &DashboardServer) -> u64 {
    let runs = place.of_v1("/v1/pools/7/numbers");
    let available = runs.as_array().unwrap().iter().filter(|run| run["state"] == "available");
    available.map(|run| run["count"].as_u64().unwrap()).sum()
}

/// Checks that invalid sites are refused. `shop` contains all form fields of a site, and `rest`
/// contains all fields except the key.
fn refuses_wrong_sites(writer: &Person<'_>, rest: &str, shop: &str) {
    for wrong in [
        rest.to_owned(),
        format!("key=pk_%3Cb%3E&{rest}"),
        shop.replace("%3D7", "%3D8"),
        shop.replace("%3D7", ""),
        shop.replace("https", "ftp"),
        shop.replace("consent=off", "consent=maybe"),
        shop.replace("minute=60", "minute=-1"),
        shop.replace("shop.example", &"x".repeat(10_000)),
        format!("{shop}&edge_key=short"),
    ] {
        let answer = writer.change("/ui/sites/new", &wrong);
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.body);
        assert!(!answer.body.contains("pk_<b>"), "{}", answer.body);
    }
}

#[test]
fn authorized_users_create_change_and_remove_a_site_and_two_pages_do_not_overwrite_each_other() {
    const NEW: &str = "/ui/sites/new";
    const SAVE: &str = "/ui/sites/pk_shop/save";
    const REMOVE: &str = "/ui/sites/pk_shop/remove";
    let place = DashboardServer::open(Pool::new(7, 4, Duration::from_secs(30)), None, true);
    let [reader, writer, admin] = ["read", "write", "admin"].map(|role| place.token(role));
    let [reader, writer, admin] = [reader, writer, admin].map(|token| place.log_in(&token));
    let rest = "origins=https%3A%2F%2Fshop.example&swaps=%2B18005550100%3D7&consent=off\
                &leases_per_minute=60";
    let shop = format!("key=pk_shop&{rest}");
    assert!(!reader.see("/ui/sites").contains("Add a web site"));
    assert_eq!(reader.change(NEW, &shop).status, 403);
    let forged = writer.send(NEW, &format!("form={}&{shop}", "0".repeat(64)), &[]);
    assert_eq!(forged.status, 403);
    refuses_wrong_sites(&writer, rest, &shop);
    assert_eq!(place.of_v1("/v1/sites"), json!([]));

    let made = writer.change(NEW, &shop);
    assert_eq!((made.status, made.header("location")), (303, Some("pk_shop")), "{}", made.body);
    let site = place.of_v1("/v1/sites/pk_shop");
    assert_eq!(site["origins"], json!(["https://shop.example"]));
    // The pool's lifetime is half a minute, but pages send a keep-alive only once per minute.
    assert_eq!(site["short_lived_ring_pools"], json!([7]));
    until("the site is served", || {
        place.server.client().get("/metrics", &[]).unwrap().body.contains("pk_shop").then_some(())
    });
    assert!(writer.see("/ui/sites").contains("numbers may change while a page shows them"));
    assert_eq!(writer.change(NEW, &shop).status, 400, "there is one already");

    let page = writer.see("/ui/sites/pk_shop");
    assert!(page.contains("data-site=&quot;pk_shop&quot;"), "{page}");
    assert!(!reader.see("/ui/sites/pk_shop").contains("name=\"seen\""));
    let seen = |page: &str| page.split("name=\"seen\" value=\"").nth(1).unwrap()[..32].to_owned();
    let first = seen(&page);
    let changed =
        format!("seen={first}&{}&edge_key=only-the-edge-knows", rest.replace("off", "required"));
    let saved = writer.change(SAVE, &changed);
    let went = (saved.status, saved.header("location"));
    assert_eq!(went, (303, Some("../pk_shop")), "{}", saved.body);
    let late = admin.change(SAVE, &format!("seen={first}&{rest}"));
    assert_eq!(late.status, 400);
    assert!(late.body.contains("was changed after this page was loaded"), "{}", late.body);
    assert_eq!(writer.change(REMOVE, &format!("seen={first}")).status, 400);
    let site = place.of_v1("/v1/sites/pk_shop");
    assert_eq!((&site["consent"], &site["has_edge_key"]), (&json!("required"), &json!(true)));
    let page = admin.see("/ui/sites/pk_shop");
    assert!(!page.contains("only-the-edge-knows"));
    assert!(page.contains("Who changed it") && page.contains("create"), "{page}");
    let second = seen(&page);
    assert_eq!(writer.change(SAVE, &format!("seen={second}&{rest}&no_edge_key=yes")).status, 303);
    assert_eq!(place.of_v1("/v1/sites/pk_shop")["has_edge_key"], json!(false));

    let third = seen(&writer.see("/ui/sites/pk_shop"));
    assert_eq!(reader.change(REMOVE, &format!("seen={third}")).status, 403);
    let removed = writer.change(REMOVE, &format!("seen={third}"));
    assert_eq!((removed.status, removed.header("location")), (303, Some("../../sites")));
    assert_eq!(place.of_v1("/v1/sites"), json!([]));
    assert_eq!(writer.change(REMOVE, &format!("seen={third}")).status, 404);
}

#[test]
fn the_pages_of_sites_show_the_configuration_as_last_read() {
    for database in [false, true] {
        let place =
            DashboardServer::open(Pool::new(16, 10, Duration::from_mins(10)), None, database);
        let without = std::fs::read_to_string(place.site.config()).unwrap();
        let person = place.log_in(TOKEN);
        for origin in ["https://shop.example", "https://www.example"] {
            let section = format!(
                "\n[[site]]\nkey = \"pk_file\"\norigins = [\"{origin}\"]\n\
                 [[site.swap]]\nnumber = \"+18005550100\"\nring_pool = 16\n"
            );
            std::fs::write(place.site.config(), without.clone() + &section).unwrap();
            assert!(place.server.reload().contains("reloaded"));
            until("the site with its new origin", || {
                person.see("/ui/sites").contains("pk_file").then_some(())?;
                person.see("/ui/sites/pk_file").contains(origin).then_some(())
            });
        }
        std::fs::write(place.site.config(), &without).unwrap();
        assert!(place.server.reload().contains("reloaded"));
        until("no site", || (!person.see("/ui/sites").contains("pk_file")).then_some(()));
    }
}

#[test]
fn authorized_users_resize_a_pool_change_its_key_and_quarantine_a_number() {
    let place = DashboardServer::open(Pool::new(7, 4, Duration::from_millis(200)), None, true);
    let added = place.manage("/v1/numbers", &json!({ "ranges": ["2009000000-2009000049"] }));
    assert_eq!(added.status, 200, "{}", added.body);
    let (writer, admin) = (place.token("write"), place.token("admin"));
    let (writer, admin) = (place.log_in(&writer), place.log_in(&admin));

    let resized = writer.change("/ui/pools/7/size", "numbers=9");
    assert_eq!(
        (resized.status, resized.header("location")),
        (303, Some("../7")),
        "{}",
        resized.body
    );
    assert_eq!(numbers_of(&place), 9);
    assert_eq!(writer.change("/ui/pools/7/size", "numbers=6").status, 303);
    assert_eq!(numbers_of(&place), 6);
    let too_many = writer.change("/ui/pools/7/size", "numbers=60");
    assert_eq!(too_many.status, 400);
    assert!(too_many.body.contains("are missing: the inventory has no more"), "{}", too_many.body);
    assert_eq!(numbers_of(&place), 6, "nothing has changed");
    for wrong in ["numbers=", "numbers=0", "numbers=-1", "numbers=x", "numbers=99999999", ""] {
        assert_eq!(writer.change("/ui/pools/7/size", wrong).status, 400, "{wrong}");
    }
    assert_eq!(writer.change("/ui/pools/8/size", "numbers=9").status, 400, "no such pool");

    let keyed = writer.change("/ui/pools/7/key", "");
    assert_eq!(keyed.status, 200, "{}", keyed.body);
    let key = keyed.body.split("<code>").nth(1).unwrap()[..32].to_owned();
    let mut with_new_key = place.site.pools[0].clone();
    with_new_key.key = key;
    let body = batch::body(&[Ask { pool: 7, id: "1".to_owned() }], &[with_new_key]);
    until("the new key", || {
        let rows = batch::rows(&place.server.client().post(BULK, &[], &body).ok()?);
        rows.first().map(|row| row.number).filter(|number| *number != 0)
    });

    let again = writer.change("/ui/pools/7/key", "");
    assert_eq!(again.status, 400, "{}", again.body);
    assert!(again.body.contains("already has two keys"), "{}", again.body);
    let rows = batch::rows(&place.server.client().post(BULK, &[], &body).unwrap());
    assert_ne!(rows[0].number, 0, "the second key is still valid: {rows:?}");

    let number = place.site.pools[0].first;
    let quarantined = writer.change("/ui/number/quarantine", &format!("number={number}"));
    let back = format!("../number?number={number}");
    assert_eq!(quarantined.header("location"), Some(back.as_str()), "{}", quarantined.body);
    let state = |wanted: &str| place.of_v1(&format!("/v1/numbers/{number}"))["state"] == wanted;
    assert!(state("quarantined"));
    let page = writer.see(&format!("/ui/number?number={number}"));
    assert!(
        page.contains("The number is in quarantine") && !page.contains("Who changed it"),
        "{page}"
    );
    let page = admin.see(&format!("/ui/number?number={number}"));
    assert!(page.contains("the write (token"), "the administrator sees the author: {page}");
    assert_eq!(writer.change("/ui/number/release", &format!("number={number}")).status, 303);
    until("the number", || (state("available") || state("waiting")).then_some(()));

    let page = admin.see("/ui/pools/7");
    for said in ["Who changed it", "the write (token", "rotate key", "Resize"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let audit = place.of_v1("/v1/audit").to_string();
    for action in ["rotate key", "quarantine", "end quarantine", "update"] {
        assert!(audit.contains(action), "{action}: {audit}");
    }
}

#[test]
fn a_revoked_token_changes_nothing_from_the_next_request_on() {
    let place = DashboardServer::open(Pool::new(7, 40, Duration::from_millis(200)), None, true);
    for _ in 0..5 {
        let body = json!({ "name": "ann", "role": "write" });
        let made = place.manage("/v1/tokens", &body).json();
        let person = place.log_in(made["token"].as_str().unwrap());
        let bearer = format!("Bearer {TOKEN}");
        let request = support::client::request(
            "DELETE",
            &format!("/v1/tokens/{}", made["id"].as_str().unwrap()),
            &[("authorization", &bearer)],
            "",
        );
        let mut client = Client::connect(&place.ui).unwrap();
        client.send(request.as_bytes()).unwrap();
        assert_eq!(client.receive().unwrap().status, 204);
        let changed = person.change("/ui/pools/7/size", "numbers=20");
        // If the session has already ended, the answer redirects to the login page.
        let location = changed.header("location").unwrap_or_default();
        assert!(changed.status != 303 || location.ends_with("login"), "{location}");
        assert_eq!(numbers_of(&place), 40);
    }
}

#[test]
fn a_change_requires_a_form_a_role_and_a_page_of_our_own() {
    let place = DashboardServer::open(Pool::new(7, 4, Duration::from_secs(1)), None, true);
    let (reader, writer) = (place.token("read"), place.token("write"));
    let (reader, writer) = (place.log_in(&reader), place.log_in(&writer));
    assert!(!reader.see("/ui/pools/7").contains("Resize"));
    let before = place.of_v1("/v1/audit");
    let changes = [
        ("/ui/pools/7/size", "numbers=2"),
        ("/ui/pools/7/key", ""),
        ("/ui/number/quarantine", "number=2000700000"),
        ("/ui/number/release", "number=2000700000"),
        ("/ui/webhooks/we_1/replay", ""),
        ("/ui/webhooks/we_1/enable", ""),
    ];
    for (path, fields) in changes {
        let by_reader = reader.change(path, fields);
        assert_eq!(by_reader.status, 403, "{path}: {}", by_reader.body);
        let own = ("sec-fetch-site", "same-origin");
        for sent in [
            String::new(),
            "form=&".to_owned(),
            "form=guessed&".to_owned(),
            format!("form={}&", reader.form),
        ] {
            let answer = writer.send(path, &format!("{sent}{fields}"), &[own]);
            assert_eq!(answer.status, 403, "{path} {sent}");
        }
        let with_form = format!("form={}&{fields}", writer.form);
        for foreign in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("origin", "https://evil.example"),
            ("origin", "null"),
        ] {
            assert_eq!(writer.send(path, &with_form, &[foreign]).status, 403, "{path} {foreign:?}");
        }
        let mut client = Client::connect(&place.ui).unwrap();
        let stranger = client.post(path, &[own], &with_form).unwrap();
        assert_eq!(stranger.status, 303, "{path}: to the login");
    }
    assert_eq!(place.of_v1("/v1/audit"), before, "nothing has changed");
    // If the server's pools come from the configuration, they can be changed only there.
    let place = DashboardServer::open(Pool::new(7, 4, Duration::from_secs(1)), None, false);
    let admin = place.log_in(TOKEN);
    assert!(!admin.see("/ui/pools/7").contains("Resize"));
    let answer = admin.change("/ui/pools/7/size", "numbers=2");
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("change them there"), "{}", answer.body);
}

#[test]
fn a_disabled_endpoint_is_enabled_and_gets_its_missed_events() {
    let receiver = Receiver::start(410);
    let place =
        DashboardServer::open(Pool::new(7, 4, Duration::from_mins(1)), Some(&receiver), true);
    let url = format!("http://127.0.0.1:{}/in", receiver.port);
    let made = place.manage_calls("/v1/webhooks", &json!({ "url": url }));
    let id = made["id"].as_str().unwrap().to_owned();
    place.call("CA1");
    let admin = place.log_in(TOKEN);
    let page = until("the end", || {
        let page = admin.see("/ui/webhooks");
        page.contains("Switch it on").then_some(page)
    });
    assert!(page.contains("✖ off: the endpoint answered 410"), "{page}");
    receiver.status.store(200, Ordering::Relaxed);
    assert_eq!(admin.change(&format!("/ui/webhooks/{id}/enable"), "").status, 303);
    let replayed = admin.change(&format!("/ui/webhooks/{id}/replay"), "");
    assert_eq!((replayed.status, replayed.header("location")), (303, Some("../../webhooks")));
    // The missed events include at least call.started and call.completed.
    until("what it missed", || (receiver.taken.load(Ordering::Relaxed) >= 2).then_some(()));
    let page = until("a success", || {
        let page = admin.see("/ui/webhooks");
        page.contains("✔ accepts events").then_some(page)
    });
    for said in ["Who changed it", "enable webhooks", "replay webhooks", "configured token"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    assert_eq!(admin.change("/ui/webhooks/we_nothing/replay", "").status, 404);
}

#[test]
fn a_pool_s_page_shows_how_long_its_numbers_have_been_free() {
    let place = DashboardServer::open(Pool::new(7, 4, Duration::from_secs(5)), None, false);
    let first = place.server.client().get("/", &[]).unwrap();
    assert_eq!(first.status, 200);
    assert!(first.body.contains("The dashboard is at /ui/ on the management address"), "{first:?}");
    let body = batch::body(&[Ask { pool: 7, id: "1".to_owned() }], &place.site.pools);
    place.server.client().post(BULK, &[], &body).unwrap();
    let admin = place.log_in(TOKEN);
    let rested = || {
        let page: Value = serde_json::from_str(&admin.see("/ui/pools/7.json")).unwrap();
        page["rested"].clone()
    };
    let numbers = json!([0, 0, 0, 0, 0, 0]);
    let bounds = json!([1, 2, 5, 10, 50]);
    let held = json!({ "held": 1, "never": 3, "bounds_in_lifetimes": bounds, "numbers": numbers });
    assert_eq!(rested(), held);
    until("the end of the lockout", || (rested()["numbers"][0] == 1).then_some(()));
    until("another lifetime", || (rested()["numbers"][1] == 1).then_some(()));
    assert_eq!((&rested()["held"], &rested()["never"]), (&json!(0), &json!(3)));
    assert!(admin.see("/ui/pools/7").contains("Time for which the pool's numbers have been free"));
}

#[test]
fn a_pool_that_runs_out_is_an_event_and_a_webhook() {
    let receiver = Receiver::start(200);
    let place =
        DashboardServer::open(Pool::new(7, 2, Duration::from_mins(1)), Some(&receiver), false);
    let url = format!("http://127.0.0.1:{}/in", receiver.port);
    let new = json!({ "url": url, "types": ["pool.exhausting"] });
    assert!(place.manage_calls("/v1/webhooks", &new)["id"].is_string());
    let mut client = place.server.client();
    let event = until("the event", || {
        // Ten visitors request numbers from a pool of two.
        let asks: Vec<_> = (0..10).map(|id| Ask { pool: 7, id: id.to_string() }).collect();
        client.post(BULK, &[], &batch::body(&asks, &place.site.pools)).unwrap();
        let events = place.of_calls("/v1/events?after=0");
        let all = events["events"].as_array().unwrap();
        all.iter().find(|event| event["type"] == "pool.exhausting").cloned()
    });
    let data = &event["data"];
    assert_eq!((&data["pool"], &data["numbers"]), (&json!(7), &json!(2)), "{event:#}");
    assert!(data["overflow"].as_f64().unwrap() > 0.5, "{event:#}");
    until("the webhook", || (receiver.taken.load(Ordering::Relaxed) >= 1).then_some(()));
    // The event is sent at most once per hour, whatever requests follow.
    thread::sleep(Duration::from_secs(6));
    let events = place.of_calls("/v1/events?after=0");
    assert_eq!(events["events"].as_array().unwrap().len(), 1, "{events:#}");
}

impl DashboardServer {
    /// Sends a change to the call settings to the address for clients, which also serves the API
    /// for managing calls.
    fn manage_calls(&self, path: &str, body: &Value) -> Value {
        let bearer = format!("Bearer {TOKEN}");
        let mut client = self.server.client();
        let answer = client.post(path, &[("authorization", &bearer)], &body.to_string()).unwrap();
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()
    }

    fn of_calls(&self, path: &str) -> Value {
        let bearer = format!("Bearer {TOKEN}");
        self.server.client().get(path, &[("authorization", &bearer)]).unwrap().json()
    }

    /// Allocates a number to a visitor, and makes a complete call to it.
    fn call(&self, name: &str) {
        let body = batch::body(&[Ask { pool: 7, id: "17".to_owned() }], &self.site.pools);
        let rows = batch::rows(&self.server.client().post(BULK, &[], &body).unwrap());
        let twilio = Provider::twilio(&Phone::at(&self.server));
        let number = rows[0].number;
        let ring = format!("CallSid={name}&From=%2B14155551234&To=%2B1{number}");
        assert_eq!(twilio.post("/t/main/answer", &ring).status, 200);
        let done = format!("CallSid={name}&DialCallStatus=completed&DialCallDuration=5");
        assert_eq!(twilio.post("/t/main/dial?leg=0&last=1", &done).status, 200);
    }
}
