//! The overflow numbers that a node of a cluster served last: `overflow-numbers.json`.
//!
//! If a number became an overflow number while the node was stopped, the node's own journals do not
//! show whether another node's visitor still holds the number.

use std::collections::BTreeMap;
use std::path::Path;

use ringwell_core::{Millis, PromoNumber};
use ringwell_directory::{BUCKETS, Directory};
use serde::{Deserialize, Serialize};

use super::files::{FileError, Files, read_json, write_json};

const FILE: &str = "overflow-numbers.json";

/// The overflow numbers that were served from a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServedOverflow {
    /// The codes of the numbers, in ascending order.
    numbers: Vec<u64>,
    /// The codes of the overflow numbers that their pools did not have yet, each with the shard
    /// time until which a visitor may hold it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    withheld: BTreeMap<u64, u64>,
}

impl ServedOverflow {
    /// Returns the record of a node that serves `directory` without the overflow numbers in
    /// `withheld`. A visitor may hold each of these numbers until the given time.
    #[must_use]
    pub fn of(directory: &Directory, withheld: &[(PromoNumber, Millis)]) -> Self {
        let withheld: BTreeMap<u64, u64> =
            withheld.iter().map(|(number, until)| (number.to_code(), until.0)).collect();
        let codes = overflow_numbers(directory).map(PromoNumber::to_code);
        let mut numbers: Vec<u64> = codes.filter(|code| !withheld.contains_key(code)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Self { numbers, withheld }
    }

    /// Reads the file in `data`; `None` if it does not exist.
    ///
    /// # Errors
    /// Returns [`FileError`] if the file exists but cannot be read or parsed.
    pub fn read(files: &impl Files, data: &Path) -> Result<Option<Self>, FileError> {
        read_json(files, &data.join(FILE))
    }

    /// Writes the file durably.
    ///
    /// # Errors
    /// Returns [`FileError`]; the old file then remains.
    pub fn write(&self, files: &impl Files, data: &Path) -> Result<(), FileError> {
        write_json(files, data, FILE, self)
    }

    /// If `number` was not served as an overflow number, returns the time until which it was
    /// withheld, or `otherwise` if it was not withheld.
    #[must_use]
    pub fn doubted_until(&self, number: PromoNumber, otherwise: Millis) -> Option<Millis> {
        let code = number.to_code();
        let is_served = self.numbers.binary_search(&code).is_ok();
        let until = || self.withheld.get(&code).map_or(otherwise, |until| Millis(*until));
        (!is_served).then(until)
    }

    /// Lengthens the times until which numbers are withheld.
    pub fn lengthen(&mut self, by: Millis) {
        self.withheld.values_mut().for_each(|until| *until = until.saturating_add(by.0));
    }
}

/// Returns the overflow numbers of all pools; a number that several pools share is repeated.
pub(crate) fn overflow_numbers(directory: &Directory) -> impl Iterator<Item = PromoNumber> {
    let pools = (0..BUCKETS).flat_map(|bucket| directory.pools_in(bucket));
    pools.filter_map(|pool| pool.overflow())
}
