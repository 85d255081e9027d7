//! The names and values in a query string or form body.

use percent_encoding::percent_decode;

/// The maximum number of fields to read. Providers send about 60.
pub(crate) const FIELDS_MAX: usize = 1_000;

/// Names and values, in the order received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Parses text such as `a=1&b=2`. Leaves broken escapes unchanged, and replaces invalid UTF-8
    /// with replacement characters. Ignores fields after the first 1,000.
    #[must_use]
    pub fn read(text: &[u8]) -> Self {
        let pairs = text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
        let read = |pair: &[u8]| {
            let cut = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            (decoded(&pair[..cut]), decoded(pair.get(cut + 1..).unwrap_or_default()))
        };
        Self(pairs.take(FIELDS_MAX).map(read).collect())
    }

    /// Whether `text` has more fields than [`Self::read`] reads.
    #[must_use]
    pub fn is_too_long(text: &[u8]) -> bool {
        text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).count() > FIELDS_MAX
    }

    /// The first value of the field `name`, or an empty string if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }

    /// The first value of the field `name`, if there is one.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The names and values, sorted by their bytes.
    #[must_use]
    pub fn sorted(&self) -> Vec<(&str, &str)> {
        let mut pairs: Vec<_> =
            self.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        pairs.sort_unstable();
        pairs
    }

    /// Whether there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Decodes escapes and `+`.
pub(crate) fn decoded(raw: &[u8]) -> String {
    let spaced: Vec<u8> = raw.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    percent_decode(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
#[test]
fn a_form_is_decoded_in_its_order() {
    let form = Form::read("b=2&a=J%C3%B6hn+%26+Co&b=1&c&=&d=%zz".as_bytes());
    assert_eq!(form.get("a"), "Jöhn & Co");
    assert_eq!(
        (form.get("b"), form.get("c"), form.get("d"), form.get("none")),
        ("2", "", "%zz", "")
    );
    let wanted = [("", ""), ("a", "Jöhn & Co"), ("b", "1"), ("b", "2"), ("c", ""), ("d", "%zz")];
    assert_eq!(form.sorted(), wanted);
    assert!(Form::read(b"").is_empty());
}
