use std::sync::atomic::{AtomicUsize, Ordering};

use ringwell_config::WebhookSettings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A resolver whose first look-up returns a public address, and whose later look-ups return an
/// address of this machine.
#[derive(Default)]
struct Rebinding(AtomicUsize);

impl Resolver for Rebinding {
    fn resolve(&self, _: &str) -> Addresses {
        let asked = self.0.fetch_add(1, Ordering::Relaxed);
        let address = if asked == 0 { "93.184.216.34" } else { "127.0.0.1" };
        Box::pin(async move { Ok(vec![address.parse().unwrap()]) })
    }
}

/// A resolver that returns a fixed list of addresses for each name.
struct Local;

impl Resolver for Local {
    fn resolve(&self, name: &str) -> Addresses {
        let all: &[&str] = match name {
            "localtest.example" => &["127.0.0.1"],
            "mixed.example" => &["93.184.216.34", "10.0.0.1"],
            "public.example" => &["93.184.216.34"],
            "mapped.example" => &["::ffff:127.0.0.1"],
            _ => &[],
        };
        let all = all.iter().map(|it| it.parse().unwrap()).collect();
        Box::pin(async move { Ok(all) })
    }
}

fn sender(settings: &WebhookSettings, resolver: impl Resolver + 'static) -> Sender {
    Sender::new(Policy::new(settings), Arc::new(resolver))
}

fn due(url: &str) -> Due {
    Due {
        endpoint: "we_1".to_owned(),
        url: url.to_owned(),
        secrets: vec!["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD".to_owned()],
        company_key: Some("company".to_owned()),
        place: 1,
        event: "evt_1".to_owned(),
        body: "{}".to_owned(),
        attempts: 0,
    }
}

fn loopback() -> WebhookSettings {
    WebhookSettings {
        allow_networks: vec![("127.0.0.0".parse().unwrap(), 8)],
        allow_ports: (1024..=u16::MAX).collect(),
        allow_http: true,
        ..WebhookSettings::default()
    }
}

#[tokio::test]
async fn a_name_that_resolves_to_an_internal_address_is_not_called() {
    for name in ["localtest.example", "mixed.example", "mapped.example"] {
        let ended = sender(&WebhookSettings::default(), Local)
            .deliver(&due(&format!("https://{name}/")), Millis(0))
            .await;
        assert!(
            matches!(&ended, Ended::Failed(why) if why.contains("not a public address")),
            "{ended:?}"
        );
    }
    let sender = sender(&WebhookSettings::default(), Local);
    let nowhere = sender.deliver(&due("https://x.example/"), Millis(0)).await;
    assert_eq!(nowhere, Ended::Failed("the host has no address".to_owned()));
}

#[tokio::test]
async fn an_address_without_tls_is_refused_when_it_is_typed() {
    let refused = |url: &'static str, settings: WebhookSettings| async move {
        sender(&settings, Local).check_url(url).await.err().unwrap_or_default()
    };
    // `allowed` permits the network of `localtest.example`, but not the networks of the other
    // addresses.
    let allowed = WebhookSettings { allow_ports: vec![80], ..loopback() };
    assert_eq!(refused("http://localtest.example/", allowed.clone()).await, "");
    for (url, settings, reason) in [
        ("http://localtest.example/", WebhookSettings::default(), "use https://"),
        ("http://93.184.216.34/", allowed.clone(), "use https://"),
        ("http://public.example/", allowed.clone(), "use https://"),
        ("http://nowhere.example/", allowed.clone(), "nowhere.example has no address: use"),
        ("https://localtest.example/", WebhookSettings::default(), "not a public address"),
    ] {
        let refused = refused(url, settings).await;
        assert!(refused.contains(reason), "{url}: {refused}");
    }
    // With TLS, an unknown name is accepted, because it may exist later.
    assert_eq!(refused("https://nowhere.example/", WebhookSettings::default()).await, "");
}

#[tokio::test]
async fn a_name_is_resolved_once_so_that_rebinding_gains_nothing() {
    let sender = sender(&WebhookSettings::default(), Rebinding::default());
    let target = sender.policy().target("https://rebind.example/").unwrap();
    let address = sender.address(&target).await.unwrap();
    assert_eq!(address.to_string(), "93.184.216.34:443");
    // The next delivery resolves the name again and is refused.
    assert!(sender.address(&target).await.unwrap_err().contains("127.0.0.1"));
}

/// Starts a server that answers one request with `answer`. Returns its URL, and a task that returns
/// the request.
async fn once(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/in", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut got = vec![0; 4096];
        let mut length = 0;
        while !got[..length].ends_with(b"{}") {
            length += stream.read(&mut got[length..]).await.unwrap();
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(got[..length].to_vec()).unwrap()
    });
    (url, served)
}

#[tokio::test]
async fn a_delivery_is_signed_and_its_answer_is_read() {
    let (url, served) =
        once("HTTP/1.1 503 Later\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno").await;
    let ended = sender(&loopback(), System).deliver(&due(&url), Millis(5_000)).await;
    assert_eq!(ended, Ended::Answered { status: 503, retry_after: Some(Millis(7000)) });
    let request = served.await.unwrap().to_ascii_lowercase();
    for line in [
        "post /in http/1.1",
        "webhook-id: evt_1",
        "webhook-timestamp: 5",
        "webhook-signature: v1,",
        "signature: ",
        "content-type: application/json",
        "user-agent: ringwell-webhooks/",
    ] {
        assert!(request.contains(line), "{line}: {request}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_is_not_a_success() {
    let (url, served) =
        once("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
            .await;
    let ended = sender(&loopback(), System).deliver(&due(&url), Millis(0)).await;
    assert!(matches!(ended, Ended::Answered { status: 302, .. }) && !ended.is_delivered());
    served.await.unwrap();
}

#[tokio::test]
async fn an_endpoint_that_resets_or_sends_nonsense_has_not_accepted_it() {
    let (url, served) = once("nonsense\r\n\r\n").await;
    assert!(matches!(
        sender(&loopback(), System).deliver(&due(&url), Millis(0)).await,
        Ended::Failed(_)
    ));
    served.await.unwrap();
    let nobody = "http://127.0.0.1:1/";
    let settings = WebhookSettings { allow_ports: vec![1], ..loopback() };
    assert!(matches!(
        sender(&settings, System).deliver(&due(nobody), Millis(0)).await,
        Ended::Failed(_)
    ));
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        while stream
            .write_all(&[b"1000\r\n".as_slice(), &[b'x'; 4096], b"\r\n"].concat())
            .await
            .is_ok()
        {}
    });
    let ended = sender(&loopback(), System).deliver(&due(&url), Millis(0)).await;
    assert_eq!(ended, Ended::Answered { status: 200, retry_after: None });
    served.await.unwrap();
}
