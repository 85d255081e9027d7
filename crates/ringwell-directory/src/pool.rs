//! Ring pools in the directory.
//!
//! Owns the rules for one pool; the rules across pools are in `check.rs`. Independent of files,
//! shards and free numbers. Invariant: a [`RingPool`] satisfies every rule of [`PoolFields`].

use std::sync::Arc;

use ringwell_core::{Millis, NumberRange, PoolId, PoolSpec, PromoNumber};

use crate::RingPoolKey;

/// The fields of a ring pool, not yet checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFields {
    /// The id in the published API.
    pub id: PoolId,
    /// Its display name. Whitespace around it is removed.
    pub name: Option<String>,
    /// The key that requests must contain.
    pub key: RingPoolKey,
    /// A second key, which is also valid, so that clients can switch from one key to the other.
    pub next_key: Option<RingPoolKey>,
    /// The guaranteed lifetime of an allocation: 1 ms to 400 days.
    pub lifetime: Millis,
    /// The numbers in rotation: at most 100,000, without duplicates. A pool that waits for its
    /// numbers has none ([`RingPool::waiting`]).
    pub numbers: Vec<NumberRange>,
    /// The number that is handed out when no number in rotation is free. `None` forbids overflow.
    pub overflow: Option<PromoNumber>,
    /// The base of tracking URLs; without it, tracking URLs are empty.
    pub tracking: Option<Arc<Tracking>>,
}

/// The base of an allocation's tracking URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracking {
    /// The URL that counts a click, for example `http://example.org/c/1/16-2-3`.
    pub base_url: String,
    /// The landing page's URL; the number is added to it.
    pub destination_url: String,
}

impl Tracking {
    /// Whether `text` can be one of the URLs.
    #[must_use]
    pub fn is_url(text: &str) -> bool {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'<' | b'>' | b'\\');
        text.len() <= RingPool::URL_BYTES_MAX
            && text.bytes().all(plain)
            && rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
    }
}

/// A ring pool that satisfies every rule of [`PoolFields`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingPool(PoolFields);

/// A violation of one of the rules for a single pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolFault {
    /// The lifetime is too short or too long.
    #[error("must be at least 1 ms and at most 400 days")]
    Lifetime,
    /// There are no numbers, or too many.
    #[error("must be 1 to 100,000 numbers, not {0}")]
    NumberCount(u64),
    /// One number is in two of the pool's ranges.
    #[error("{0} occurs twice")]
    NumberTwice(PromoNumber),
    /// The overflow number is in the pool's own rotation.
    #[error(
        "{0} is also in the pool's rotation, so calls to it would be attributed to one visitor"
    )]
    OverflowInRotation(PromoNumber),
    /// The two keys are equal.
    #[error("is the same as ring_pool_key")]
    SameKey,
    /// Not a URL.
    #[error("must be a URL that starts with http:// or https://, of at most 2,048 bytes")]
    BaseUrl,
    /// Not a URL.
    #[error("must be a URL that starts with http:// or https://, of at most 2,048 bytes")]
    DestinationUrl,
}

impl PoolFault {
    /// The configuration field that breaks the rule.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Lifetime => "lifetime",
            Self::NumberCount(_) | Self::NumberTwice(_) => "numbers",
            Self::OverflowInRotation(_) => "overflow_number",
            Self::SameKey => "next_ring_pool_key",
            Self::BaseUrl => "tracking_url",
            Self::DestinationUrl => "destination_url",
        }
    }

    /// A hint with a correct example, if there is one.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Lifetime => Some("write e.g. \"30m\""),
            Self::NumberCount(_) => Some("write e.g. [\"8885550100-8885550149\"]"),
            Self::BaseUrl => Some("write e.g. \"http://example.org/c/1/16-2-3\""),
            Self::DestinationUrl => Some("write e.g. \"https://example.org/landing\""),
            Self::NumberTwice(_) | Self::OverflowInRotation(_) | Self::SameKey => None,
        }
    }
}

impl RingPool {
    /// The longest lifetime: 400 days.
    pub const LIFETIME_MAX: Millis = Millis(400 * 24 * 60 * 60 * 1000);
    /// The maximum count of numbers in one pool: ten times the largest pool size that has been
    /// publicly reported.
    pub const NUMBERS_MAX: u64 = 100_000;
    const URL_BYTES_MAX: usize = 2048;

    /// Checks the rules that concern only one pool.
    ///
    /// # Errors
    /// Every rule that `fields` breaks, in the order of the fields.
    pub fn new(fields: PoolFields) -> Result<Self, Vec<PoolFault>> {
        let is_empty = fields.numbers.is_empty();
        match Self::waiting(fields) {
            Ok(_) if is_empty => Err(vec![PoolFault::NumberCount(0)]),
            Err(mut faults) if is_empty => {
                faults.push(PoolFault::NumberCount(0));
                Err(faults)
            }
            checked => checked,
        }
    }

    /// Like [`RingPool::new`], but the pool may have no numbers in rotation yet. Until it has
    /// numbers, its rows get the overflow number.
    ///
    /// # Errors
    /// The same as for [`RingPool::new`].
    pub fn waiting(mut fields: PoolFields) -> Result<Self, Vec<PoolFault>> {
        fields.name = fields.name.map(|name| name.trim().to_owned());
        let mut faults = Vec::new();
        if fields.next_key.as_ref() == Some(&fields.key) {
            faults.push(PoolFault::SameKey);
        }
        if fields.lifetime == Millis::ZERO || fields.lifetime > Self::LIFETIME_MAX {
            faults.push(PoolFault::Lifetime);
        }
        let count = count(&fields.numbers);
        if count > Self::NUMBERS_MAX {
            faults.push(PoolFault::NumberCount(count));
        }
        faults.extend(number_twice(&fields.numbers).map(PoolFault::NumberTwice));
        if let Some(overflow) = fields.overflow
            && fields.numbers.iter().any(|range| range.contains(overflow))
        {
            faults.push(PoolFault::OverflowInRotation(overflow));
        }
        if let Some(tracking) = &fields.tracking {
            if !Tracking::is_url(&tracking.base_url) {
                faults.push(PoolFault::BaseUrl);
            }
            if !Tracking::is_url(&tracking.destination_url) {
                faults.push(PoolFault::DestinationUrl);
            }
        }
        if faults.is_empty() { Ok(Self(fields)) } else { Err(faults) }
    }

    /// All fields of the pool.
    #[must_use]
    pub const fn fields(&self) -> &PoolFields {
        &self.0
    }

    /// The id in the published API.
    #[must_use]
    pub const fn id(&self) -> PoolId {
        self.0.id
    }

    /// Its display name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// The key that requests must contain.
    #[must_use]
    pub const fn key(&self) -> &RingPoolKey {
        &self.0.key
    }

    /// The second valid key, if keys are being rotated.
    #[must_use]
    pub const fn next_key(&self) -> Option<&RingPoolKey> {
        self.0.next_key.as_ref()
    }

    /// The guaranteed lifetime of an allocation.
    #[must_use]
    pub const fn lifetime(&self) -> Millis {
        self.0.lifetime
    }

    /// The numbers in rotation, as ranges in the order given.
    #[must_use]
    pub fn numbers(&self) -> &[NumberRange] {
        &self.0.numbers
    }

    /// The count of numbers in rotation.
    #[must_use]
    pub fn number_count(&self) -> u64 {
        count(&self.0.numbers)
    }

    /// The number that is handed out when no other is free; `None` forbids overflow.
    #[must_use]
    pub const fn overflow(&self) -> Option<PromoNumber> {
        self.0.overflow
    }

    /// The base of tracking URLs.
    #[must_use]
    pub const fn tracking(&self) -> Option<&Arc<Tracking>> {
        self.0.tracking.as_ref()
    }

    /// The same pool without its overflow number.
    #[must_use]
    pub fn without_overflow(&self) -> Self {
        Self(PoolFields { overflow: None, ..self.0.clone() })
    }

    /// The part of the pool that its shard needs. Its lockout is the lifetime, which a server
    /// lengthens to allow for inexact clocks.
    #[must_use]
    pub fn spec(&self) -> PoolSpec {
        PoolSpec { id: self.id(), lockout: self.lifetime(), numbers: self.0.numbers.clone() }
    }
}

fn count(ranges: &[NumberRange]) -> u64 {
    ranges.iter().map(|range| u64::from(range.count())).sum()
}

/// Returns a number that is in two of `ranges`.
fn number_twice(ranges: &[NumberRange]) -> Option<PromoNumber> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.first());
    let mut pairs = sorted.windows(2);
    pairs.find(|pair| pair[0].last() >= pair[1].first()).map(|pair| pair[1].first())
}

#[cfg(test)]
mod tests;
