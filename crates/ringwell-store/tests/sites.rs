//! Tests that sites are stored as given, and that changing a site creates a new version of the
//! directory.

#![expect(clippy::unwrap_used, reason = "a test program")]

#[macro_use]
mod rig;

use rig::Rig;
use ringwell_config::{Site, SiteText, SwapText};
use ringwell_core::Millis;
use ringwell_store::{Refusal, Store, StoreError};

const NOW: Millis = Millis(1_700_000_100_000);

fn site(key: &str) -> Site {
    let text = SiteText {
        key: key.to_owned(),
        origins: vec!["https://shop.example".to_owned()],
        swaps: vec![SwapText { number: "+18005550100".to_owned(), ring_pool: 16 }],
        params: vec!["plan".to_owned()],
        consent: "off".to_owned(),
        edge_key: Some("only-the-edge-knows".to_owned()),
        leases_per_minute: 60,
    };
    text.check().unwrap()
}

async fn a_site_is_kept_changed_and_removed(rig: Rig) {
    let store = Store::open(&rig.location).await.unwrap();
    let shop = site("pk_shop");
    let mut change = store.change("ann", NOW).await.unwrap();
    assert!(change.put_site(&shop).await.unwrap());
    assert!(change.put_site(&site("pk_blog")).await.unwrap());
    assert_eq!(change.commit().await.unwrap(), 1);
    assert_eq!(store.site("pk_shop").await.unwrap().as_ref(), Some(&shop));
    assert_eq!(store.sites("", 9).await.unwrap(), [site("pk_blog"), shop.clone()]);
    assert_eq!(store.sites("pk_blog", 9).await.unwrap(), std::slice::from_ref(&shop));
    assert_eq!(store.load_all().await.unwrap().sites.len(), 2);
    assert_eq!(store.changed_since(0).await.unwrap().sites.unwrap().len(), 2);

    let mut change = store.change("ann", NOW).await.unwrap();
    assert!(!change.put_site(&shop).await.unwrap());
    assert_eq!(change.commit().await.unwrap(), 1, "nothing has changed");
    let mut changed = shop.clone();
    changed.leases_per_minute = 5;
    changed.edge_key = None;
    let mut change = store.change("ann", NOW).await.unwrap();
    assert!(!change.put_site(&changed).await.unwrap());
    assert!(change.remove_site("pk_blog").await.unwrap());
    assert!(!change.remove_site("pk_blog").await.unwrap());
    assert_eq!(change.commit().await.unwrap(), 2);
    assert_eq!(store.changed_since(1).await.unwrap().sites, Some(vec![changed]));
    let log = store.audit_log(None, 9).await.unwrap();
    let line = log.iter().find(|line| line.object == "site pk_shop").unwrap();
    assert_eq!(line.before.as_ref().unwrap()["edge_key"], "***", "the log has no secrets");
}

async fn a_change_of_pools_brings_no_sites(rig: Rig) {
    let store = Store::open(&rig.location).await.unwrap();
    let mut change = store.change("ann", NOW).await.unwrap();
    change.put_site(&site("pk_shop")).await.unwrap();
    change.commit().await.unwrap();
    let mut change = store.change("ann", NOW).await.unwrap();
    change.set_ceiling("7", Some(15)).await.unwrap();
    assert_eq!(change.commit().await.unwrap(), 2);
    assert_eq!(store.changed_since(1).await.unwrap().sites, None);
}

async fn a_directory_has_a_thousand_sites_at_most(rig: Rig) {
    let store = Store::open(&rig.location).await.unwrap();
    let mut change = store.change("ann", NOW).await.unwrap();
    for place in 0..1000 {
        change.put_site(&site(&format!("pk_site{place}"))).await.unwrap();
    }
    let refused = change.put_site(&site("pk_more")).await;
    assert!(matches!(refused, Err(StoreError::Refused(Refusal::SitesMax(1000)))));
    let mut known = site("pk_site7");
    known.leases_per_minute = 5;
    assert!(!change.put_site(&known).await.unwrap());
}

on_both_databases! {
    a_site_is_kept_changed_and_removed
    a_change_of_pools_brings_no_sites
    a_directory_has_a_thousand_sites_at_most
}
