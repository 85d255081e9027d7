//! Reads configuration values from their written form in files, variables and flags.
//!
//! Owns their syntax. Independent of where a text comes from.

use std::fmt;
use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ringwell_core::{Millis, NumberRange, PromoNumber};
use ringwell_directory::PoolFault;

/// The error for an invalid text: the expected form, and an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl ValueError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

impl std::error::Error for ValueError {}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TCP.
    Tcp {
        /// A host name or an IP address; an IPv6 address has no brackets.
        host: String,
        /// The port; 0 lets the system choose one.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

/// The durability that an allocation must reach before it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Stored on the disk (`fdatasync`): no answered allocation is lost.
    #[default]
    Disk,
    /// Stored by the operating system: survives a crash of the process, but not of the machine.
    Os,
    /// Nothing is stored: when the process ends, the history is lost.
    Memory,
}

/// The format of the logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// Lines for people.
    Text,
    /// Lines for machines.
    Json,
}

impl FromStr for Listen {
    type Err = ValueError;

    /// Reads `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let fault = || {
            ValueError::new("must be HOST:PORT or unix:PATH")
                .hint("write e.g. \"127.0.0.1:8080\" or \"unix:/run/ringwell.sock\"")
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(fault()) } else { Ok(Self::Unix(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(fault)?;
        let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = inner.unwrap_or(host);
        let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        let fits = match inner {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(is_name),
        };
        let port = port.parse().map_err(|error: ParseIntError| {
            if !fits || *error.kind() != IntErrorKind::PosOverflow {
                return fault();
            }
            ValueError::new("the port must be 1 to 65535, or 0 for any free port")
                .hint("write e.g. \"127.0.0.1:8080\"")
        })?;
        if fits { Ok(Self::Tcp { host: host.to_owned(), port }) } else { Err(fault()) }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Durability {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "disk" => Ok(Self::Disk),
            "os" => Ok(Self::Os),
            "memory" => Ok(Self::Memory),
            _ => Err(ValueError::new("must be \"disk\", \"os\" or \"memory\"")),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "disk",
            Self::Os => "os",
            Self::Memory => "memory",
        })
    }
}

impl FromStr for LogFormat {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "auto" => Ok(Self::Auto),
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(ValueError::new("must be \"auto\", \"text\" or \"json\"")),
        }
    }
}

/// Reads a length of time such as `100ms`, `30m` or `1h 30m`.
///
/// # Errors
/// [`ValueError`] if `text` is invalid.
pub fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    let fault = |_| ValueError::new("must be a duration").hint("write e.g. \"30m\"");
    humantime::parse_duration(text).map_err(fault)
}

/// Reads a length of time such as `30m`, which must be a whole number of milliseconds.
///
/// # Errors
/// [`ValueError`] if `text` is invalid.
pub fn parse_lifetime(text: &str) -> Result<Millis, ValueError> {
    let too_long = || ValueError::new(PoolFault::Lifetime.to_string()).hint("write e.g. \"30m\"");
    let duration = match humantime::parse_duration(text) {
        Err(humantime::DurationError::NumberOverflow) => return Err(too_long()),
        _ => parse_duration(text)?,
    };
    if !duration.subsec_nanos().is_multiple_of(1_000_000) {
        let error = ValueError::new("must be a whole number of milliseconds");
        return Err(error.hint("write e.g. \"10ms\""));
    }
    u64::try_from(duration.as_millis()).map(Millis).map_err(|_| too_long())
}

/// Reads seconds with at most three decimals, as in `1800` or `0.01`.
pub(super) fn parse_seconds(text: &str) -> Result<Millis, ValueError> {
    let fault = || {
        ValueError::new("must be a number of seconds with at most three decimals")
            .hint("write e.g. 1800")
    };
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(whole) || !is_digits(decimals) || decimals.len() > 3 {
        return Err(fault());
    }
    let seconds: u64 = whole.parse().map_err(|_| fault())?;
    let millis: u64 = format!("{decimals:0<3}").parse().map_err(|_| fault())?;
    seconds.checked_mul(1000).and_then(|s| s.checked_add(millis)).map(Millis).ok_or_else(fault)
}

/// Writes a duration in seconds, with as many decimals as necessary.
pub(crate) fn format_seconds(millis: Millis) -> String {
    let (seconds, rest) = (millis.0 / 1000, millis.0 % 1000);
    let text = format!("{seconds}.{rest:03}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Reads a count of bytes such as `65536`, `64KiB`, `64MiB` or `8GiB`.
///
/// # Errors
/// [`ValueError`] if `text` is invalid.
pub fn parse_size(text: &str) -> Result<u64, ValueError> {
    let fault = || {
        ValueError::new("must be a size in bytes, KiB, MiB, GiB or TiB")
            .hint("write e.g. \"64MiB\"")
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let shift = match unit.trim_start() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err(fault()),
    };
    let count: u64 = count.parse().map_err(|_| fault())?;
    count.checked_mul(1 << shift).ok_or_else(fault)
}

/// Reads one promo number.
pub(super) fn parse_number(text: &str) -> Result<PromoNumber, ValueError> {
    let fault = |error: ringwell_core::NumberError| ValueError::new(error.to_string());
    PromoNumber::parse(text).map_err(|error| fault(error).hint("write e.g. \"8885550142\""))
}

/// Reads a range such as `8885550100-8885550149`, or one number.
pub(super) fn parse_range(text: &str) -> Result<NumberRange, ValueError> {
    let hint = "write e.g. \"8885550100-8885550149\"";
    match NumberRange::parse(text) {
        Err(error) => Err(ValueError::new(error.to_string()).hint(hint)),
        Ok(None) => Err(ValueError::new(
            "a range must not end before it starts, and must contain fewer than 2^32 numbers of \
             the same length",
        )
        .hint(hint)),
        Ok(Some(range)) => Ok(range),
    }
}

/// Reads a path that is not empty.
pub(super) fn parse_path(text: &str) -> Result<PathBuf, ValueError> {
    if text.is_empty() {
        return Err(ValueError::new("must not be empty"));
    }
    // The text may contain a password, so it must not be shown.
    if text.contains("://") {
        return Err(ValueError::new("must be a path, not the address of a server"));
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests;
