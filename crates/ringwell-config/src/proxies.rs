//! `trusted_proxies`: the proxies whose header `X-Forwarded-For` is trusted.
//!
//! Anyone can send the header. Only the part that trusted proxies wrote is reliable. The client's
//! address is therefore the rightmost address in the header that is not a trusted proxy's.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::values::ValueError;

/// Trusted proxies: one address, a network, or all peers on a unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustedProxy {
    /// A network: an address and the count of its significant bits.
    Network(IpAddr, u8),
    /// Any peer on a unix socket.
    Unix,
}

impl TrustedProxy {
    /// Whether a peer at `address` matches this entry; `None` stands for a unix socket.
    #[must_use]
    pub fn contains(&self, address: Option<IpAddr>) -> bool {
        match (self, address.map(|address| address.to_canonical())) {
            (Self::Unix, None) => true,
            (Self::Network(IpAddr::V4(network), bits), Some(IpAddr::V4(address))) => {
                let differ = network.to_bits() ^ address.to_bits();
                differ.leading_zeros() >= u32::from(*bits)
            }
            (Self::Network(IpAddr::V6(network), bits), Some(IpAddr::V6(address))) => {
                let differ = network.to_bits() ^ address.to_bits();
                differ.leading_zeros() >= u32::from(*bits)
            }
            _ => false,
        }
    }
}

impl fmt::Display for TrustedProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address, bits) => write!(f, "{address}/{bits}"),
            Self::Unix => f.write_str("unix"),
        }
    }
}

impl FromStr for TrustedProxy {
    type Err = ValueError;

    /// Reads `10.0.0.7`, `10.0.0.0/8`, `2001:db8::/32` or `unix`.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let fault = || {
            ValueError::new("must be `unix` or an IP address, optionally with a prefix length")
                .hint("write e.g. \"127.0.0.1\", \"10.0.0.0/8\" or \"unix\"")
        };
        if text == "unix" {
            return Ok(Self::Unix);
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| fault())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| fault())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most { Err(fault()) } else { Ok(Self::Network(address, bits)) }
    }
}

/// The client's address. This is the peer's address or, if the peer is a trusted proxy, the last
/// address in `forwarded` that is not a trusted proxy. `forwarded` contains the values of
/// `X-Forwarded-For` in the order of the headers.
#[must_use]
pub fn client_address<'a>(
    trusted: &[TrustedProxy],
    peer: Option<IpAddr>,
    forwarded: impl DoubleEndedIterator<Item = &'a str>,
) -> Option<IpAddr> {
    let is_trusted = |address| trusted.iter().any(|proxy| proxy.contains(address));
    let mut client = peer;
    for text in forwarded.rev().flat_map(|value| value.rsplit(',')) {
        if !is_trusted(client) {
            break;
        }
        // A trusted proxy writes only addresses, so the search ends at any other text.
        let Ok(address) = text.trim().parse() else { break };
        client = Some(address);
    }
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(texts: &[&str]) -> Vec<TrustedProxy> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_proxy_is_one_address_or_a_network_of_them() {
        let cases = [
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.8", false),
            ("10.0.0.7", "::ffff:10.0.0.7", true),
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "192.0.2.1", false),
        ];
        for (proxy, address, expected) in cases {
            let proxy: TrustedProxy = proxy.parse().unwrap();
            assert_eq!(proxy.contains(address.parse().ok()), expected, "{proxy} {address}");
            assert_eq!(proxy.to_string().parse(), Ok(proxy));
        }
        assert!(TrustedProxy::Unix.contains(None));
        assert!(!"10.0.0.0/8".parse::<TrustedProxy>().unwrap().contains(None));
        for wrong in ["", "proxy", "10.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(wrong.parse::<TrustedProxy>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_header_is_trusted_as_far_as_known_proxies_have_written_it() {
        let trusted = proxies(&["10.0.0.0/8", "unix"]);
        let cases: [(&str, &[&str], &str); 9] = [
            ("192.0.2.1", &["203.0.113.5"], "192.0.2.1"),
            ("10.0.0.1", &["203.0.113.5"], "203.0.113.5"),
            ("10.0.0.1", &["198.51.100.9, 203.0.113.5"], "203.0.113.5"),
            ("10.0.0.1", &["198.51.100.9", "203.0.113.5 , 10.0.0.2"], "203.0.113.5"),
            ("10.0.0.1", &["10.0.0.3,10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.5, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["", "2001:db8::1"], "2001:db8::1"),
            ("", &["203.0.113.5"], "203.0.113.5"),
        ];
        for (peer, forwarded, expected) in cases {
            let found = client_address(&trusted, peer.parse().ok(), forwarded.iter().copied());
            assert_eq!(found, expected.parse().ok(), "{peer} {forwarded:?}");
        }
        assert_eq!(client_address(&[], None, ["203.0.113.5"].into_iter()), None);
    }
}
