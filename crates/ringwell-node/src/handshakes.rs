//! The TLS handshakes that are in progress at a listener. Their number is limited, so that clients
//! cannot use up memory by never finishing their handshakes.
//!
//! If the maximum is reached when a new handshake begins, the address with the most handshakes
//! loses its oldest one. If the new client has that address itself, the new client is refused
//! instead.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use tokio::task::AbortHandle;

/// The maximum number of handshakes that may be in progress at one shard's listener.
const HANDSHAKES_MAX: usize = 256;

/// The part of an IPv6 address that a client cannot choose: the network prefix.
const NETWORK: u128 = u128::MAX << 64;

/// The handshakes of a listener.
#[derive(Debug, Default)]
pub(crate) struct Handshakes(RefCell<Open>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// The address of each handshake, and its task once the task has begun. Oldest first.
    all: BTreeMap<u64, (IpAddr, Option<AbortHandle>)>,
}

/// The place of one handshake. It is freed when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    handshakes: Rc<Handshakes>,
    number: u64,
}

impl Handshakes {
    /// Takes a place for a handshake with a client at this address, if a place is free or can be
    /// freed.
    pub(crate) fn begin(self: &Rc<Self>, address: IpAddr) -> Option<Place> {
        let address = network(address);
        let open = &mut *self.0.borrow_mut();
        if open.all.len() >= HANDSHAKES_MAX {
            let oldest = open.oldest_of_most(address)?;
            if let Some((_, Some(task))) = open.all.remove(&oldest) {
                task.abort();
            }
        }
        let number = open.next;
        open.next += 1;
        open.all.insert(number, (address, None));
        Some(Place { handshakes: Rc::clone(self), number })
    }

    /// Records the task of a handshake, so that the task can be ended if its place is needed.
    pub(crate) fn note(&self, number: u64, task: AbortHandle) {
        if let Some((_, known)) = self.0.borrow_mut().all.get_mut(&number) {
            *known = Some(task);
        }
    }
}

impl Place {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.handshakes.0.borrow_mut().all.remove(&self.number);
    }
}

impl Open {
    /// Returns the oldest handshake of the address with the most handshakes; `None` if `newcomer`
    /// has as many.
    fn oldest_of_most(&self, newcomer: IpAddr) -> Option<u64> {
        let mut of: BTreeMap<IpAddr, (usize, u64)> = BTreeMap::new();
        for (number, (address, _)) in &self.all {
            of.entry(*address).or_insert((0, *number)).0 += 1;
        }
        let own = of.get(&newcomer).map_or(0, |(count, _)| *count);
        let most = of.values().max_by_key(|(count, oldest)| (*count, u64::MAX - *oldest));
        most.filter(|(count, _)| *count > own).map(|(_, oldest)| *oldest)
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_the_places_of_others() {
        let handshakes = Rc::new(Handshakes::default());
        let [crowd, neighbour, client] =
            ["10.0.0.1", "2001:db8::1", "10.0.0.2"].map(|it| it.parse::<IpAddr>().unwrap());
        let begin = |address| handshakes.begin(address);
        let mut places: Vec<_> = (1..HANDSHAKES_MAX).filter_map(|_| begin(crowd)).collect();
        places.extend(begin(neighbour));
        assert_eq!(places.len(), HANDSHAKES_MAX);
        assert!(begin(crowd).is_none(), "it has the most");
        let first = begin(client).expect("the crowd's oldest makes room");
        assert!(!handshakes.0.borrow().all.contains_key(&0));
        assert!(begin("2001:db8::2".parse().unwrap()).is_some(), "of the same network");
        drop(first);
        drop(places);
        assert!(handshakes.0.borrow().all.is_empty());
    }
}
