//! Tests web servers that put numbers into pages: the examples in `deploy/edge`, run by nginx,
//! Caddy and the Cloudflare Workers runtime.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use support::client::Client;
use support::server::Server;
use support::site::{Pool, Site, TOKEN};
use tempfile::TempDir;

const FIREFOX: &str =
    "user-agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
/// The header that browsers send when they request pages.
const HTML: &str = "accept: text/html,application/xhtml+xml,*/*;q=0.8";
const EDGE_KEY: &str = "only-the-edge-knows";
const PATH: &str = "/?gclid=c-7&utm_source=%C3%B6";
const SOON: Duration = Duration::from_secs(30);
const STYLE: &str = "a::after { content: '800-555-0100' }";
const OWN: [&str; 3] = ["(800) 555-0100", "800-555-0100", "+18005550100"];

/// A web server that runs an example. Killed when dropped.
struct Edge {
    folder: TempDir,
    child: Child,
    address: String,
    /// The host name in requests to the web server.
    host: String,
}

impl Drop for Edge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns the first of these paths that exists.
fn program<'a>(places: &[&'a str]) -> Option<&'a str> {
    places.iter().copied().find(|place| Path::new(place).exists())
}

impl Edge {
    /// Starts `command` and waits until the web server answers at `address`.
    fn start(mut command: Command, folder: TempDir, address: String) -> Self {
        let log = fs::File::create(folder.path().join("edge.log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let host = address.clone();
        let edge = Self { child: command.spawn().unwrap(), folder, address, host };
        let until = Instant::now() + SOON;
        while Client::connect(&edge.address).is_err() {
            let log = || fs::read_to_string(edge.folder.path().join("edge.log"));
            assert!(Instant::now() < until, "{:?}", log());
            thread::sleep(Duration::from_millis(10));
        }
        edge
    }

    /// Starts nginx with its example, in front of a server that has one page.
    fn nginx(ringwell: &str) -> Option<Self> {
        let nginx = program(&["/usr/sbin/nginx", "/usr/local/sbin/nginx"])?;
        let folder = TempDir::new().unwrap();
        let (address, pages) =
            (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
        let page = "<p>(800) 555-0100</p><p>800-555-0100</p><a href=\"tel:+18005550100\">call</a>";
        fs::create_dir(folder.path().join("pages")).unwrap();
        fs::write(folder.path().join("pages/index.html"), page).unwrap();
        fs::write(folder.path().join("pages/a.css"), STYLE).unwrap();
        let example = example("nginx.conf")
            .replace("127.0.0.1:8000", &address)
            .replace("127.0.0.1:8001", &pages)
            .replace("127.0.0.1:8080", ringwell);
        let at = folder.path().display();
        // Makes nginx run as the current user, in the foreground, with all of its files in the
        // temporary folder.
        let config = format!(
            "daemon off;\nmaster_process off;\npid {at}/pid;\nerror_log {at}/error.log;\n\
             events {{}}\nhttp {{\n\
             access_log off;\nclient_body_temp_path {at}/body;\nproxy_temp_path {at}/proxy;\n\
             fastcgi_temp_path {at}/f;\nuwsgi_temp_path {at}/u;\nscgi_temp_path {at}/s;\n\
             types {{ text/html html; text/css css; }}\n\
             server {{\nlisten {pages};\nroot {at}/pages;\nerror_page 404 503 /index.html;\n\
             location = /down {{ return 503; }}\nlocation = /old {{ return 301 /; }}\n}}\n\
             {example}\n}}\n"
        );
        fs::write(folder.path().join("nginx.conf"), config).unwrap();
        let mut command = Command::new(nginx);
        command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
        Some(Self::start(command, folder, address))
    }

    /// Starts Caddy with its example.
    fn caddy(ringwell: &str) -> Option<Self> {
        let caddy = program(&["/usr/bin/caddy", "/usr/local/bin/caddy"])?;
        let folder = TempDir::new().unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let shown = |name: &str, own: &str| {
            format!("{{{{with .Req.Header.Get \"{name}\"}}}}{{{{.}}}}{{{{else}}}}{own}{{{{end}}}}")
        };
        let (number, tel) = (shown("Ringwell-Number", OWN[1]), shown("Ringwell-Tel", OWN[2]));
        let page = format!("<p>{number}</p><a href=\"tel:{tel}\">call</a>");
        fs::write(folder.path().join("index.html"), page).unwrap();
        fs::write(folder.path().join("a.css"), STYLE).unwrap();
        let config = example("Caddyfile")
            .replace("127.0.0.1:8000", &address)
            .replace("127.0.0.1:8001", &format!("127.0.0.1:{}", free_port()))
            .replace("127.0.0.1:8080", ringwell)
            .replace("/var/www/shop", folder.path().to_str().unwrap());
        let config = format!("{{\n\tadmin off\n\tauto_https off\n}}\n{config}");
        fs::write(folder.path().join("Caddyfile"), config).unwrap();
        let mut command = Command::new(caddy);
        command.args(["run", "--adapter", "caddyfile", "--config"]);
        command.arg(folder.path().join("Caddyfile"));
        command.env("HOME", folder.path()).env("XDG_CONFIG_HOME", folder.path());
        Some(Self::start(command, folder, address))
    }

    /// Starts the worker in Cloudflare's own runtime, in front of a server that has one page.
    fn worker(ringwell: &str) -> Option<Self> {
        let workerd = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../web/worker/node_modules/.bin/workerd");
        if !workerd.exists() {
            return None;
        }
        let folder = TempDir::new().unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        // The page contains its own number three times: in an element next to an HTML entity, in a
        // separate paragraph, and in a link target. Visitors do not see the link target.
        let page = "<p>Call&nbsp;<b>(800) 555-0100</b> &amp; ask</p><p>800-555-0100</p>\
                    <a href=\"tel:+18005550100\">call</a><script>let own = 1 < 2;</script>";
        let pages = pages(page);
        let bindings = [
            ("RINGWELL", format!("http://{ringwell}")),
            ("SITE", "pk_shop".to_owned()),
            ("EDGE_KEY", EDGE_KEY.to_owned()),
            ("OWN_TEL", OWN[2].to_owned()),
        ];
        let bindings =
            bindings.map(|(name, text)| format!("(name = \"{name}\", text = \"{text}\")"));
        let config = format!(
            "using Workerd = import \"/workerd/workerd.capnp\";\n\
             const config :Workerd.Config = (\n services = [\n\
             (name = \"main\", worker = (compatibilityDate = \"2026-01-01\",\n\
             modules = [(name = \"worker.js\", esModule = embed \"worker.js\")],\n\
             bindings = [{}], globalOutbound = \"internet\")),\n\
             (name = \"internet\", network = (allow = [\"public\", \"private\", \"local\"])),\n ],\n\
             sockets = [(name = \"http\", address = \"{address}\", http = (), service = \"main\")],\n);\n",
            bindings.join(", ")
        );
        fs::write(folder.path().join("config.capnp"), config).unwrap();
        fs::write(folder.path().join("worker.js"), example("worker.js")).unwrap();
        let mut command = Command::new(workerd);
        command.arg("serve").arg(folder.path().join("config.capnp"));
        let mut edge = Self::start(command, folder, address);
        edge.host = pages;
        Some(edge)
    }

    /// Requests `path`. Returns the head of the response, in lower case, and the body.
    fn get(&self, path: &str, headers: &[&str]) -> (String, String) {
        let mut curl = Command::new("curl");
        curl.args(["-si", "--max-time", "10", "-H", &format!("Host: {}", self.host)]);
        for header in headers {
            curl.args(["-H", header]);
        }
        curl.arg(format!("http://{}{path}", self.address));
        let answer = String::from_utf8(curl.output().unwrap().stdout).unwrap();
        let log = || fs::read_to_string(self.folder.path().join("edge.log"));
        let Some((head, body)) = answer.split_once("\r\n\r\n") else {
            panic!("{answer} {:?}", log());
        };
        (head.to_lowercase(), body.to_owned())
    }

    /// Requests the page, as a browser does. Returns the head of the response, in lower case, and
    /// the body.
    fn page(&self, headers: &[&str]) -> (String, String) {
        let (head, body) = self.get(PATH, &[&[HTML], headers].concat());
        assert!(head.starts_with("http/1.1 200"), "{head} {body}");
        (head, body)
    }
}

/// Starts a server that answers requests with this page, even for paths that do not exist. It has
/// one style. Returns its address.
fn pages(page: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // One read is enough, because a small request without a body arrives in one piece.
            let mut request = [0; 8192];
            let length = stream.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let (status, kind, body) = match request.split(' ').nth(1).unwrap_or_default() {
                path if path.starts_with("/?") => ("200 OK", "text/html; charset=utf-8", page),
                "/a.css" => ("200 OK", "text/css", STYLE),
                _ => ("404 Not Found", "text/html; charset=utf-8", page),
            };
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nCache-Control: public, max-age=600\r\n\
                 Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    address
}

/// Returns an example from `deploy/edge`, with the tests' secret.
fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/edge").join(name);
    fs::read_to_string(path).unwrap().replace("16 to 256 characters", EDGE_KEY)
}

fn ringwell(consent: &str) -> (Site, Server) {
    let settings = format!(
        "shards = 1\n[[site]]\nkey = \"pk_shop\"\norigins = [\"https://shop.example\"]\n\
         consent = \"{consent}\"\n\
         edge_key = \"{EDGE_KEY}\"\n[[site.swap]]\nnumber = \"+18005550100\"\nring_pool = 1\n"
    );
    let site = Site::new(vec![Pool::new(1, 50, Duration::from_mins(30))], &settings);
    let server = Server::start(site.serve(&[]));
    (site, server)
}

fn keeps_its_own_number((_, body): &(String, String)) {
    assert!(body.contains(OWN[1]) && body.contains(OWN[2]), "{body}");
    assert!(!body.contains("200010"), "{body}");
}

/// Checks that the page shows the visitor's number instead of its own. If Ringwell is down or has
/// no number for the page, the page must keep its own number.
fn the_page_has_the_visitor_s_number(start: fn(&str) -> Option<Edge>) {
    let (_site, server) = ringwell("off");
    // CI installs the web servers. On other machines, they may be missing.
    let Some(edge) = start(server.address()) else { return };
    let (head, body) = edge.page(&[FIREFOX]);
    for own in OWN {
        assert!(!body.contains(own), "{own} in {body}");
    }
    let tel = body.split("tel:+1").nth(1).unwrap()[..10].to_owned();
    let formatted = format!("({}) {}-{}", &tel[..3], &tel[3..6], &tel[6..]);
    assert!(body.contains(&formatted), "{formatted} in {body}");
    assert!(head.contains("cache-control: private, no-store"), "{head}");
    let script = body.contains("<script>");
    assert!(!script || body.contains("<script>let own = 1 < 2;</script>"), "{body}");
    // The visitor returns with the cookie from the first answer.
    let cookie = head.split("set-cookie: ").nth(1).unwrap().split(';').next().unwrap();
    let (_, again) = edge.page(&[FIREFOX, &format!("cookie: {cookie}")]);
    assert!(again.contains(&formatted), "{formatted} in {again}");
    // A call to the number is attributed to the visitor, with the page's parameters.
    let token = format!("Bearer {TOKEN}");
    let path = format!("/v1/attributions?number={tel}");
    let call = server.client().get(&path, &[("authorization", token.as_str())]).unwrap().json();
    assert_eq!(call["parameters"]["gclid"], "c-7", "{call}");
    assert_eq!(call["parameters"]["utm_source"], "ö", "{call}");
    keeps_its_own_number(&edge.page(&["user-agent: Googlebot/2.1"]));
    drop(server);
    keeps_its_own_number(&edge.page(&[FIREFOX]));
}

/// Checks that the page shows a visitor's number only if the site's `consent` setting permits it.
fn the_page_follows_the_visitor_s_consent(start: fn(&str) -> Option<Edge>) {
    let (_site, server) = ringwell("required");
    let Some(edge) = start(server.address()) else { return };
    for refused in [
        "a: b",
        "cookie: consent=denied",
        "cookie: consent=granted; consent=denied",
        "cookie: consent=denied; a=b; consent=granted",
        "cookie: consent=granted; consent=",
        "cookie: consent=grantedly",
        "cookie: noconsent=granted",
    ] {
        keeps_its_own_number(&edge.page(&[FIREFOX, refused]));
    }
    let agreed = [FIREFOX, "cookie: a=b; consent=granted"];
    keeps_its_own_number(&edge.page(&[&agreed[..], &["sec-gpc: 1"]].concat()));
    // A visitor's header must not replace the edge server's header.
    keeps_its_own_number(&edge.page(&[FIREFOX, "ringwell-consent: granted"]));
    let (head, body) = edge.page(&agreed);
    assert!(head.contains("set-cookie: rw_v=") && body.contains("tel:+1200010"), "{head} {body}");
    drop((edge, server));

    let (_site, server) = ringwell("cookieless");
    let edge = start(server.address()).unwrap();
    let (head, body) = edge.page(&[FIREFOX]);
    assert!(!head.contains("set-cookie") && body.contains("tel:+1200010"), "{head} {body}");
}

/// Returns how many requests have got numbers.
fn given(server: &Server) -> u64 {
    let metrics = server.client().get("/metrics", &[]).unwrap().body;
    let counted = "ringwell_site_requests_total{site=\"pk_shop\",outcome=\"numbers\"} ";
    metrics.split(counted).nth(1).unwrap().lines().next().unwrap().parse().unwrap()
}

/// Checks that only pages take numbers. A page's styles and images, which may be many, are passed
/// on unchanged.
fn only_pages_take_numbers(start: fn(&str) -> Option<Edge>) {
    let (_site, server) = ringwell("cookieless");
    let Some(edge) = start(server.address()) else { return };
    for accept in ["accept: text/css,*/*;q=0.1", "accept: image/avif,image/*,*/*;q=0.8", "accept:"]
    {
        let (head, body) = edge.get("/a.css", &[FIREFOX, accept]);
        assert!(head.starts_with("http/1.1 200") && body == STYLE, "{head} {body}");
    }
    assert_eq!(given(&server), 0);
    let (_, body) = edge.page(&[FIREFOX]);
    assert!(body.contains("tel:+1200010"), "{body}");
    assert_eq!(given(&server), 1);
    // A program may request a page without accepting its type: the page keeps its own number.
    keeps_its_own_number(&edge.get(PATH, &[FIREFOX, "accept: */*"]));
    assert_eq!(given(&server), 1);
}

/// Checks that error pages with a visitor's number are not cached for others, and that the visitor
/// keeps this number.
fn error_pages_are_for_one_visitor(start: fn(&str) -> Option<Edge>, paths: &[&str]) {
    let (_site, server) = ringwell("off");
    let Some(edge) = start(server.address()) else { return };
    for path in paths {
        let (head, body) = edge.get(path, &[FIREFOX, HTML]);
        assert!(
            !head.starts_with("http/1.1 200") && body.contains("tel:+1200010"),
            "{head} {body}"
        );
        assert!(head.contains("cache-control: private, no-store"), "{head}");
        let cookie = head.split("set-cookie: ").nth(1).unwrap().split(';').next().unwrap();
        let (_, again) = edge.get(path, &[FIREFOX, HTML, &format!("cookie: {cookie}")]);
        assert_eq!(again, body);
    }
}

/// Checks that a range request for a page returns that range or the whole page, and that a HEAD
/// request does not return the length of an empty page.
fn a_part_of_a_page_is_not_cut(edge: &Edge) {
    let (_, whole) = edge.get("/", &["accept: */*"]);
    for last in [9, 30] {
        let (head, body) = edge.get("/", &["accept: */*", &format!("range: bytes=0-{last}")]);
        let is_part = head.starts_with("http/1.1 206");
        assert!(is_part || head.starts_with("http/1.1 200"), "{head} {body}");
        assert_eq!(body, if is_part { &whole[..=last] } else { &whole }, "{head}");
    }
    let head = Command::new("curl").arg("-sI").arg(&edge.address).output().unwrap().stdout;
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("http/1.1 200") && !head.contains("content-length: 0"), "{head}");
}

/// Checks the status and body of answers to conditional requests and range requests for a style
/// sheet, and that browsers get whole pages. The results must be the same without Ringwell.
fn other_answers_are_passed_on(start: fn(&str) -> Option<Edge>) {
    let (_site, server) = ringwell("off");
    let Some(edge) = start(server.address()) else { return };
    let check = || {
        for accept in [HTML, "accept: */*"] {
            let (head, _) = edge.get("/missing.css", &[FIREFOX, accept]);
            assert!(head.starts_with("http/1.1 404"), "{head}");
        }
        let (head, body) = edge.get("/a.css", &["range: bytes=0-3"]);
        assert!(head.starts_with("http/1.1 206") && body == STYLE[..4], "{head} {body}");
        let (head, _) = edge.get("/a.css", &["range: bytes=1000-"]);
        assert!(head.starts_with("http/1.1 416"), "{head}");
        let (head, _) = edge.get("/a.css", &[]);
        let value = |name| head.split(name).nth(1).unwrap().lines().next().unwrap().to_owned();
        let (tag, changed) = (value("etag: "), value("last-modified: "));
        let (head, body) = edge.get("/a.css", &[&format!("if-none-match: {tag}")]);
        assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{head} {body}");
        // The head is in lower case, but nginx reads only "Tue, 01 Dec 2026 01:02:03 GMT".
        let words = changed.split(' ').map(|word| word[..1].to_uppercase() + &word[1..]);
        let same = words.collect::<Vec<_>>().join(" ").replace("Gmt", "GMT");
        let (head, _) = edge.get("/a.css", &[&format!("if-modified-since: {same}")]);
        assert!(head.starts_with("http/1.1 304"), "{head}");
        edge.page(&[FIREFOX, &format!("if-modified-since: {same}")]);
        edge.page(&[FIREFOX, "range: bytes=0-3"]);
        a_part_of_a_page_is_not_cut(&edge);
    };
    check();
    drop(server);
    check();
}

#[test]
fn nginx_passes_on_other_answers() {
    other_answers_are_passed_on(Edge::nginx);
}

#[test]
fn caddy_passes_on_other_answers() {
    other_answers_are_passed_on(Edge::caddy);
}

/// Any answer with a visitor's cookie must be kept from shared caches, whatever its type.
#[test]
fn nginx_sends_the_cookie_only_with_answers_that_are_not_cached() {
    let (_site, server) = ringwell("off");
    let Some(edge) = Edge::nginx(server.address()) else { return };
    for path in ["/a.css", "/old", "/down", "/"] {
        let (head, _) = edge.get(path, &[FIREFOX, HTML]);
        assert!(head.contains("set-cookie: rw_v=") && head.contains("private, no-store"), "{head}");
        let (head, _) = edge.get(path, &[FIREFOX]);
        assert!(!head.contains("set-cookie"), "{head}");
    }
}

/// Checks that the page is shown with its own number if Ringwell refuses the edge server's
/// requests: after the edge key was changed, and after the site was removed.
fn a_refused_edge_shows_the_page(start: fn(&str) -> Option<Edge>) {
    let (site, server) = ringwell("off");
    let Some(edge) = start(server.address()) else { return };
    let settings = fs::read_to_string(site.config()).unwrap();
    let site_starts = settings.find("[[site]]").unwrap();
    for changed in
        [settings.replace(EDGE_KEY, "another-key-0123456789"), settings[..site_starts].to_owned()]
    {
        fs::write(site.config(), changed).unwrap();
        server.reload();
        keeps_its_own_number(&edge.page(&[FIREFOX]));
    }
}

#[test]
fn nginx_shows_the_page_if_ringwell_refuses_its_requests() {
    a_refused_edge_shows_the_page(Edge::nginx);
}

#[test]
fn caddy_shows_the_page_if_ringwell_refuses_its_requests() {
    a_refused_edge_shows_the_page(Edge::caddy);
}

#[test]
fn a_worker_shows_the_page_if_ringwell_refuses_its_requests() {
    a_refused_edge_shows_the_page(Edge::worker);
}

#[test]
fn error_pages_of_nginx_are_not_cached_for_other_visitors() {
    error_pages_are_for_one_visitor(Edge::nginx, &["/missing", "/down"]);
}

#[test]
fn error_pages_behind_a_worker_are_not_cached_for_other_visitors() {
    error_pages_are_for_one_visitor(Edge::worker, &["/missing"]);
}

#[test]
fn nginx_requests_numbers_only_for_pages() {
    only_pages_take_numbers(Edge::nginx);
}

#[test]
fn caddy_requests_numbers_only_for_pages() {
    only_pages_take_numbers(Edge::caddy);
}

#[test]
fn a_worker_requests_numbers_only_for_pages() {
    only_pages_take_numbers(Edge::worker);
}

#[test]
fn nginx_puts_the_visitor_s_number_into_the_page() {
    the_page_has_the_visitor_s_number(Edge::nginx);
    the_page_follows_the_visitor_s_consent(Edge::nginx);
}

#[test]
fn caddy_puts_the_visitor_s_number_into_the_page() {
    the_page_has_the_visitor_s_number(Edge::caddy);
    the_page_follows_the_visitor_s_consent(Edge::caddy);
}

#[test]
fn a_worker_puts_the_visitor_s_number_into_the_page() {
    the_page_has_the_visitor_s_number(Edge::worker);
    the_page_follows_the_visitor_s_consent(Edge::worker);
}
