use std::fs;

use ringwell_directory::{Center, Search};
use tempfile::TempDir;

use super::*;
use crate::Overrides;
use crate::tests::{GOOD, check, lines, load_files};

#[test]
fn an_inventory_has_no_ceilings_and_no_places_by_default() {
    let (config, _) = load_files(GOOD, "", &[], Overrides::default()).unwrap();
    assert_eq!(config.inventory, Inventory::default());
    assert_eq!(config.inventory.pool_numbers_max, 100_000);
    let toml = format!("{GOOD}[inventory]\npool_numbers_max = 500\nnetwork_numbers_max = 20000\n");
    let (config, _) = load_files(&toml, "", &[], Overrides::default()).unwrap();
    let Inventory { pool_numbers_max, network_numbers_max, .. } = config.inventory;
    assert_eq!((pool_numbers_max, network_numbers_max), (500, Some(20_000)));
    let toml = format!("{GOOD}[inventory]\ncheck_numbers = \"possible\"\n");
    let (config, _) = load_files(&toml, "", &[], Overrides::default()).unwrap();
    assert_eq!(config.inventory.check_numbers, NumberCheck::Possible);
    check(
        &format!(
            "{GOOD}[inventory]\npool_numbers_max = 0\ncheck_numbers = \"off\"\n\
             places = \"/nowhere/p.csv\"\n"
        ),
        "ringwell.toml:10: inventory.pool_numbers_max: must be 1 to 100000\n\
         ringwell.toml:11: inventory.check_numbers: must be \"valid\" or \"possible\"\n\
         ringwell.toml:12: inventory.places: /nowhere/p.csv: cannot be read: No such file or \
         directory (os error 2)\n",
    );
}

#[test]
fn numbers_are_bought_by_two_files_and_only_if_enabled() {
    let toml = format!(
        "{GOOD}[inventory]\noffers = \"/o.csv\"\npurchases = \"/p.csv\"\nbuy = \"on\"\n\
         price_cents_max = 200\n"
    );
    let (config, _) = load_files(&toml, "", &[], Overrides::default()).unwrap();
    let Inventory { offers, purchases, buy, price_cents_max, .. } = config.inventory;
    assert_eq!((offers, purchases), (Some("/o.csv".into()), Some("/p.csv".into())));
    assert_eq!((buy, price_cents_max), (Buying::On, Some(200)));
    check(
        &format!("{GOOD}[inventory]\noffers = \"o.csv\"\n"),
        "ringwell.toml:9: inventory.purchases: is missing; write e.g. purchases = \
         \"purchases.csv\"\n",
    );
    check(
        &format!("{GOOD}[inventory]\nbuy = \"dry_run\"\n"),
        "ringwell.toml:9: inventory.offers: is missing; write e.g. offers = \"offers.csv\"\n",
    );
}

#[test]
fn every_fault_of_a_file_of_places_is_reported_with_its_line_and_field() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("places.csv");
    let text = "kind,code,state,latitude,longitude\n\
                zip,93101,CA,34.42,-119.71\n\
                area,805,CA,34.42,-119.70\n\
                area_code,1805,California,94.42,west\n\
                area_code,888,NY,40.78,-73.97\n\
                zip,9310,CA,34.42,-119.71\n\
                zip,93101,CA,34.42,-119.71\n\
                area_code,212,NY,40.78\n";
    fs::write(&path, text).unwrap();
    let (places, faults) = read_places(&path);
    let said = lines(&faults).replace(&format!("{}/", dir.path().display()), "");
    assert_eq!(
        said,
        "places.csv:3: kind: must be area_code or zip\n\
         places.csv:4: state: must be two capital letters; write e.g. CA\n\
         places.csv:4: latitude: must be degrees from -90 to 90\n\
         places.csv:4: longitude: must be degrees from -180 to 180\n\
         places.csv:4: code: must be three digits from 200 to 999\n\
         places.csv:5: code: is a toll-free area code, which has no location\n\
         places.csv:6: code: must be five digits\n\
         places.csv:7: code: occurs twice\n\
         places.csv:8: has 4 columns, but the header has 5\n"
    );
    assert_eq!(places.len(), (0, 1));
    fs::write(&path, "kind,code,state,lat,longitude\n").unwrap();
    let (_, faults) = read_places(&path);
    assert_eq!(faults.len(), 2, "{}", lines(&faults));
}

#[test]
fn the_sample_of_places_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/places.sample.csv");
    let (places, faults) = read_places(&path);
    assert_eq!(lines(&faults), "");
    let center = ZipCode::parse("93101").map(Center::Zip);
    let search = Search { center, radius_miles: 100, in_state: true, only: Vec::new() };
    let found: Vec<_> = places.area_codes(&search).iter().map(ToString::to_string).collect();
    assert_eq!(found, ["805", "818", "213"]);
}
