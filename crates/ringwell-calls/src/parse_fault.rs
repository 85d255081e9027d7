//! Describes in plain words why a request's body or query cannot be parsed.
//!
//! The parsers' own messages name Rust types and do not say what to do.

/// The prefixes of axum's messages. They add nothing to the rest of the message.
const PREFIXES: [&str; 3] = [
    "Failed to deserialize query string: ",
    "Failed to deserialize the JSON body into the target type: ",
    "Failed to parse the request body as JSON: ",
];

/// Describes the error `message` of a JSON, CSV or query parser: what is wrong, where, and what to
/// do.
#[must_use]
pub fn described(message: &str) -> String {
    let is_not_json = message.starts_with(PREFIXES[2]);
    let text = PREFIXES.iter().find_map(|prefix| message.strip_prefix(prefix));
    let (text, place) = placed(text.unwrap_or(message));
    if is_not_json {
        return format!("is not JSON{place}: send an object, as in {{\"name\": \"value\"}}");
    }
    // The path to the faulty member, as in `parameter.name: invalid type …`.
    let is_path = |head: &str| !head.is_empty() && !head.contains([' ', '`']);
    let (path, text) = match text.split_once(": ").filter(|(head, _)| is_path(head)) {
        Some((path, rest)) => (Some(path), rest),
        None => (None, text),
    };
    let whole = |name: &str, parent: Option<&str>| match parent {
        Some(parent) if parent != name => format!("{parent}.{name}"),
        _ => name.to_owned(),
    };
    if let Some(name) = quoted(text, "missing field ") {
        return format!("{} is missing: add it", whole(name, path));
    }
    if let Some(name) = quoted(text, "duplicate field ") {
        return format!("{name} is given more than once: give it once");
    }
    for unknown in ["unknown field ", "unknown variant "] {
        let Some(name) = quoted(text, unknown) else { continue };
        let known = text.split_once(", expected ").map_or("no members", |(_, known)| known);
        let known = known.strip_prefix("one of ").unwrap_or(known).replace('`', "");
        return format!("{name} is unknown{place}: use {known}");
    }
    let fault = required(text).unwrap_or_else(|| text.to_owned());
    match path {
        Some(path) => format!("{path}: {fault}{place}"),
        None => format!("{fault}{place}"),
    }
}

/// Separates the position at the end of a message, and writes it in parentheses.
fn placed(text: &str) -> (&str, String) {
    let Some((text, place)) = text.rsplit_once(" at line ") else { return (text, String::new()) };
    (text, format!(" (line {})", place.replace(" column", ", column")))
}

/// The name in backticks after `prefix`.
fn quoted<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.strip_prefix(prefix)?.strip_prefix('`')?.split('`').next()
}

/// States what the value must be.
fn required(text: &str) -> Option<String> {
    let fixed = match text {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "must be a whole number"
        }
        "number too large to fit in target type" => "is too large a number",
        "provided string was not `true` or `false`" => "must be true or false",
        _ => "",
    };
    if !fixed.is_empty() {
        return Some(fixed.to_owned());
    }
    let rest = text.strip_prefix("invalid type: ").or(text.strip_prefix("invalid value: "))?;
    let (found, wanted) = rest.split_once(", expected ")?;
    let wanted = match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "a sequence" => "a list",
        wanted if wanted == "a map" || wanted.starts_with("struct ") => "an object",
        wanted => wanted,
    };
    let found = match found {
        "sequence" => "a list",
        "map" => "an object",
        found => found,
    };
    Some(format!("must be {wanted}, but is {found}"))
}

#[cfg(test)]
#[test]
fn faults_name_the_member_and_the_remedy_and_no_type_of_rust() {
    use axum::Json;
    use axum::extract::Query;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only the errors matter")]
    struct Wanted {
        value: String,
        count: Option<u64>,
        is_wide: Option<bool>,
        list: Option<Vec<String>>,
        inner: Option<Inner>,
    }
    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code, reason = "only the errors matter")]
    struct Inner {
        name: String,
    }
    let body = |text: &str| {
        let error = Json::<Wanted>::from_bytes(text.as_bytes()).unwrap_err();
        described(&error.body_text())
    };
    for (text, wanted) in [
        ("{}", "value is missing: add it"),
        (
            r#"{"value":"a","other":1}"#,
            "other is unknown (line 1, column 20): use value, count, is_wide, list, inner",
        ),
        (r#"{"value":5}"#, "value: must be a string, but is integer `5` (line 1, column 10)"),
        (
            r#"{"value":"a","count":-1}"#,
            "count: must be a whole number, but is integer `-1` (line 1, column 23)",
        ),
        (
            r#"{"value":"a","list":{}}"#,
            "list: must be a list, but is an object (line 1, column 20)",
        ),
        (r#"{"value":"a","inner":{}}"#, "inner.name is missing: add it"),
        (r#"{"value":"a","value":"b"}"#, "value is given more than once: give it once"),
    ] {
        assert_eq!(body(text), wanted, "{text}");
    }
    for text in ["{", "{\"value\" 1}", "{value:1}"] {
        assert!(body(text).starts_with("is not JSON (line 1, column "), "{}", body(text));
    }
    let query = |text: &str| {
        let uri = format!("/?{text}").parse().unwrap();
        described(&Query::<Wanted>::try_from_uri(&uri).unwrap_err().body_text())
    };
    assert_eq!(query(""), "value is missing: add it");
    assert_eq!(query("value=a&count=x"), "count: must be a whole number");
    assert_eq!(query("value=a&count=99999999999999999999"), "count: is too large a number");
    assert_eq!(query("value=a&is_wide=x"), "is_wide: must be true or false");
    assert!(query("value=a&x=1").starts_with("x is unknown: use value, count"));
}
