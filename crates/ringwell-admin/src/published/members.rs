//! JSON objects whose members are in the same order as in the published API's samples.

use serde::{Serialize, Serializer};
use serde_json::Value;

/// Members, in the order of output.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(pub(super) Vec<(String, Value)>);

impl Members {
    /// Groups the errors by field, so that each field is listed once.
    pub(super) fn grouped(fields: Vec<(String, String)>) -> Self {
        let mut grouped: Vec<(String, Vec<Value>)> = Vec::new();
        for (field, message) in fields {
            match grouped.iter_mut().find(|(known, _)| *known == field) {
                Some((_, messages)) => messages.push(message.into()),
                None => grouped.push((field, vec![message.into()])),
            }
        }
        Self(grouped.into_iter().map(|(field, said)| (field, Value::Array(said))).collect())
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
