//! Tokens and their hashes.

use super::*;

#[test]
fn a_token_is_accepted_by_its_hash_and_no_other_is() {
    let ours = Token::from_random([7; 32]);
    let hashes = [Token::from_random([8; 32]).hash(), ours.hash()];
    assert!(TokenHash::any_matches(&hashes, ours.reveal().as_bytes()));
    assert!(!TokenHash::any_matches(&hashes, b"rw_07"));
    assert!(!TokenHash::any_matches(&hashes, b""));
    assert!(!TokenHash::any_matches(&[], ours.reveal().as_bytes()));
}

#[test]
fn a_token_reads_back_and_is_not_printed() {
    let token = Token::from_random([0xA5; 32]);
    assert_eq!(token.reveal(), format!("rw_{}", "a5".repeat(32)));
    assert_eq!(Token::parse(token.reveal()), Some(token.clone()));
    assert_eq!(format!("{token:?}"), "***");
    assert_eq!(Token::parse("short"), None);
    assert_eq!(Token::parse("with spaces in it, sixteen"), None);
    assert_eq!(Token::parse(&"x".repeat(257)), None);
}

#[test]
fn a_hash_is_the_sha_256_in_hexadecimal_digits() {
    let text = "b5d4045c3f466fa91fe2cc6abe79232a1a57cdf104f7a26e716e0a1e2789df78";
    let hash = TokenHash::of(b"ABC");
    assert_eq!(hash.to_string(), text);
    assert_eq!(TokenHash::parse(text), Ok(hash));
    assert_eq!(TokenHash::parse(&text.to_uppercase()), Ok(hash));
}

#[test]
fn an_invalid_hash_is_refused() {
    for text in ["", "b5d4", &"x".repeat(64), &"é".repeat(32), &"a".repeat(65)] {
        assert_eq!(TokenHash::parse(text), Err(TokenHashError));
    }
    assert_eq!(TokenHashError.to_string(), "the SHA-256 of a token has 64 hexadecimal digits");
}
