//! The values in the server's answers.

use serde_json::Value;

/// Returns the value of the field `name` as text. Null becomes an empty string.
pub(crate) fn text(object: &Value, name: &str) -> String {
    match &object[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
