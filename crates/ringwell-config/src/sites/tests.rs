use std::path::Path;

use super::*;
use crate::{Overrides, load};

fn check(site: &str) -> Result<Vec<Site>, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ringwell.toml");
    let pools = "data = 'd'\n[[ring_pool]]\nid = 1\nring_pool_key = 'first-key'\nlifetime = '30m'\n\
                 numbers = ['8885550100-8885550149']\noverflow_number = '8885550199'\n";
    std::fs::write(&file, format!("{pools}{site}")).unwrap();
    let loaded = load(Path::new(&file), |_| None, Overrides::default(), 1);
    loaded.map(|(config, _)| config.sites).map_err(|faults| {
        faults.into_iter().map(|fault| format!("{}: {}", fault.field, fault.message)).collect()
    })
}

#[test]
fn a_site_has_its_origins_and_the_numbers_to_swap() {
    let sites = check(
        "[[site]]\nkey = 'pk_shop'\norigins = ['https://shop.example', 'https://*.shop.example']\n\
         params = ['plan']\nconsent = 'required'\nleases_per_minute = 5\n\
         [[site.swap]]\nnumber = '+18005550100'\nring_pool = 1\n",
    )
    .unwrap();
    let [site] = &sites[..] else { panic!("{sites:?}") };
    assert_eq!(site.swaps, [Swap { number: "+18005550100".to_owned(), pool: PoolId(1) }]);
    assert_eq!((site.consent, site.leases_per_minute), (Consent::Required, 5));
}

#[test]
fn an_origin_is_matched_in_full_and_a_star_matches_one_label() {
    let cases = [
        ("https://shop.example", "https://shop.example", true),
        ("https://shop.example", "http://shop.example", false),
        ("https://shop.example", "https://shop.example:8443", false),
        ("https://shop.example", "https://shop.example.evil.example", false),
        ("https://shop.example", "null", false),
        ("https://*.shop.example", "https://www.shop.example", true),
        ("https://*.shop.example", "https://a.b.shop.example", false),
        ("https://*.shop.example", "https://.shop.example", false),
        ("https://*.shop.example", "https://shop.example", false),
        ("https://*.shop.example", "https://evil.example/.shop.example", false),
    ];
    for (allowed, asked, expected) in cases {
        let allowed: SiteOrigin = allowed.parse().unwrap();
        assert_eq!(allowed.matches(asked), expected, "{allowed:?} {asked}");
    }
}

#[test]
fn faults_of_a_site_are_reported_by_field() {
    let faults = check("[[site]]\nkey = 'secret'\norigins = ['shop.example']\nconsent = 'maybe'\n");
    let faults = faults.unwrap_err().join("\n");
    for field in ["site[0].key", "site[0].origins[0]", "site[0].swap", "site[0].consent"] {
        assert!(faults.contains(field), "{field} in {faults}");
    }
    let swap = "[[site.swap]]\nnumber = '+18005550100'\nring_pool = 1\n";
    let faults = check(&format!(
        "[[site]]\nkey = 'pk_shop'\norigins = ['https://a.example']\n\
         params = ['plan', 'ringwell_visitor']\n{swap}{swap}"
    ))
    .unwrap_err()
    .join("\n");
    for said in ["site[0].params[1]: ringwell_visitor is reserved", "site[0].swap: +18005550100 is"]
    {
        assert!(faults.contains(said), "{said} in {faults}");
    }
    let twice = "[[site]]\nkey = 'pk_shop'\norigins = ['https://a.example']\n\
                 [[site.swap]]\nnumber = '+18005550100'\nring_pool = 1\n";
    assert!(check(&twice.repeat(2)).unwrap_err()[0].starts_with("site[1].key: "));
}

fn text() -> SiteText {
    SiteText {
        key: "pk_shop".to_owned(),
        origins: vec!["https://*.shop.example".to_owned(), "https://shop.example".to_owned()],
        swaps: vec![SwapText { number: "+18005550100".to_owned(), ring_pool: 16 }],
        params: vec!["plan".to_owned()],
        consent: "required".to_owned(),
        edge_key: Some("only-the-edge-knows".to_owned()),
        leases_per_minute: 5,
    }
}

#[test]
fn a_site_is_written_in_the_form_it_was_read_from() {
    let site = text().check().unwrap();
    assert_eq!(site.to_text(), text());
    assert_eq!(site.to_text().check().unwrap(), site);
}

#[test]
fn the_text_of_a_site_is_checked_like_its_section_of_the_file() {
    type Break = fn(&mut SiteText);
    let faulty: [(&str, Break); 13] = [
        ("key: ", |site| site.key = "shop".to_owned()),
        ("origins[1]: ", |site| site.origins[1] = "shop.example".to_owned()),
        ("origins: ", |site| site.origins.clear()),
        ("swaps[0]: ", |site| site.swaps[0].number = "8005550100".to_owned()),
        ("swaps: ", |site| site.swaps = vec![site.swaps[0].clone(); 101]),
        ("params[0]: ", |site| site.params[0] = "a b".to_owned()),
        ("params[0]: ringwell_visitor", |site| site.params[0] = "ringwell_visitor".to_owned()),
        ("params[1]: ring_pool_key", |site| site.params.push("ring_pool_key".to_owned())),
        ("params[0]: landing", |site| site.params[0] = "landing".to_owned()),
        ("swaps[1]: +18005550100 is swapped twice", |site| {
            site.swaps.push(SwapText { ring_pool: 17, ..site.swaps[0].clone() });
        }),
        ("consent: ", |site| site.consent = "maybe".to_owned()),
        ("edge_key: ", |site| site.edge_key = Some("short".to_owned())),
        ("leases_per_minute: ", |site| site.leases_per_minute = 0),
    ];
    for (field, break_it) in faulty {
        let mut site = text();
        break_it(&mut site);
        let fault = site.check().unwrap_err().to_string();
        assert!(fault.starts_with(field), "{field}: {fault}");
    }
}

#[test]
fn a_site_stored_by_an_older_version_is_still_read() {
    let mut site = text();
    site.params = vec!["ring_pool_key".to_owned()];
    site.swaps.push(site.swaps[0].clone());
    assert!(site.check().is_err());
    assert_eq!(site.check_kept().unwrap().to_text(), site);
}
