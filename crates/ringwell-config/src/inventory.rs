//! The section `[inventory]`: the rules for the numbers of pools in a database, and for the
//! purchase of numbers.
//!
//! Owns the format of the CSV file with places: each line gives the place of one area code or zip
//! code. Source: docs/spec/directory.md, "Local numbers".

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringwell_directory::{AreaCode, Fault, Place, Places, Point, RingPool, StateCode, ZipCode};

use super::csv::{Line, read_lines};
use super::fields::{text, whole};
use super::limits;
use super::section::Section;
use super::toml_file::readable;
use super::values::{ValueError, parse_path};

/// The rules for the numbers of pools in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// The places of area codes and zip codes, read from a CSV file (default: none).
    pub places: Arc<Places>,
    /// The maximum `max_pool_size` of a pool (default: 100,000).
    pub pool_numbers_max: u32,
    /// The maximum total count of numbers in all pools of one network, unless the network has its
    /// own ceiling (default: no limit).
    pub network_numbers_max: Option<u64>,
    /// The rule that decides which numbers are accepted (default: valid numbers).
    pub check_numbers: NumberCheck,
    /// A CSV file of numbers that can be bought (default: none).
    pub offers: Option<PathBuf>,
    /// The CSV file that records purchases.
    pub purchases: Option<PathBuf>,
    /// Whether numbers are bought for pools if the inventory lacks them (default: no).
    pub buy: Buying,
    /// The highest monthly price at which a number is bought, in hundredths of the currency
    /// (default: no limit).
    pub price_cents_max: Option<u64>,
}

/// Whether numbers are bought automatically, for pools of networks that have a ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buying {
    /// Numbers are bought only by operators, with `POST /v1/purchases`.
    #[default]
    Off,
    /// Purchases are written to the audit log but not made.
    DryRun,
    /// Numbers are bought when the inventory has none for a pool.
    On,
}

/// The rule for numbers that are new to the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumberCheck {
    /// The numbers that are valid according to libphonenumber.
    #[default]
    Valid,
    /// All numbers with a valid count of digits, including test numbers.
    Possible,
}

const COLUMNS: [&str; 5] = ["kind", "code", "state", "latitude", "longitude"];

impl Default for Inventory {
    fn default() -> Self {
        let pool_numbers_max = u32::try_from(RingPool::NUMBERS_MAX).unwrap_or(u32::MAX);
        Self {
            places: Arc::default(),
            pool_numbers_max,
            network_numbers_max: None,
            check_numbers: NumberCheck::default(),
            offers: None,
            purchases: None,
            buy: Buying::default(),
            price_cents_max: None,
        }
    }
}

pub(super) fn read(mut section: Section<'_, '_>, base: &Path, into: &mut Inventory) {
    section.set(&mut into.pool_numbers_max, "pool_numbers_max", whole(&limits::POOL_NUMBERS));
    let network = section.take("network_numbers_max", whole(&limits::NETWORK_NUMBERS));
    into.network_numbers_max = network.or(into.network_numbers_max);
    section.set(
        &mut into.check_numbers,
        "check_numbers",
        text(|word| match word {
            "valid" => Ok(NumberCheck::Valid),
            "possible" => Ok(NumberCheck::Possible),
            _ => Err(ValueError::new("must be \"valid\" or \"possible\"")),
        }),
    );
    if let Some(path) = section.take("places", text(|it| readable(base.join(parse_path(it)?)))) {
        let (places, faults) = read_places(&path);
        into.places = Arc::new(places);
        section.add(faults);
    }
    read_buying(&mut section, base, into);
    section.finish();
}

fn read_buying(section: &mut Section<'_, '_>, base: &Path, into: &mut Inventory) {
    let path = |name: &str| Ok(base.join(parse_path(name)?));
    into.offers = section.take("offers", text(path));
    into.purchases = section.take("purchases", text(path));
    if section.has("offers") {
        section.miss("purchases", "write e.g. purchases = \"purchases.csv\"");
    }
    section.set(
        &mut into.buy,
        "buy",
        text(|word| match word {
            "off" => Ok(Buying::Off),
            "dry_run" => Ok(Buying::DryRun),
            "on" => Ok(Buying::On),
            _ => Err(ValueError::new("must be \"off\", \"dry_run\" or \"on\"")),
        }),
    );
    if into.buy != Buying::Off {
        section.miss("offers", "write e.g. offers = \"offers.csv\"");
    }
    into.price_cents_max = section.take("price_cents_max", whole(&limits::PRICE_CENTS));
}

/// The places in a CSV file, and the file's faults.
fn read_places(path: &Path) -> (Places, Vec<Fault>) {
    let mut places = Places::default();
    let faults = read_lines(path, &COLUMNS, &[], |line| read_place(line, &mut places));
    (places, faults)
}

fn read_place(line: &Line<'_>, into: &mut Places) {
    let is_zip = line.read("kind", |kind| match kind {
        "area_code" => Ok(false),
        "zip" => Ok(true),
        _ => Err(ValueError::new("must be area_code or zip")),
    });
    let state = line.read("state", |text| {
        let fault = || ValueError::new("must be two capital letters").hint("write e.g. CA");
        StateCode::parse(text).ok_or_else(fault)
    });
    let degrees = |column: &str, most: f64| {
        line.read(column, |text| {
            let fault = || ValueError::new(format!("must be degrees from -{most} to {most}"));
            text.parse().ok().filter(|it: &f64| it.abs() <= most).ok_or_else(fault)
        })
    };
    let (latitude, longitude) = (degrees("latitude", 90.0), degrees("longitude", 180.0));
    let point = latitude.zip(longitude).and_then(|(north, east)| Point::new(north, east));
    let place = point.zip(state).map(|(point, state)| Place { point, state });
    // An invalid code is reported even if its place is also invalid.
    let is_new = match is_zip {
        None => return,
        Some(true) => {
            let fault = || ValueError::new("must be five digits");
            let zip = line.read("code", |text| ZipCode::parse(text).ok_or_else(fault));
            zip.zip(place).is_none_or(|(zip, place)| into.add_zip(zip, place))
        }
        Some(false) => {
            let area = line.read("code", parse_area);
            area.zip(place).is_none_or(|(area, place)| into.add_area(area, place))
        }
    };
    if !is_new {
        line.fault("code", ValueError::new("occurs twice"));
    }
}

/// Reads an area code. Refuses toll-free codes, because they have no geographic location.
fn parse_area(text: &str) -> Result<AreaCode, ValueError> {
    let area = text.parse().ok().and_then(AreaCode::new);
    let area = area.ok_or_else(|| ValueError::new("must be three digits from 200 to 999"))?;
    if area.is_toll_free() {
        return Err(ValueError::new("is a toll-free area code, which has no location"));
    }
    Ok(area)
}

#[cfg(test)]
mod tests;
