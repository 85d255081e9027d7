//! The rules for the addresses that events may be sent to. Addresses inside the server's network
//! are forbidden.
//!
//! For each delivery, the server resolves the endpoint's host name once and connects to the address
//! that it checked. Therefore, a name whose address changes after the check cannot evade it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringwell_config::WebhookSettings;

/// The maximum length of an endpoint's URL.
const URL_BYTES_MAX: usize = 2_048;
/// The ports that events may be sent to.
const PORTS: [u16; 3] = [443, 80, 8443];

/// The special-purpose networks of IPv4, according to IANA's registry: base address and prefix
/// length.
const BLOCKED_V4: [([u8; 4], u8); 16] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
    ([255, 255, 255, 255], 32),
];

/// The special-purpose networks of IPv6, including those of transition mechanisms, which embed an
/// IPv4 address.
const BLOCKED_V6: [([u16; 8], u8); 15] = [
    ([0, 0, 0, 0, 0, 0, 0, 0], 96),
    ([0, 0, 0, 0, 0xffff, 0, 0, 0], 96),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128),
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64),
    ([0x100, 0, 0, 1, 0, 0, 0, 0], 64),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
    ([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 9),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
];

/// The rules for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    networks: Vec<(IpAddr, u8)>,
    ports: Vec<u16>,
    plain: bool,
}

/// The parsed URL of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether to use TLS.
    pub is_tls: bool,
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// The path and query.
    pub path: String,
}

/// The host of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A name that must be resolved.
    Name(String),
    /// An IP address, which may have been written in any form that URLs allow.
    Address(IpAddr),
}

/// The reason why no events are sent to a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// The text is not a web URL.
    #[error(
        "the URL must begin with https:// and a host, contain only printable ASCII, contain no \
        user name, password or fragment, and be at most {URL_BYTES_MAX} bytes long"
    )]
    Malformed,
    /// Without TLS, events may be sent only to configured networks.
    #[error(
        "use https://, because http:// is allowed only if [calls.webhooks] sets allow_http = true \
         and lists the address's network in allow_networks"
    )]
    Plain,
    /// The port is neither a usual web port nor a configured one.
    #[error(
        "port {0} is not allowed: use 443, 80 or 8443, or add {0} to allow_ports of \
         [calls.webhooks]"
    )]
    Port(u16),
    /// The address is not public.
    #[error(
        "{0} is not a public address: to allow it, add its network to allow_networks of \
        [calls.webhooks]"
    )]
    Address(IpAddr),
}

impl Policy {
    /// Creates the rules from the configuration.
    #[must_use]
    pub fn new(settings: &WebhookSettings) -> Self {
        Self {
            networks: settings.allow_networks.clone(),
            ports: settings.allow_ports.clone(),
            plain: settings.allow_http,
        }
    }

    /// Parses a URL and runs the checks that do not require resolving the host.
    ///
    /// # Errors
    /// [`Forbidden`].
    pub fn target(&self, url: &str) -> Result<Target, Forbidden> {
        let target = parse(url).ok_or(Forbidden::Malformed)?;
        if !PORTS.contains(&target.port) && !self.ports.contains(&target.port) {
            return Err(Forbidden::Port(target.port));
        }
        if !target.is_tls && !self.plain {
            return Err(Forbidden::Plain);
        }
        if let Host::Address(address) = target.host {
            self.check(address, target.is_tls)?;
        }
        Ok(target)
    }

    /// Checks whether connections to `address` are allowed.
    ///
    /// # Errors
    /// [`Forbidden`].
    pub fn check(&self, address: IpAddr, is_tls: bool) -> Result<(), Forbidden> {
        let address = address.to_canonical();
        let is_allowed = self.networks.iter().any(|net| contains(*net, address));
        if !is_allowed && is_blocked(address) {
            return Err(Forbidden::Address(address));
        }
        if !is_allowed && !is_tls { Err(Forbidden::Plain) } else { Ok(()) }
    }
}

fn is_blocked(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => BLOCKED_V4
            .iter()
            .any(|(base, bits)| contains((IpAddr::V4(Ipv4Addr::from(*base)), *bits), address)),
        IpAddr::V6(_) => BLOCKED_V6
            .iter()
            .any(|(base, bits)| contains((IpAddr::V6(Ipv6Addr::from(*base)), *bits), address)),
    }
}

fn contains((base, bits): (IpAddr, u8), address: IpAddr) -> bool {
    match (base.to_canonical(), address) {
        (IpAddr::V4(base), IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            base.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V6(base), IpAddr::V6(address)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            base.to_bits() & mask == address.to_bits() & mask
        }
        _ => false,
    }
}

fn parse(url: &str) -> Option<Target> {
    if url.len() > URL_BYTES_MAX || !url.bytes().all(|b| b.is_ascii_graphic()) {
        return None;
    }
    let (scheme, rest) = url.split_once("://")?;
    let is_tls = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    if rest.contains(['#', '\\', '<', '>', '"', '^', '`', '{', '|', '}']) {
        return None;
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains(['@', '%']) {
        return None;
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            let address: Ipv6Addr = address.parse().ok()?;
            let port = if port.is_empty() { None } else { Some(port.strip_prefix(':')?) };
            (Host::Address(IpAddr::V6(address).to_canonical()), port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host_of(host)?, Some(port)),
            None => (host_of(authority)?, None),
        },
    };
    let port = match port {
        None => {
            if is_tls {
                443
            } else {
                80
            }
        }
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => port.parse().ok()?,
        Some(_) => return None,
    };
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Some(Target { is_tls, host, port, path })
}

/// Parses a name, or an IPv4 address in any form that a resolver might accept: octal, hexadecimal,
/// or with fewer than four parts.
fn host_of(text: &str) -> Option<Host> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if name.is_empty() || name.len() > 253 || !name.bytes().all(is_plain) {
        return None;
    }
    let last = name.rsplit('.').next()?;
    let looks_numeric = last.bytes().all(|b| b.is_ascii_digit())
        || last
            .strip_prefix("0x")
            .or(last.strip_prefix("0X"))
            .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    if looks_numeric {
        return numeric(name).map(|address| Host::Address(IpAddr::V4(address)));
    }
    let is_label = |label: &str| (1..=63).contains(&label.len());
    name.split('.').all(is_label).then(|| Host::Name(name.to_ascii_lowercase()))
}

/// Parses an IPv4 address of one to four parts. The last part fills the remaining bytes.
fn numeric(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u64> = text.split('.').map(part).collect::<Option<_>>()?;
    let (last, head) = parts.split_last()?;
    if head.len() > 3 || head.iter().any(|part| *part > 255) {
        return None;
    }
    let rest_bits = 8 * (4 - u32::try_from(head.len()).ok()?);
    if *last >= 1 << rest_bits {
        return None;
    }
    let high = head.iter().fold(0_u64, |all, part| all << 8 | part) << rest_bits;
    u32::try_from(high | last).ok().map(Ipv4Addr::from_bits)
}

fn part(text: &str) -> Option<u64> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match hex {
        Some("") => Some(0),
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(&text[1..], 8).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
