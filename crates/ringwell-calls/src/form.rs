//! Names and values of a query or of a form's body.

use percent_encoding::percent_decode;

/// The maximum number of fields that are read; a provider sends about sixty.
pub(crate) const FIELDS_MAX: usize = 1_000;

/// Names and values in the order received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Reads `a=1&b=2`. Broken escapes stay unchanged; invalid UTF-8 becomes replacement
    /// characters. Fields beyond a thousand are ignored.
    #[must_use]
    pub fn read(text: &[u8]) -> Self {
        let pairs = text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
        let read = |pair: &[u8]| {
            let cut = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            (decoded(&pair[..cut]), decoded(pair.get(cut + 1..).unwrap_or_default()))
        };
        Self(pairs.take(FIELDS_MAX).map(read).collect())
    }

    /// Whether `text` has more fields than are read.
    #[must_use]
    pub fn is_too_long(text: &[u8]) -> bool {
        text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).count() > FIELDS_MAX
    }

    /// The first value of `name`; empty if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }

    /// The first value of `name`.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Names and values in byte order.
    #[must_use]
    pub fn sorted(&self) -> Vec<(&str, &str)> {
        let mut pairs: Vec<_> =
            self.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        pairs.sort_unstable();
        pairs
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn decoded(raw: &[u8]) -> String {
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
