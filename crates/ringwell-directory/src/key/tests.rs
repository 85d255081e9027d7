//! Tests that a key matches only itself, and that no message shows a key.

use proptest::prelude::*;

use super::*;

fn key(text: &str) -> RingPoolKey {
    RingPoolKey::parse(text).unwrap()
}

#[test]
fn a_key_matches_itself_and_nothing_else() {
    let ours = key("k3y-of-pool-16");
    assert!(ours.matches(b"k3y-of-pool-16"));
    let others: [&[u8]; 6] = [
        b"",
        b"k3y-of-pool-1",
        b"k3y-of-pool-17",
        b"k3y-of-pool-16\0",
        b"K3y-of-pool-16",
        &[0; 99],
    ];
    assert!(others.iter().all(|other| !ours.matches(other)));
}

#[test]
fn the_longest_key_matches_only_in_full_length() {
    let text = "x".repeat(64);
    let ours = key(&text);
    assert!(ours.matches(text.as_bytes()));
    assert!(!ours.matches("x".repeat(65).as_bytes()));
    assert!(!ours.matches("x".repeat(64 + 256).as_bytes()));
}

/// Keys of the usual length are compared by a separate function.
#[test]
fn no_key_matches_with_one_byte_more_less_or_changed() {
    for bytes in RingPoolKey::BYTES_MIN..=RingPoolKey::BYTES_MAX {
        let text: Vec<u8> = (b'A'..=b'Z').cycle().take(bytes).collect();
        let ours = key(str::from_utf8(&text).unwrap());
        assert!(ours.matches(&text));
        assert!(!ours.matches(&text[1..]) && !ours.matches(&text[..bytes - 1]));
        assert!(!ours.matches(&[&text[..], b"x"].concat()));
        for at in 0..bytes {
            let mut other = text.clone();
            other[at] ^= 1;
            assert!(!ours.matches(&other), "{bytes} bytes, changed at {at}");
        }
    }
}

#[test]
fn a_key_is_never_printed() {
    let ours = key("very-secret");
    assert_eq!(format!("{ours} {ours:?}"), "*** ***");
    assert_eq!(ours.reveal(), "very-secret");
}

#[test]
fn a_refused_key_is_not_shown_either() {
    let said = |text: &str| RingPoolKey::parse(text).unwrap_err().to_string();
    assert_eq!(said("secret7"), "a ring pool key has 8 to 64 bytes, not 7");
    assert_eq!(said(&"s".repeat(65)), "a ring pool key has 8 to 64 bytes, not 65");
    let form = "a ring pool key is printable ASCII without spaces, `&`, `%` or `+`";
    for text in ["secret 78", "secret&78", "secret%78", "secret+78", "secrét78", "secret\n78"] {
        assert_eq!(said(text), form);
    }
}

proptest! {
    #[test]
    fn only_the_same_bytes_match(text in "[!-$'-*,-~]{8,64}", other in "[!-$'-*,-~]{0,70}") {
        let ours = key(&text);
        prop_assert_eq!(ours.reveal(), &text);
        prop_assert!(ours.matches(text.as_bytes()));
        prop_assert_eq!(ours.matches(other.as_bytes()), text == other);
    }
}
