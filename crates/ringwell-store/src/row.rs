//! Converts the database's integers and strings to the program's types, and back.
//!
//! Invariant: all data is checked when it is read. A row that breaks a rule leads to
//! [`StoreError::Damaged`].

use ringwell_core::{Millis, PromoNumber};
use ringwell_directory::RingPoolKey;
use sqlx::any::AnyRow;
use sqlx::{Any, ColumnIndex, Decode, Row, Type};

use crate::{Refusal, StoreError};

/// Returns a value in the form that the database stores. Values that the database cannot store are
/// refused.
pub(crate) fn to_db(value: u64, what: &str) -> Result<i64, StoreError> {
    let unfit = || Refusal::Unfit(format!("{what} must be at most {}, but is {value}", i64::MAX));
    Ok(i64::try_from(value).map_err(|_| unfit())?)
}

/// Returns a time or duration in the form that the database stores, limited to 292 million years.
pub(crate) fn ms(time: Millis) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

pub(crate) fn from_ms(value: i64) -> Millis {
    Millis(u64::try_from(value).unwrap_or(0))
}

pub(crate) fn from_db(value: i64, what: &str) -> Result<u64, StoreError> {
    u64::try_from(value).map_err(|_| StoreError::Damaged(format!("{what} is {value}")))
}

pub(crate) fn number(value: i64) -> Result<PromoNumber, StoreError> {
    let number = u64::try_from(value).ok().and_then(PromoNumber::from_e164);
    number.ok_or_else(|| StoreError::Damaged(format!("{value} is not a promo number")))
}

/// Returns a promo number in the form that the database stores. The stored form includes the
/// country code. A promo number has at most 15 digits, so it always fits into an `i64`.
pub(crate) fn digits(number: PromoNumber) -> i64 {
    i64::try_from(number.to_e164()).unwrap_or(i64::MAX)
}

pub(crate) fn key(text: &str) -> Result<RingPoolKey, StoreError> {
    RingPoolKey::parse(text).map_err(|error| StoreError::Damaged(error.to_string()))
}

/// The columns of a row, read in the order in which they were selected.
pub(crate) struct Columns<'a> {
    row: &'a AnyRow,
    next: usize,
}

impl<'a> Columns<'a> {
    pub(crate) const fn of(row: &'a AnyRow) -> Self {
        Self { row, next: 0 }
    }

    pub(crate) fn take<T>(&mut self) -> Result<T, StoreError>
    where
        T: Decode<'a, Any> + Type<Any>,
        usize: ColumnIndex<AnyRow>,
    {
        self.next += 1;
        Ok(self.row.try_get(self.next - 1)?)
    }
}
