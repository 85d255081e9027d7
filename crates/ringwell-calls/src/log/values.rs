//! Numbers, times and ids, in the formats of the database and the API.

use ringwell_core::Millis;

use super::error::LogError;

/// Converts a value to the database's integer type.
pub(crate) fn to_db(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn ms(at: Millis) -> i64 {
    to_db(at.0)
}

pub(crate) fn from_ms(value: i64) -> Millis {
    Millis(u64::try_from(value).unwrap_or_default())
}

/// Creates an id: `prefix` followed by 32 random hexadecimal digits.
pub(crate) fn random_id(prefix: &str) -> Result<String, LogError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| LogError::NoRandomness)?;
    Ok(format!("{prefix}{}", crate::digest::hex(&bytes)))
}

/// Creates an id for an event at `at`. The id begins with the time, so that the index of ids grows
/// only at its end. With random ids, each event would change a different page of the index.
pub(super) fn event_id(at: Millis) -> Result<String, LogError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| LogError::NoRandomness)?;
    // Six bytes of milliseconds suffice for 8,900 years.
    bytes[..6].copy_from_slice(&at.0.to_be_bytes()[2..]);
    Ok(format!("evt_{}", crate::digest::hex(&bytes)))
}

pub(super) fn text(value: &impl serde::Serialize) -> Result<String, LogError> {
    serde_json::to_string(value).map_err(|error| LogError::Damaged(error.to_string()))
}

pub(super) fn parsed<T: serde::de::DeserializeOwned>(
    text: Option<String>,
) -> Result<Option<T>, LogError> {
    let read = |text: String| serde_json::from_str(&text);
    text.map(read).transpose().map_err(|error| LogError::Damaged(error.to_string()))
}
