use proptest::prelude::*;

use super::*;

fn public() -> Policy {
    Policy::new(&WebhookSettings::default())
}

#[test]
fn forty_hostile_urls_are_refused() {
    let hostile = [
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://017700000001/",
        "https://127.0.0.1./",
        "https://0/",
        "https://0.0.0.0/",
        "https://10.0.0.1/",
        "https://100.64.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://172.16.0.1/",
        "https://172.31.255.255/",
        "https://192.0.0.8/",
        "https://192.0.2.1/",
        "https://192.88.99.1/",
        "https://192.168.1.1/",
        "https://198.18.0.1/",
        "https://198.51.100.7/",
        "https://203.0.113.9/",
        "https://224.0.0.1/",
        "https://240.0.0.1/",
        "https://255.255.255.255/",
        "https://[::1]/",
        "https://[::]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:7f00:1]/",
        "https://[::ffff:0:10.0.0.1]/",
        "https://[::127.0.0.1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[64:ff9b:1::1]/",
        "https://[fc00::1]/",
        "https://[fd12:3456::1]/",
        "https://[fe80::1]/",
        "https://[ff02::1]/",
        "https://[2002:7f00:1::]/",
        "https://[2001::1]/",
        "https://[2001:db8::1]/",
        "https://[100::1]/",
        "http://example.com/",
        "http://127.0.0.1/",
        "https://me:secret@example.com/",
        "https://example.com@127.0.0.1/",
        "https://example.com:22/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://example.com:+443/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:25/",
        "https://",
        "https:///etc",
        "https://exa mple.com/",
        "https://ex%61mple.com/",
        "https://example.com\\@127.0.0.1/",
        "https://example.com#@127.0.0.1/",
        "https://[fe80::1%25eth0]/",
        "https://[::1",
        "https://1.2.3.4.5/",
        "https://256.1.1.1/",
        "https://..",
        "https://a..b/",
    ];
    assert!(hostile.len() >= 40);
    for url in hostile {
        assert!(public().target(url).is_err(), "{url}");
    }
}

#[test]
fn public_urls_are_parsed() {
    let target = public().target("HTTPS://Hooks.Example.COM:8443/in?a=1").unwrap();
    assert_eq!(target.host, Host::Name("hooks.example.com".to_owned()));
    assert_eq!((target.port, target.path.as_str(), target.is_tls), (8443, "/in?a=1", true));
    assert_eq!(public().target("https://example.com?x").unwrap().path, "/?x");
    assert_eq!(public().target("https://93.184.216.34/").unwrap().port, 443);
    assert!(public().target("https://[2606:2800:220:1::1]/").is_ok());
}

#[test]
fn a_resolved_address_is_checked_like_one_in_the_url() {
    for address in [
        "127.0.0.1",
        "::ffff:10.0.0.1",
        "169.254.169.254",
        "fd00::1",
        "64:ff9b::a00:1",
        "::ffff:0:a00:1",
    ] {
        let address: IpAddr = address.parse().unwrap();
        assert!(public().check(address, true).is_err(), "{address}");
    }
    assert_eq!(public().check("93.184.216.34".parse().unwrap(), true), Ok(()));
    assert_eq!(public().check("93.184.216.34".parse().unwrap(), false), Err(Forbidden::Plain));
}

#[test]
fn networks_and_ports_of_the_configuration_may_be_called() {
    let policy = Policy::new(&WebhookSettings {
        allow_networks: vec![("127.0.0.0".parse().unwrap(), 8)],
        allow_ports: vec![9000],
        allow_http: true,
        ..WebhookSettings::default()
    });
    assert!(policy.target("http://127.0.0.1:9000/").is_ok());
    assert!(policy.target("http://127.1.2.3/").is_ok());
    assert_eq!(policy.target("http://127.0.0.1:9001/"), Err(Forbidden::Port(9001)));
    assert!(policy.target("http://10.0.0.1:9000/").is_err());
    assert_eq!(policy.target("http://93.184.216.34/"), Err(Forbidden::Plain));
}

proptest! {
    #[test]
    fn no_url_panics_and_no_form_of_loopback_is_allowed(text in "[a-z0-9.:/\\[\\]@%x#?-]{0,40}") {
        let _ = public().target(&format!("https://{text}"));
        let _ = public().target(&text);
    }

    #[test]
    fn every_spelling_of_an_address_is_judged_like_the_address(bits: u32) {
        let address = Ipv4Addr::from_bits(bits);
        let [a, b, c, d] = address.octets();
        let verdict = public().check(IpAddr::V4(address), true).is_ok();
        let forms = [
            address.to_string(),
            bits.to_string(),
            format!("{bits:#x}"),
            format!("{a:#x}.{b}.{c:#o}.{d}").replace("0o", "0"),
            format!("{a}.{}", bits & 0xff_ffff),
            format!("[::ffff:{address}]"),
        ];
        for form in forms {
            prop_assert_eq!(public().target(&format!("https://{form}/")).is_ok(), verdict, "{}", form);
        }
    }
}
