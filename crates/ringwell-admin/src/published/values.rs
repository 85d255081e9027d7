//! Values that clients send as JSON values or as strings with the same meaning.

use serde_json::Value;

/// The text of a JSON string, or the digits of a JSON number.
pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Reads a non-negative integer, given as a number or as text.
pub(super) fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Reads true or false, given as a boolean, as text, or as 1 or 0.
pub(super) fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => [Some(0), Some(1)]
            .iter()
            .position(|known| *known == number.as_u64())
            .map(|place| place == 1),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}
