//! Writes the XML documents in answers to providers. Escapes attributes and text.

use std::fmt::Write;

/// An XML element.
#[derive(Clone, Debug)]
pub struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    content: String,
}

impl Element {
    /// Creates an empty element.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, attributes: Vec::new(), content: String::new() }
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl std::fmt::Display) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    /// Adds an attribute if `value` is given.
    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<impl std::fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Appends text.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.content.push_str(&escaped(text));
        self
    }

    /// Appends a child element.
    #[must_use]
    pub fn child(mut self, child: &Self) -> Self {
        child.write(&mut self.content);
        self
    }

    /// Returns the document whose root is this element.
    #[must_use]
    pub fn document(&self) -> String {
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
        self.write(&mut out);
        out
    }

    /// Returns the document without an XML declaration, because `FreeSWITCH` ignores every line
    /// that contains `<?`.
    #[must_use]
    pub fn document_without_declaration(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        out.push('<');
        out.push_str(self.name);
        for (name, value) in &self.attributes {
            // Writing to a `String` cannot fail.
            let _ = write!(out, " {name}=\"{}\"", escaped(value));
        }
        if self.content.is_empty() {
            out.push_str("/>");
        } else {
            let _ = write!(out, ">{}</{}>", self.content, self.name);
        }
    }
}

/// Escapes XML's special characters, and omits control characters, which XML does not allow.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
#[test]
fn no_value_breaks_out_of_an_attribute() {
    let number = Element::new("Number").with("url", "https://h/?a=1&b=\"'<>\n").text("<&>");
    assert_eq!(
        Element::new("Response").child(&number).document(),
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response>\
         <Number url=\"https://h/?a=1&amp;b=&quot;&apos;&lt;&gt;\">&lt;&amp;&gt;</Number></Response>"
    );
    assert_eq!(Element::new("Response").document().matches("<Response/>").count(), 1);
}
