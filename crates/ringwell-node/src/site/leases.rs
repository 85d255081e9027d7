//! The numbers of visitors who have not yet shown that they are people, and the limits on new
//! numbers for each network.
//!
//! All threads share this state. It consists of counts and deadlines. The caller supplies the
//! current time. If this state is lost, for example in a restart, the numbers merely stay locked
//! until their lockouts end. Invariant: each visitor whose first keep-alive is still expected has
//! exactly one deadline.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ringwell_config::Site;
use ringwell_core::{Millis, PromoNumber};

use super::token::Visitor;

/// The time that a visitor keeps a number without a keep-alive: one interval between keep-alives,
/// plus 15 seconds for network delays.
pub(super) const PROVISIONAL: Duration = Duration::from_secs(BEAT_S + 15);
/// The interval between two keep-alives from a page, in seconds.
pub(super) const BEAT_S: u64 = Site::BEAT.0 / 1000;
/// The maximum number of visitors whose first keep-alive is still expected. When this limit is
/// reached, new visitors see the pages' own numbers.
const PROVISIONAL_MAX: usize = 100_000;
/// The maximum number of networks that are counted in one minute, summed over all sites. When this
/// limit is reached, new visitors from other networks see the pages' own numbers.
const ADDRESSES_MAX: usize = 200_000;
/// The period to which the limits apply.
const WINDOW: Duration = Duration::from_mins(1);

/// A number, and the time when the visitor got it.
pub(super) type GivenNumber = (PromoNumber, Millis);

/// A number whose visitor must show that they are a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeasedNumber {
    pub(super) number: PromoNumber,
    pub(super) allocated_at: Millis,
    /// The time at which the number was last returned to a page that this visitor had just opened.
    pub(super) seen_at: Millis,
}

/// The network prefix of an address: /24 for IPv4, or /56 for IPv6. A client on a Unix socket has
/// no prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Network(Option<[u8; 7]>, bool);

impl Network {
    pub(super) fn of(address: Option<IpAddr>) -> Self {
        match address.map(|address| address.to_canonical()) {
            None => Self(None, false),
            Some(IpAddr::V4(v4)) => {
                let [a, b, c, _] = v4.octets();
                Self(Some([a, b, c, 0, 0, 0, 0]), false)
            }
            Some(IpAddr::V6(v6)) => {
                let mut prefix = [0; 7];
                prefix.copy_from_slice(&v6.octets()[..7]);
                Self(Some(prefix), true)
            }
        }
    }
}

/// The state described in the module's comment.
#[derive(Debug, Default)]
pub(super) struct Leases {
    waiting: HashMap<Visitor, (Instant, Vec<LeasedNumber>)>,
    /// The visitors who must still show that they are people, sorted by their deadlines.
    ends: BTreeSet<(Instant, Visitor)>,
    /// Visitors whose numbers are being released. Their requests wait until the release is
    /// complete, because otherwise the requests could overtake the release.
    ending: HashSet<Visitor>,
    /// The count of new numbers in the current minute, by site and network.
    taken: HashMap<(String, Network), u32>,
    window_began: Option<Instant>,
}

impl Leases {
    /// Counts `wanted` new numbers for a site's visitors from one network. Returns `false`, and
    /// counts nothing, if the network would get more than `most` new numbers in this minute, or if
    /// another limit is reached.
    pub(super) fn take(
        &mut self,
        now: Instant,
        (site, network): (&str, Network),
        (wanted, most): (u32, u32),
    ) -> bool {
        if self.window_began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            self.window_began = Some(now);
            self.taken.clear();
        }
        let of = (site.to_owned(), network);
        if self.waiting.len() >= PROVISIONAL_MAX
            || (self.taken.len() >= ADDRESSES_MAX && !self.taken.contains_key(&of))
        {
            return false;
        }
        let taken = self.taken.entry(of).or_default();
        let is_free = taken.saturating_add(wanted) <= most;
        if is_free {
            *taken += wanted;
        }
        is_free
    }

    /// Records that numbers were given to a visitor who must still show that they are a person.
    pub(super) fn wait(&mut self, now: Instant, visitor: Visitor, held: &[GivenNumber]) {
        let lease =
            |&(number, at): &GivenNumber| LeasedNumber { number, allocated_at: at, seen_at: at };
        let held = held.iter().map(lease).collect();
        self.waiting.insert(visitor, (now, held));
        self.wait_on(now, visitor);
    }

    /// Extends the deadline of a visitor who opens another page, if the visitor is still
    /// unconfirmed. Returns `false` if the visitor's numbers are being released.
    pub(super) fn wait_on(&mut self, now: Instant, visitor: Visitor) -> bool {
        if let Some((end, _)) = self.waiting.get_mut(&visitor) {
            self.ends.remove(&(*end, visitor));
            *end = now + PROVISIONAL;
            self.ends.insert((*end, visitor));
        }
        !self.ending.contains(&visitor)
    }

    /// Records that these numbers were also given to another page of an unconfirmed visitor.
    pub(super) fn seen(&mut self, visitor: Visitor, given: &[GivenNumber]) {
        let Some((_, held)) = self.waiting.get_mut(&visitor) else { return };
        for lease in held {
            if let Some((_, at)) = given.iter().find(|(number, _)| *number == lease.number) {
                lease.seen_at = *at;
            }
        }
    }

    /// Records that the visitor is a person. The visitor therefore keeps the numbers for the whole
    /// lifetime. Returns `false` if the visitor's numbers are being released.
    pub(super) fn keep(&mut self, visitor: Visitor) -> bool {
        if let Some((end, _)) = self.waiting.remove(&visitor) {
            self.ends.remove(&(end, visitor));
        }
        !self.ending.contains(&visitor)
    }

    /// Removes the visitors who were not confirmed in time, and returns their numbers. The caller
    /// must release these numbers, and then call [`Leases::released`].
    pub(super) fn ended(&mut self, now: Instant) -> Vec<LeasedNumber> {
        let mut ended = Vec::new();
        while self.ends.first().is_some_and(|(end, _)| *end <= now) {
            let Some((_, visitor)) = self.ends.pop_first() else { break };
            self.ending.insert(visitor);
            ended.extend(self.waiting.remove(&visitor).into_iter().flat_map(|(_, held)| held));
        }
        ended
    }

    /// Records that the numbers from [`Leases::ended`] have been released.
    pub(super) fn released(&mut self) {
        self.ending.clear();
    }

    /// Returns the number of visitors who are not yet confirmed.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(number: u64) -> GivenNumber {
        (PromoNumber::from_e164(number).unwrap(), Millis(1))
    }

    fn held(number: u64) -> LeasedNumber {
        let (number, at) = given(number);
        LeasedNumber { number, allocated_at: at, seen_at: at }
    }

    #[test]
    fn a_number_without_a_sign_of_life_ends_after_the_first_beat_and_a_kept_one_does_not() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        leases.wait(now, Visitor([1; 16]), &[given(18_885_550_100)]);
        leases.wait(now, Visitor([2; 16]), &[given(18_885_550_101)]);
        assert!(leases.keep(Visitor([1; 16])));
        assert_eq!((leases.waiting(), leases.ends.len()), (1, 1));
        assert!(leases.ended(now + Duration::from_secs(BEAT_S + 10)).is_empty());
        assert_eq!(leases.ended(now + PROVISIONAL), [held(18_885_550_101)]);
        assert!(!leases.keep(Visitor([2; 16])) && !leases.wait_on(now, Visitor([2; 16])));
        leases.released();
        assert!(leases.keep(Visitor([2; 16])));
        assert!(leases.ended(now + 2 * PROVISIONAL).is_empty());
        assert_eq!((leases.waiting(), leases.ends.len()), (0, 0));
    }

    #[test]
    fn a_second_page_restarts_the_time_and_leaves_no_trace() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        let (visitor, half) = (Visitor([1; 16]), now + PROVISIONAL / 2);
        leases.wait_on(now, visitor);
        assert_eq!(leases.waiting(), 0, "a confirmed visitor is not waited for again");
        leases.wait(now, visitor, &[given(18_885_550_100)]);
        for _ in 0..1000 {
            leases.wait_on(half, visitor);
        }
        assert_eq!(leases.ends.len(), 1);
        assert!(leases.ended(now + PROVISIONAL).is_empty());
        let (number, seen_at) = (given(18_885_550_100).0, Millis(7));
        leases.seen(visitor, &[(number, seen_at)]);
        let lease = LeasedNumber { seen_at, ..held(18_885_550_100) };
        assert_eq!(leases.ended(half + PROVISIONAL), [lease]);
    }

    #[test]
    fn neighbours_share_a_limit_that_restarts_each_minute() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        let of = |address: &str| ("pk_shop", Network::of(Some(address.parse().unwrap())));
        for host in 0..60 {
            assert!(leases.take(now, of(&format!("192.0.2.{host}")), (1, 60)));
        }
        assert!(!leases.take(now, of("192.0.2.99"), (1, 60)));
        assert!(leases.take(now, of("192.0.3.99"), (1, 60)));
        assert!(!leases.take(now, of("::ffff:192.0.2.7"), (1, 60)), "the same address, mapped");
        assert!(leases.take(now, ("pk_blog", of("192.0.2.99").1), (1, 60)), "another site");
        assert!(leases.take(now + WINDOW, of("192.0.2.99"), (1, 60)));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:ff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:100::1"));
    }
}
