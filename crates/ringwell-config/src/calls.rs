//! The section `[calls]`: telephony providers, call destinations, the call log and outgoing
//! webhooks.
//!
//! Secrets are kept in separate files. Source: docs/spec/calls.md.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use jiff::tz::TimeZone;
use ringwell_core::PoolId;

use super::cluster::Secret;
use super::cluster_file::read_secret_file;
use super::database_url::{Database, parse_database};
use super::fields::{duration, text, truth, whole};
use super::limits;
use super::pools::pool_id;
use super::section::Section;
use super::values::Listen;
use super::values::{ValueError, parse_path};

/// The maximum number of destinations in one rule.
const TARGETS_MAX: usize = 10;
/// The maximum number of secrets per account: an old and a new secret during a rotation.
const SECRETS_MAX: usize = 2;
const NAME_BYTES_MAX: usize = 40;

/// The settings for calls: their sources, their destinations and their retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calls {
    /// The address for providers' webhooks (default: `127.0.0.1:8090`).
    pub listen: Listen,
    /// The call log (default: `calls.sqlite` in the data directory).
    pub database: Option<Database>,
    /// The time after which a caller is connected even if the call's data are still incomplete
    /// (default: 250 ms).
    pub deadline: Duration,
    /// Accounts with providers.
    pub accounts: Vec<CallAccount>,
    /// The destinations of calls.
    pub destinations: Vec<DestinationRule>,
    /// The stored form of callers' numbers (default: in full).
    pub caller_ids: CallerIds,
    /// The time after which calls are removed (default: 760 days).
    pub retention: Duration,
    /// The time after which a call's caller, parameters and visitor are removed (default: 90 days).
    pub redact_after: Duration,
    /// Outgoing webhooks.
    pub webhooks: WebhookSettings,
    /// The program that decides each call's destination (default: none; only the configured
    /// destinations apply).
    pub routing: Option<RoutingSettings>,
}

/// A user's program that decides the destination of each call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutingSettings {
    /// Its address.
    pub url: String,
    /// The secret that signs requests to the program.
    pub secret: Secret,
    /// The time limit for its answer (default: 200 ms).
    pub budget: Duration,
}

/// An account with a provider. Its webhooks arrive at `/t/NAME/…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAccount {
    /// The name, which is part of the webhooks' path: letters, digits, `_` and `-`.
    pub name: String,
    /// The provider.
    pub provider: CallProvider,
    /// The URL that the provider uses to reach this server: scheme, host, and optionally port and
    /// path, without a trailing slash. Signatures cover it.
    pub public_url: String,
    /// The secrets that the provider uses to sign requests: one, or two during a rotation.
    pub secrets: Vec<Secret>,
    /// Twilio's shared keys for SHA-256 signatures; other providers have none.
    pub shared_keys: Vec<Secret>,
    /// The response to a call if its number has no destination.
    pub unknown_number: UnknownNumber,
}

/// A telephony provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallProvider {
    /// Twilio.
    Twilio,
    /// `SignalWire`.
    SignalWire,
    /// Telnyx.
    Telnyx,
    /// Plivo.
    Plivo,
    /// Vonage.
    Vonage,
    /// Bandwidth.
    Bandwidth,
    /// Any other provider, if it sends events in the documented form.
    Generic,
}

/// The response to calls to unknown numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UnknownNumber {
    /// The provider gets a 503, so that its own fallback takes over.
    #[default]
    Unavailable,
    /// The call is refused.
    Reject,
    /// The caller hears the busy tone.
    Busy,
    /// The call is connected to this destination.
    Connect(String),
}

/// The destinations of calls to some pools or numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationRule {
    /// The rule applies to these pools. A rule that has neither pools nor numbers is the default.
    pub ring_pools: BTreeSet<PoolId>,
    /// The rule applies to these numbers, E.164 with `+`. A rule for a number takes precedence over
    /// rules for pools.
    pub numbers: BTreeSet<String>,
    /// Numbers (E.164 with `+`) or SIP addresses, tried in this order.
    pub to: Vec<String>,
    /// The time for which each destination rings, 5 s to 10 min (default: 30 s).
    pub timeout: Duration,
    /// The announcement that the callee hears before being connected to the caller (default: none).
    pub whisper: Option<String>,
    /// The number shown to the callee instead of the caller's (default: none).
    pub caller_id: Option<String>,
    /// The hours in which `to` is called (default: always).
    pub hours: Vec<OpenHours>,
    /// The time zone of `hours` (default: UTC).
    pub time_zone: String,
    /// The destinations of calls outside `hours`; if there are none, these calls are refused.
    pub closed: Vec<String>,
}

/// Days of the week and minutes of the day, as in `mon-fri 09:00-17:30`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHours {
    /// The first and the last day, where Monday is 0. The last day may be before the first, as in
    /// `fri-mon`.
    pub days: (u8, u8),
    /// The first minute, and the minute after the last one, counted from midnight: 0 to 1440.
    pub minutes: (u16, u16),
}

/// The stored form of callers' numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallerIds {
    /// The number.
    #[default]
    Store,
    /// An HMAC of the number; the key changes every month.
    Hash,
    /// Not stored.
    Drop,
}

/// Outgoing webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Non-public networks that webhooks may be sent to (default: none).
    pub allow_networks: Vec<(IpAddr, u8)>,
    /// Ports that webhooks may be sent to, in addition to 443, 80 and 8443 (default: none).
    pub allow_ports: Vec<u16>,
    /// Whether webhooks may be sent over `http://`. Such webhooks may be sent only to networks in
    /// `allow_networks`.
    pub allow_http: bool,
    /// The time for which events can be replayed and read (default: 30 days).
    pub retention: Duration,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            listen: Listen::Tcp { host: "127.0.0.1".to_owned(), port: 8090 },
            database: None,
            deadline: Duration::from_millis(250),
            accounts: Vec::new(),
            destinations: Vec::new(),
            caller_ids: CallerIds::Store,
            retention: Duration::from_hours(760 * 24),
            redact_after: Duration::from_hours(90 * 24),
            webhooks: WebhookSettings::default(),
            routing: None,
        }
    }
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            allow_networks: Vec::new(),
            allow_ports: Vec::new(),
            allow_http: false,
            retention: Duration::from_hours(30 * 24),
        }
    }
}

impl CallProvider {
    const ALL: [Self; 7] = [
        Self::Twilio,
        Self::SignalWire,
        Self::Telnyx,
        Self::Plivo,
        Self::Vonage,
        Self::Bandwidth,
        Self::Generic,
    ];

    /// Reads a provider's name as written in the configuration.
    ///
    /// # Errors
    /// The error's text lists all names.
    pub fn parse(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|provider| provider.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|provider| provider.name()).collect();
            format!("must be one of {}", names.join(", "))
        })
    }

    /// The name in the configuration and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Twilio => "twilio",
            Self::SignalWire => "signalwire",
            Self::Telnyx => "telnyx",
            Self::Plivo => "plivo",
            Self::Vonage => "vonage",
            Self::Bandwidth => "bandwidth",
            Self::Generic => "generic",
        }
    }
}

impl OpenHours {
    /// Whether `minute` of `day` (Monday is 0) is within these hours.
    #[must_use]
    pub const fn contains(self, day: u8, minute: u16) -> bool {
        let (first, last) = self.days;
        let is_day =
            if first <= last { first <= day && day <= last } else { day >= first || day <= last };
        is_day && self.minutes.0 <= minute && minute < self.minutes.1
    }
}

pub(super) fn read(file: &mut Section<'_, '_>, base: &Path, found: &mut Option<Calls>) {
    let mut section = file.section("calls");
    if !file.has("calls") {
        section.finish();
        return;
    }
    let mut calls = Calls::default();
    section.set(&mut calls.listen, "listen", text(str::parse));
    calls.database = section.take("database", text(|name| parse_database(name, base)));
    section.set(&mut calls.deadline, "deadline", duration(&limits::CALL_DEADLINE));
    for account in section.sections("account") {
        read_account(account, base, &mut calls.accounts);
    }
    for rule in section.sections("destination") {
        let rule = read_destination(rule, &calls.destinations);
        calls.destinations.extend(rule);
    }
    section.set(&mut calls.caller_ids, "caller_ids", text(parse_caller_ids));
    section.set(&mut calls.retention, "retention", duration(&limits::CALL_RETENTION));
    section.set(&mut calls.redact_after, "redact_after", duration(&limits::CALL_RETENTION));
    let mut webhooks = section.section("webhooks");
    let into = &mut calls.webhooks;
    if let Some(networks) = webhooks.take_list("allow_networks", text(parse_network)) {
        into.allow_networks = networks;
    }
    if let Some(ports) = webhooks.take_list("allow_ports", whole(&limits::PORT)) {
        into.allow_ports = ports;
    }
    webhooks.set(&mut into.allow_http, "allow_http", truth);
    webhooks.set(&mut into.retention, "retention", duration(&limits::CALL_RETENTION));
    webhooks.finish();
    calls.routing = read_routing(&mut section, base);
    section.finish();
    *found = Some(calls);
}

fn read_routing(calls: &mut Section<'_, '_>, base: &Path) -> Option<RoutingSettings> {
    let mut section = calls.section("routing");
    if !calls.has("routing") {
        section.finish();
        return None;
    }
    let hint = "write e.g. \"https://crm.example.com/route\"";
    let url = section.require("url", hint, text(parse_routing_url));
    let secret = |name: &str| read_secret_file(&base.join(parse_path(name)?));
    let secret = section.require("secret_file", "write e.g. \"routing.secret\"", text(secret));
    let mut budget = Duration::from_millis(200);
    section.set(&mut budget, "budget", duration(&limits::CALL_DEADLINE));
    section.finish();
    Some(RoutingSettings { url: url?, secret: secret?, budget })
}

fn parse_routing_url(text: &str) -> Result<String, ValueError> {
    let is_http = text.starts_with("https://") || text.starts_with("http://");
    if is_http && text.len() <= 1000 && text.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(ValueError::new("must be a URL").hint("write e.g. \"https://crm.example.com/route\""))
}

fn read_account(mut section: Section<'_, '_>, base: &Path, accounts: &mut Vec<CallAccount>) {
    let name = section.require("name", "write e.g. name = \"main\"", text(parse_name));
    let provider = section.require("provider", "write e.g. \"twilio\"", text(parse_provider));
    let hint = "write e.g. \"https://calls.example.com\", the URL at which the provider reaches \
                this server";
    let public_url = section.require("public_url", hint, text(parse_public_url));
    let secret = |name: &str| read_secret_file(&base.join(parse_path(name)?));
    let secrets = section.take_list("secret_files", text(secret)).unwrap_or_default();
    let shared_keys = section.take_list("shared_key_files", text(secret)).unwrap_or_default();
    for (field, given) in [("secret_files", &secrets), ("shared_key_files", &shared_keys)] {
        if given.len() > SECRETS_MAX {
            section.fault(field, ValueError::new("must be one file, or two during a rotation"));
        }
    }
    section.miss(
        "secret_files",
        "write e.g. [\"twilio.secret\"], a file with the account's auth token",
    );
    let unknown_number = section.take("unknown_number", text(parse_unknown)).unwrap_or_default();
    if name.as_ref().is_some_and(|name| accounts.iter().any(|other| other.name == *name)) {
        section.fault("name", ValueError::new("is already used by another account"));
    }
    section.finish();
    if let (Some(name), Some(provider), Some(public_url)) = (name, provider, public_url) {
        accounts.push(CallAccount {
            name,
            provider,
            public_url,
            secrets,
            shared_keys,
            unknown_number,
        });
    }
}

/// Reads a rule. Refuses a number or a pool that an `earlier` rule already contains, because only
/// the first rule would apply to it.
fn read_destination(
    mut section: Section<'_, '_>,
    earlier: &[DestinationRule],
) -> Option<DestinationRule> {
    let ring_pools = section.take_list("ring_pools", pool_id).unwrap_or_default();
    let numbers = section.take_list("numbers", text(parse_e164)).unwrap_or_default();
    let repeated = { numbers.iter() }.find(|it| earlier.iter().any(|of| of.numbers.contains(*it)));
    if let Some(number) = repeated {
        section.fault("numbers", ValueError::new(format!("{number} already has a rule")));
    }
    let repeated =
        { ring_pools.iter() }.find(|it| earlier.iter().any(|of| of.ring_pools.contains(it)));
    if let Some(pool) = repeated {
        section.fault("ring_pools", ValueError::new(format!("pool {pool} already has a rule")));
    }
    let is_default = ring_pools.is_empty() && numbers.is_empty();
    if is_default && earlier.iter().any(|of| of.ring_pools.is_empty() && of.numbers.is_empty()) {
        let error = ValueError::new(
            "another rule with neither ring_pools nor numbers is already the default",
        );
        section.fault("to", error.hint("name ring_pools or numbers"));
    }
    let to = section.take_list("to", text(parse_target));
    section.miss("to", "write e.g. [\"+18005550199\"]");
    if to.as_ref().is_some_and(|to| to.is_empty() || to.len() > TARGETS_MAX) {
        section.fault("to", ValueError::new("must be one to ten destinations"));
    }
    let mut timeout = Duration::from_secs(30);
    section.set(&mut timeout, "timeout", duration(&limits::RING_TIMEOUT));
    let whisper = section.take("whisper", text(parse_whisper));
    let caller_id = section.take("caller_id", text(parse_e164));
    let hours = section.take_list("hours", text(parse_hours)).unwrap_or_default();
    let time_zone = section.take("time_zone", text(parse_time_zone));
    let closed = section.take_list("closed", text(parse_target)).unwrap_or_default();
    section.finish();
    Some(DestinationRule {
        ring_pools: ring_pools.into_iter().collect(),
        numbers: numbers.into_iter().collect(),
        to: to?,
        timeout,
        whisper,
        caller_id,
        hours,
        time_zone: time_zone.unwrap_or_else(|| "UTC".to_owned()),
        closed,
    })
}

fn parse_name(text: &str) -> Result<String, ValueError> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(ValueError::new("must be 1 to 40 letters, digits, _ and -"))
}

fn parse_provider(text: &str) -> Result<CallProvider, ValueError> {
    CallProvider::parse(text).map_err(ValueError::new)
}

/// Reads `https://HOST[:PORT][/PATH]` or `http://HOST[:PORT][/PATH]`.
fn parse_public_url(text: &str) -> Result<String, ValueError> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_plain = |b: u8| b.is_ascii_graphic() && !b"\"<>?#@\\".contains(&b);
    match rest {
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') && rest.bytes().all(is_plain) => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err(ValueError::new("must be a URL without user, query or fragment")
            .hint("write e.g. \"https://calls.example.com\"")),
    }
}

fn parse_e164(text: &str) -> Result<String, ValueError> {
    let digits = text.strip_prefix('+').unwrap_or_default();
    let is_number = (3..=15).contains(&digits.len())
        && digits.bytes().all(|b| b.is_ascii_digit())
        && !digits.starts_with('0');
    is_number.then(|| text.to_owned()).ok_or_else(|| {
        ValueError::new("must be + and 3 to 15 digits").hint("write e.g. \"+18005550199\"")
    })
}

/// Reads a number or a SIP address.
fn parse_target(text: &str) -> Result<String, ValueError> {
    let sip = text.strip_prefix("sip:").or_else(|| text.strip_prefix("sips:"));
    let is_plain = |b: u8| b.is_ascii_graphic() && !b"<>\"'&".contains(&b);
    match sip {
        Some(rest) if rest.len() <= 200 && rest.bytes().all(is_plain) && is_user_and_host(rest) => {
            Ok(text.to_owned())
        }
        Some(_) => Err(ValueError::new("must be a SIP address in printable ASCII")
            .hint("write e.g. \"sip:desk@pbx.example\"")),
        None => parse_e164(text),
    }
}

/// Whether `address` begins with a user (optional), a host, and a port (optional).
fn is_user_and_host(address: &str) -> bool {
    let (user, rest) = match address.split_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, address),
    };
    let place = rest.split([';', '?']).next().unwrap_or_default();
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    let is_host = if let Some(ip) = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        ip.parse::<Ipv6Addr>().is_ok()
    } else {
        let is_part = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        !host.is_empty() && host.bytes().all(is_part)
    };
    let is_port = |port: &str| !port.starts_with('+') && port.parse().is_ok_and(|it: u16| it > 0);
    user != Some("") && is_host && port.is_none_or(is_port)
}

/// Whether `text` is a valid destination of a call: a number (`+` and digits), or a SIP address.
#[must_use]
pub fn is_call_target(text: &str) -> bool {
    parse_target(text).is_ok()
}

fn parse_unknown(text: &str) -> Result<UnknownNumber, ValueError> {
    match text {
        "unavailable" => Ok(UnknownNumber::Unavailable),
        "reject" => Ok(UnknownNumber::Reject),
        "busy" => Ok(UnknownNumber::Busy),
        other => parse_target(other).map(UnknownNumber::Connect).map_err(|_| {
            ValueError::new("must be unavailable, reject, busy, a number or a SIP address")
        }),
    }
}

fn parse_whisper(text: &str) -> Result<String, ValueError> {
    if (1..=200).contains(&text.len()) && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(ValueError::new("must be 1 to 200 bytes on one line"))
}

fn parse_caller_ids(text: &str) -> Result<CallerIds, ValueError> {
    match text {
        "store" => Ok(CallerIds::Store),
        "hash" => Ok(CallerIds::Hash),
        "drop" => Ok(CallerIds::Drop),
        _ => Err(ValueError::new("must be store, hash or drop")),
    }
}

/// Reads the name of a time zone, such as `Europe/Berlin`. This machine must have data for the time
/// zone.
fn parse_time_zone(text: &str) -> Result<String, ValueError> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_+-/".contains(&b);
    if !(1..=60).contains(&text.len()) || !text.bytes().all(is_plain) {
        let error = ValueError::new("must be the name of a time zone");
        return Err(error.hint("write e.g. \"Europe/Berlin\""));
    }
    // UTC is the only time zone that requires no files on the machine.
    if text == "UTC" || TimeZone::get(text).is_ok() {
        return Ok(text.to_owned());
    }
    Err(ValueError::new(format!("there is no time zone {text} on this machine"))
        .hint("write e.g. \"Europe/Berlin\", or install the package tzdata"))
}

/// `mon-fri 09:00-17:30`, `sat 10:00-14:00`.
fn parse_hours(text: &str) -> Result<OpenHours, ValueError> {
    let read = || {
        let (days, times) = text.trim().split_once(' ')?;
        let (first, last) = days.split_once('-').unwrap_or((days, days));
        let (from, until) = times.trim().split_once('-')?;
        let minutes = (minute(from)?, minute(until)?);
        Some(OpenHours { days: (day(first)?, day(last)?), minutes })
    };
    let hours = read().ok_or_else(|| {
        ValueError::new("must be days and times").hint("write e.g. \"mon-fri 09:00-17:30\"")
    })?;
    if hours.minutes.0 < hours.minutes.1 {
        return Ok(hours);
    }
    Err(ValueError::new("must end later than it begins, on the same day").hint(
        "write two entries for hours that cross midnight, e.g. \"fri 22:00-24:00\" and \
         \"sat 00:00-02:00\"",
    ))
}

fn day(text: &str) -> Option<u8> {
    let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let place = days.iter().position(|day| day.eq_ignore_ascii_case(text))?;
    u8::try_from(place).ok()
}

fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
    let minute = hours.checked_mul(60)?.checked_add(minutes)?;
    (minutes < 60 && minute <= 24 * 60).then_some(minute)
}

/// `10.0.0.0/8`, or one address.
fn parse_network(text: &str) -> Result<(IpAddr, u8), ValueError> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let read = || {
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(most), |bits| bits.parse().ok())?;
        (bits <= most).then_some((address, bits))
    };
    read().ok_or_else(|| ValueError::new("must be a network").hint("write e.g. \"10.0.0.0/8\""))
}

#[cfg(test)]
mod tests;
