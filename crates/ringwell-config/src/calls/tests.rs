use super::*;

#[test]
fn hours_are_days_and_times() {
    let hours = parse_hours("mon-fri 09:00-17:30").unwrap();
    assert!(hours.contains(0, 540) && hours.contains(4, 1049));
    assert!(!hours.contains(0, 539) && !hours.contains(4, 1050) && !hours.contains(5, 600));
    let over_the_weekend = parse_hours("sat-mon 00:00-24:00").unwrap();
    assert!(over_the_weekend.contains(5, 0) && over_the_weekend.contains(0, 1439));
    assert!(!over_the_weekend.contains(2, 600));
    for bad in [
        "",
        "mon",
        "mon 9-17",
        "mon 17:00-09:00",
        "mun 09:00-10:00",
        "mon 09:60-10:00",
        "mon 09:00-25:00",
    ] {
        assert!(parse_hours(bad).is_err(), "{bad}");
    }
    let over_midnight = parse_hours("fri 22:00-02:00").unwrap_err().to_string();
    assert!(over_midnight.contains("two entries"), "{over_midnight}");
}

#[test]
fn time_zones_exist() {
    for good in ["UTC", "Europe/Berlin"] {
        assert_eq!(parse_time_zone(good).as_deref(), Ok(good));
    }
    let error = parse_time_zone("Europe/Nowhere").unwrap_err();
    assert_eq!(error.message, "there is no time zone Europe/Nowhere on this machine");
    assert!(parse_time_zone("../etc").is_err() && parse_time_zone("").is_err());
}

#[test]
fn targets_are_numbers_or_sip_addresses() {
    for good in [
        "+18005550199",
        "+442079460000",
        "sip:desk@pbx.example",
        "sips:a@b:5061;transport=tls",
        "sip:pbx.example",
        "sip:127.0.0.1:5060?x=y",
        "sip:+1800;npdi=yes@[::1]:65535;lr",
        "sip:a@[2001:db8::1]",
    ] {
        assert!(parse_target(good).is_ok(), "{good}");
    }
    for bad in ["", "8005550199", "+0123", "+1234567890123456", "sip:", "sip:a b", "http://x"] {
        assert!(parse_target(bad).is_err(), "{bad}");
    }
    for bad in
        ["a@", "@h", "a@h:99999", "a@h:0", "a@h:", "a@h:x", "a@[::g]", "a@::1", "a@b@c", ":5060"]
    {
        assert!(parse_target(&format!("sip:{bad}")).is_err(), "{bad}");
    }
}

/// If several rules covered the same number or pool, only the first would apply.
#[test]
fn a_number_a_pool_and_the_default_have_one_rule_each() {
    let rule = |of: &str| format!("[[calls.destination]]\nto = [\"+18005550199\"]\n{of}\n");
    let faults = |rules: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ringwell.toml");
        let rules: String = rules.iter().map(|of| rule(of)).collect();
        let text = format!("data = \"d\"\ndirectory.database = \"sqlite:p\"\n[calls]\n{rules}");
        std::fs::write(&path, text).unwrap();
        let loaded = crate::load(&path, |_| None, crate::Overrides::default(), 1);
        let faults = loaded.err().unwrap_or_default();
        faults.iter().map(|fault| (fault.field.clone(), fault.line)).collect::<Vec<_>>()
    };
    let [one, other, pool] =
        ["numbers = [\"+18885550101\"]", "numbers = [\"+18885550102\"]", "ring_pools = [1]"];
    assert_eq!(faults(&["", one, other, pool]), []);
    let of = |field: &str, line| vec![(format!("calls.destination[1].{field}"), Some(line))];
    assert_eq!(faults(&[one, one]), of("numbers", 9));
    assert_eq!(faults(&[pool, pool]), of("ring_pools", 9));
    assert_eq!(faults(&["", ""]), of("to", 7));
}

#[test]
fn a_public_url_has_a_host_and_no_query() {
    let read = |text| parse_public_url(text).ok();
    assert_eq!(read("https://calls.example/"), Some("https://calls.example".to_owned()));
    assert_eq!(
        read("http://calls.example:8090/in"),
        Some("http://calls.example:8090/in".to_owned())
    );
    for bad in
        ["calls.example", "https://", "https://a?b", "https://me:secret@a", "ftp://a", "https:///a"]
    {
        assert_eq!(read(bad), None, "{bad}");
    }
}

#[test]
fn networks_have_a_mask() {
    assert_eq!(parse_network("127.0.0.0/8").unwrap().1, 8);
    assert_eq!(parse_network("::1").unwrap().1, 128);
    for bad in ["", "10.0.0.0/33", "::/129", "localhost", "10.0.0.0/"] {
        assert!(parse_network(bad).is_err(), "{bad}");
    }
}
