//! Connections to PostgreSQL over TLS.

#![expect(clippy::unwrap_used, reason = "a test program reports failures by panicking")]

#[expect(dead_code, reason = "this program needs a server of its own")]
mod rig;

use std::net::TcpListener;

use ringwell_store::{Location, Store};

use crate::rig::Server;

/// Makes the server accept only encrypted connections over TCP.
const PREPARE: &str = r#"
    new="openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    $new -subj /CN=authority -keyout data/ca.key -out data/ca.crt || exit 1
    $new -subj /CN=localhost -addext subjectAltName=DNS:localhost \
        -addext basicConstraints=critical,CA:FALSE -CA data/ca.crt -CAkey data/ca.key \
        -keyout data/server.key -out data/server.crt || exit 1
    echo "local all all trust
    hostssl all all 127.0.0.1/32 trust" > data/pg_hba.conf
    echo "ssl = on
    listen_addresses = '127.0.0.1'" >> data/postgresql.conf
"#;

#[tokio::test]
async fn a_connection_is_encrypted_and_the_certificate_is_checked_if_the_url_asks_for_it() {
    // This port is free now, and the server will bind it shortly.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = Server::with(port, PREPARE);
    let root = server.folder.join("data/ca.crt");
    let open = async |parameters: &str| {
        let url = format!("postgres://ringwell@localhost:{port}/postgres{parameters}");
        Store::open(&Location::Url(url)).await.map(drop).map_err(|error| error.to_string())
    };
    let root = root.display().to_string().replace('/', "%2F");
    open("").await.unwrap();
    open("?sslmode=require").await.unwrap();
    open(&format!("?sslmode=verify-full&sslrootcert={root}")).await.unwrap();
    let refused = open("?sslmode=verify-full").await.unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
    let refused = open("?sslmode=disable").await.unwrap_err();
    assert!(refused.contains("no encryption"), "{refused}");
}
