//! A provider that uses two CSV files. Another program writes the file of offers. This provider
//! writes the file of purchases, and the system that orders the numbers reads it.
//!
//! Invariant: the file of purchases is always replaced as a whole, so that it is never half
//! written.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use csv::StringRecord;
use ringwell_core::{Millis, PromoNumber};

use super::{Offer, Provider, ProviderError, Purchase};

/// The two files: one of offers, with the columns `number` and `price_cents`, and one of purchases.
#[derive(Debug)]
pub struct FileProvider {
    offers: PathBuf,
    purchases: PathBuf,
    /// A lock that allows only one purchase at a time.
    buying: Mutex<()>,
}

const OFFERS: [&str; 2] = ["number", "price_cents"];
const PURCHASES: [&str; 4] = ["number", "price_cents", "network", "at_ms"];

impl FileProvider {
    /// Returns a provider that uses these two files. The file of purchases is created at the first
    /// purchase.
    #[must_use]
    pub fn new(offers: PathBuf, purchases: PathBuf) -> Self {
        Self { offers, purchases, buying: Mutex::new(()) }
    }

    fn all_offers(&self) -> Result<Vec<Offer>, ProviderError> {
        let lines = read(&self.offers, OFFERS).map_err(|error| fault(&self.offers, &error))?;
        lines.iter().map(Line::offer).collect()
    }

    fn write(&self, all: &[Purchase]) -> Result<(), io::Error> {
        let mut text = csv::Writer::from_writer(Vec::new());
        text.write_record(PURCHASES)?;
        for Purchase { offer, network, at } in all {
            let (number, price) = (offer.number.to_string(), offer.price_cents.to_string());
            text.write_record([&number, &price, network, &at.0.to_string()])?;
        }
        let text = text.into_inner().map_err(csv::IntoInnerError::into_error)?;
        let temporary = self.purchases.with_extension("new");
        let mut file = File::create(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.purchases)?;
        let folder = self.purchases.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Provider for FileProvider {
    fn offers(
        &self,
        numbers: RangeInclusive<PromoNumber>,
        limit: usize,
    ) -> Result<Vec<Offer>, ProviderError> {
        let bought: BTreeSet<_> = self.bought()?.iter().map(|it| it.offer.number).collect();
        let mut offers = self.all_offers()?;
        offers.retain(|it| numbers.contains(&it.number) && !bought.contains(&it.number));
        offers.sort_unstable_by_key(|offer| (offer.price_cents, offer.number));
        offers.dedup_by_key(|offer| offer.number);
        offers.truncate(limit);
        Ok(offers)
    }

    fn buy(&self, purchases: &[Purchase]) -> Result<(), ProviderError> {
        // A purchase that panicked has written either nothing or everything.
        let _one = self.buying.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.bought()?;
        let offers = self.all_offers()?;
        for purchase in purchases {
            if all.iter().any(|it| it.offer.number == purchase.offer.number) {
                continue;
            }
            if !offers.contains(&purchase.offer) {
                let Offer { number, price_cents } = purchase.offer;
                return Err(ProviderError(format!(
                    "there is no offer for {number} with price_cents = {price_cents}"
                )));
            }
            all.push(purchase.clone());
        }
        self.write(&all).map_err(|error| {
            ProviderError(format!("{} cannot be written: {error}", self.purchases.display()))
        })
    }

    fn bought(&self) -> Result<Vec<Purchase>, ProviderError> {
        let lines = match read(&self.purchases, PURCHASES) {
            Ok(lines) => lines,
            Err(error) if is_missing(&error) => return Ok(Vec::new()),
            Err(error) => return Err(fault(&self.purchases, &error)),
        };
        let purchase = |line: &Line<'_, 4>| {
            let at = Millis(line.read("at_ms", |text| text.parse().ok())?);
            let network = line.read("network", |text| Some(text.to_owned()))?;
            Ok(Purchase { offer: line.offer()?, network, at })
        };
        lines.iter().map(purchase).collect()
    }
}

/// One line of a CSV file, with the positions of the columns.
struct Line<'a, const COLUMNS: usize> {
    path: &'a Path,
    names: [&'static str; COLUMNS],
    places: [usize; COLUMNS],
    record: StringRecord,
}

impl<const COLUMNS: usize> Line<'_, COLUMNS> {
    fn offer(&self) -> Result<Offer, ProviderError> {
        let number = self.read("number", |text| PromoNumber::parse(text).ok())?;
        let price_cents = self.read("price_cents", |text| text.parse().ok())?;
        Ok(Offer { number, price_cents })
    }

    fn read<T>(&self, name: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, ProviderError> {
        let place = self.names.iter().position(|it| *it == name).map(|it| self.places[it]);
        let text = place.and_then(|place| self.record.get(place)).unwrap_or_default();
        read(text.trim()).ok_or_else(|| {
            let line = self.record.position().map_or(0, csv::Position::line);
            ProviderError(format!("{}:{line}: {name}: {text:?} is invalid", self.path.display()))
        })
    }
}

fn read<'a, const COLUMNS: usize>(
    path: &'a Path,
    names: [&'static str; COLUMNS],
) -> Result<Vec<Line<'a, COLUMNS>>, csv::Error> {
    let mut reader = csv::Reader::from_path(path)?;
    let header = reader.headers()?.clone();
    // The values of a missing column count as empty.
    let place = |name| header.iter().position(|it| it.trim() == name).unwrap_or(usize::MAX);
    let places = names.map(place);
    reader.records().map(|record| Ok(Line { path, names, places, record: record? })).collect()
}

fn is_missing(error: &csv::Error) -> bool {
    matches!(error.kind(), csv::ErrorKind::Io(error) if error.kind() == ErrorKind::NotFound)
}

fn fault(path: &Path, error: &csv::Error) -> ProviderError {
    ProviderError(format!("{} cannot be read: {error}", path.display()))
}

#[cfg(test)]
mod tests;
