//! TLS for clients, tested with curl: the certificate that the server presents, and its replacement
//! when the files change.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use support::batch::BULK;
use support::server::Server;
use support::site::{Pool, Site};

const LONG: Duration = Duration::from_mins(1);
/// The server checks the certificate's files every two seconds. The additional time allows for a
/// busy machine.
const SOON: Duration = Duration::from_secs(20);

fn openssl(arguments: &[&str]) {
    let done = Command::new("openssl").args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Creates a self-signed certificate for localhost.
fn make(folder: &Path, name: &str) {
    let file = |kind: &str| folder.join(format!("{name}.{kind}")).display().to_string();
    let (certificate, key) = (file("pem"), file("key"));
    let new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let about = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
    openssl(&[&new[..], &about, &["-keyout", &key, "-out", &certificate]].concat());
}

/// Runs curl, which trusts only the certificate `authority`. Returns the body or the error.
fn curl(authority: &Path, port: u16, arguments: &[&str]) -> Result<String, String> {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "10", "--cacert"]).arg(authority).args(arguments);
    let done = curl.arg(format!("https://localhost:{port}{BULK}")).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}

#[test]
fn clients_connect_over_tls_and_the_certificate_changes_with_its_files() {
    // This port is free now, and another program is unlikely to take it before the server does.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let pool = Pool::new(1, 50, LONG);
    let settings = format!(
        "[tls]\nlisten = [\"127.0.0.1:{port}\"]\ncertificate = \"shown.pem\"\nkey = \"shown.key\""
    );
    let site = Site::new(vec![pool.clone()], &settings);
    let config = site.config();
    let folder = config.parent().unwrap();
    make(folder, "first");
    make(folder, "second");
    let show = |name: &str| {
        for kind in ["pem", "key"] {
            fs::copy(folder.join(format!("{name}.{kind}")), folder.join(format!("shown.{kind}")))
                .unwrap();
        }
    };
    show("first");
    let server = Server::start(site.serve(&[]));
    let body = format!(r#"{{"requests":[{{"api_suffix":"{}"}}]}}"#, pool.suffix("a=1"));
    let ask = |authority: &str, more: &[&str]| {
        let authority = folder.join(format!("{authority}.pem"));
        curl(&authority, port, &[&["--data", &body], more].concat())
    };
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"], &["--http2"]] {
        assert!(ask("first", version).unwrap().contains("promo_number"), "{version:?}");
    }
    assert!(ask("first", &["--tls-max", "1.1"]).is_err());
    assert!(ask("second", &[]).is_err());

    // If the new key does not match the certificate, the server keeps the previous certificate.
    fs::copy(folder.join("second.key"), folder.join("shown.key")).unwrap();
    let until = Instant::now() + SOON;
    while !server.log().contains("the previous one stays in use") {
        assert!(Instant::now() < until, "{}", server.log());
        thread::sleep(Duration::from_millis(50));
    }
    assert!(ask("first", &[]).is_ok());

    show("second");
    let until = Instant::now() + SOON;
    while ask("second", &[]).is_err() {
        assert!(Instant::now() < until, "{}", server.log());
        thread::sleep(Duration::from_millis(50));
    }
    assert!(ask("first", &[]).is_err());

    // The pools can also be reloaded while the certificate is missing.
    fs::remove_file(folder.join("shown.pem")).unwrap();
    let answer = server.reload();
    assert!(answer.contains("were reloaded"), "{answer}");
    assert!(server.log().contains("shown.pem: cannot be read"), "{}", server.log());
    assert!(ask("second", &[]).is_ok());
    server.stop();
}

#[test]
fn handshakes_that_never_end_keep_no_client_of_another_address_out() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let pool = Pool::new(1, 50, LONG);
    let settings = format!(
        "limits.head_timeout = \"60s\"\n[tls]\nlisten = [\"127.0.0.1:{port}\"]\n\
         certificate = \"shown.pem\"\nkey = \"shown.key\""
    );
    let site = Site::new(vec![pool.clone()], &settings);
    let folder = site.config().parent().unwrap().to_owned();
    make(&folder, "shown");
    let server = Server::start(site.serve(&["--shards", "1"]));
    let connect = |_| TcpStream::connect(("127.0.0.1", port)).unwrap();
    let stalled: Vec<TcpStream> = (0..300).map(connect).collect();
    // When the server closes the last connection, it has already accepted or refused all earlier
    // ones.
    stalled[299].set_read_timeout(Some(SOON)).unwrap();
    assert!((&stalled[299]).read(&mut [0]).is_ok_and(|bytes| bytes == 0));
    let body = format!(r#"{{"requests":[{{"api_suffix":"{}"}}]}}"#, pool.suffix("a=1"));
    let authority = folder.join("shown.pem");
    let ask = |more: &[&str]| curl(&authority, port, &[&["--data", &body], more].concat());
    assert!(ask(&["--interface", "127.0.0.2"]).unwrap().contains("promo_number"));
    drop(stalled);
    server.stop();
}

#[test]
fn an_unusable_certificate_ends_the_start_with_its_file_name() {
    let settings =
        "[tls]\nlisten = [\"127.0.0.1:0\"]\ncertificate = \"none.pem\"\nkey = \"none.key\"";
    let site = Site::new(vec![Pool::new(1, 1, LONG)], settings);
    let refused = Server::try_start(site.serve(&[])).unwrap_err();
    assert!(refused.log.contains("none.pem"), "{}", refused.log);
    assert_eq!(refused.code, Some(1));
}

#[test]
fn a_key_of_another_certificate_is_named_with_the_remedy() {
    let settings =
        "[tls]\nlisten = [\"127.0.0.1:0\"]\ncertificate = \"one.pem\"\nkey = \"other.key\"";
    let site = Site::new(vec![Pool::new(1, 1, LONG)], settings);
    let folder = site.config().parent().unwrap().to_owned();
    make(&folder, "one");
    make(&folder, "other");
    let refused = Server::try_start(site.serve(&[])).unwrap_err();
    for part in ["other.key: ", "does not match the certificate", "one.pem", "use the key"] {
        assert!(refused.log.contains(part), "{part}: {}", refused.log);
    }
}
