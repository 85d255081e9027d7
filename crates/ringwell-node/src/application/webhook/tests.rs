use super::*;

/// The output of `openssl dgst -sha256 -hmac a-shared-secret-of-tests` when its input is
/// `1700000000.{}`.
const SIGNATURE: &str = "9f3bf0efd5fa0ce0b27973c217549281e16264386bb1f6072a0296e051ba94c5";

fn headers(timestamp: &str, signature: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("ringwell-timestamp", timestamp.parse().unwrap());
    headers.insert("ringwell-signature", signature.parse().unwrap());
    headers
}

#[test]
fn only_fresh_signatures_are_accepted() {
    let secret = b"a-shared-secret-of-tests";
    let good = format!("sha256={SIGNATURE}");
    let check = |timestamp, signature: &str, body: &[u8], now| {
        signed(secret, &headers(timestamp, signature), body, now).is_some()
    };
    let at = "1700000000";
    assert!(check(at, &good, b"{}", 1_700_000_000) && check(at, &good, b"{}", 1_700_000_300));
    assert!(!check(at, &good, b"{}", 1_700_000_301), "too old");
    assert!(!check(at, &good, b"{} ", 1_700_000_000), "another body");
    assert!(!check("1700000001", &good, b"{}", 1_700_000_000), "another time");
    for bad in ["", "sha256=", "sha256=00", &good[..good.len() - 1], SIGNATURE] {
        assert!(!check(at, bad, b"{}", 1_700_000_000), "{bad}");
    }
    assert!(signed(secret, &HeaderMap::new(), b"{}", 1_700_000_000).is_none());
}
