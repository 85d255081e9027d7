//! Readers for the values of fields: text, booleans, numbers, sizes and lengths of time.

use std::time::Duration;

use toml::de::DeValue;

use super::limits::Bounds;
use super::section::wrong_type;
use super::values::{ValueError, parse_duration, parse_size};

/// Reads text with `parse`.
pub(super) fn text<T>(
    parse: impl Fn(&str) -> Result<T, ValueError>,
) -> impl Fn(&DeValue<'_>) -> Result<T, ValueError> {
    move |value| match value {
        DeValue::String(text) => parse(text),
        other => Err(wrong_type("text", other).hint("write it in quotes")),
    }
}

/// Reads `true` or `false`.
pub(super) fn truth(value: &DeValue<'_>) -> Result<bool, ValueError> {
    value.as_bool().ok_or_else(|| wrong_type("true or false", value))
}

/// Reads a whole number.
pub(super) fn whole<T, U>(bounds: &Bounds<T>) -> impl Fn(&DeValue<'_>) -> Result<U, ValueError>
where
    T: PartialOrd + TryFrom<i128>,
    U: TryFrom<T>,
{
    move |value| {
        let DeValue::Integer(number) = value else {
            return Err(wrong_type("a whole number", value));
        };
        let number = i128::from_str_radix(number.as_str(), number.radix()).ok();
        let number = number.and_then(|number| T::try_from(number).ok());
        let number = bounds.check(number.ok_or_else(|| bounds.fault())?)?;
        U::try_from(number).map_err(|_| bounds.fault())
    }
}

/// Reads a size, as a number of bytes or as text with a unit.
pub(super) fn size<U: TryFrom<u64>>(
    bounds: &Bounds<u64>,
) -> impl Fn(&DeValue<'_>) -> Result<U, ValueError> {
    move |value| {
        let bytes = match value {
            DeValue::String(text) => bounds.check(parse_size(text)?)?,
            DeValue::Integer(_) => whole(bounds)(value)?,
            other => {
                return Err(wrong_type("a size", other).hint("write e.g. 65536 or \"64KiB\""));
            }
        };
        U::try_from(bytes).map_err(|_| bounds.fault())
    }
}

/// Reads a duration with its unit.
pub(super) fn duration(
    bounds: &Bounds<Duration>,
) -> impl Fn(&DeValue<'_>) -> Result<Duration, ValueError> {
    move |value| match value {
        DeValue::String(text) => {
            let hinted = |fault: ValueError| fault.hint(bounds.example_of(text));
            bounds.check(parse_duration(text).map_err(hinted)?)
        }
        DeValue::Integer(number) => {
            Err(wrong_type("a duration", value).hint(bounds.example_of(number.as_str())))
        }
        other => Err(wrong_type("a duration", other).hint(bounds.example())),
    }
}
