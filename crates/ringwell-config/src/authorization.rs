//! Reads the HTTP header `Authorization`.

/// Returns the credentials in `authorization`, the header's value, if they use `scheme`. The case
/// of the scheme's name does not matter. Source: RFC 9110, section 11.
#[must_use]
pub fn credentials<'a>(authorization: &'a str, scheme: &str) -> Option<&'a str> {
    let (name, credentials) = authorization.split_once(' ')?;
    name.eq_ignore_ascii_case(scheme).then(|| credentials.trim_start_matches(' '))
}

#[cfg(test)]
#[test]
fn the_scheme_is_found_in_any_case_and_no_other_scheme_is() {
    for value in ["Bearer a b", "bearer a b", "BEARER  a b"] {
        assert_eq!(credentials(value, "Bearer"), Some("a b"), "{value}");
    }
    for value in ["", "Bearer", "Bearera b", "Basic a", " Bearer a"] {
        assert_eq!(credentials(value, "Bearer"), None, "{value}");
    }
}
