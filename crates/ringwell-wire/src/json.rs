//! Writes JSON strings.

/// Appends a JSON string.
pub(crate) fn json_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    json_text(out, text);
    out.push(b'"');
}

/// Appends the contents of a JSON string, without its quotes.
pub(crate) fn json_text(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
}
