//! Reads the few parts of an XML document that a telephone needs.

/// Returns the text of the first element called `name`.
pub(super) fn inner<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let open = document.split_once(&format!("<{name}"))?.1;
    let text = open.split_once('>')?.1;
    text.split_once("</").map(|(text, _)| text)
}

/// Returns the value of the first attribute called `name`, unescaped.
pub(super) fn attribute(document: &str, name: &str) -> Option<String> {
    let value = document.split_once(&format!(" {name}=\""))?.1.split_once('"')?.0;
    Some(value.replace("&amp;", "&"))
}

/// Returns the value of the first attribute called `name`, as a number.
pub(super) fn number(document: &str, name: &str) -> Option<u64> {
    attribute(document, name)?.parse().ok()
}
