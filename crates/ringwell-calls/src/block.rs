//! The list of blocked callers, whose calls are not connected.
//!
//! An entry matches a number, all numbers with a prefix, a SIP address, or all withheld numbers. It
//! applies to one pool or to all pools. This module does not use the database. Source:
//! docs/spec/calls.md, "Blocked callers".

use std::collections::HashMap;

use ringwell_core::Millis;

use crate::attribution::Serving;
use crate::caller::{COMPLETE_DIGITS_MIN, Caller};
use crate::provider::Refusal;

/// The maximum number of entries in the list.
pub const BLOCKS_MAX: usize = 10_000;
/// The maximum length of a note.
pub const NOTE_BYTES_MAX: usize = 200;
/// The pattern that matches callers without a number.
const WITHHELD: &str = "withheld";
/// The maximum number of digits in a number.
const DIGITS_MAX: usize = 15;
/// A prefix with fewer digits matches all callers of a large country, or of several.
const NARROW_DIGITS_MIN: usize = 3;

/// A pattern that callers are compared with, in its stored form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern(String);

/// An entry in the list of blocked callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The pattern of the callers to block.
    pub caller: Pattern,
    /// The pool whose numbers the entry applies to. `None` for all pools.
    pub pool: Option<u64>,
    /// The answer to a blocked caller.
    pub answer: Refusal,
    /// A note for people.
    pub note: Option<String>,
}

/// A stored entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRow {
    /// The entry's id. It is random, because it is stored with calls and must not reveal the
    /// caller.
    pub id: String,
    /// The callers to block, and the answer to them.
    pub block: Block,
    /// The time at which the entry was created.
    pub created_at: Millis,
}

/// All entries, indexed by pattern.
#[derive(Clone, Debug, Default)]
pub struct Blocks(HashMap<Pattern, Vec<BlockRow>>);

impl Pattern {
    /// Parses a pattern: `+14155551234`, `+1415*`, `sip:name@host` or `withheld`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text == WITHHELD {
            return Some(Self(text.to_owned()));
        }
        if let Some(digits) = text.strip_prefix('+').and_then(|rest| rest.strip_suffix('*')) {
            let are_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
            let fits = (1..=DIGITS_MAX).contains(&digits.len()) && !digits.starts_with('0');
            return (are_digits && fits).then(|| Self(text.to_owned()));
        }
        match Caller::read(text) {
            Caller::E164(number) if text.starts_with('+') => Some(Self(number)),
            Caller::Sip(address) => Some(Self(address)),
            Caller::E164(_) | Caller::Withheld | Caller::Hash(_) => None,
        }
    }

    /// Whether the pattern matches so many callers that it may be a mistake.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        // The text also contains `+` and `*`.
        self.0.ends_with('*') && self.0.len() < NARROW_DIGITS_MIN + 2
    }

    /// The pattern as text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Every pattern that matches `caller`, most specific first.
    fn all_of(caller: &Caller) -> Vec<Self> {
        match caller {
            Caller::Withheld => vec![Self(WITHHELD.to_owned())],
            Caller::Sip(address) => vec![Self(address.clone())],
            // A short number has no country code or area code.
            Caller::E164(number) if number.len() <= COMPLETE_DIGITS_MIN => {
                vec![Self(number.clone())]
            }
            Caller::E164(number) => {
                let prefixes = (2..=number.len()).rev().map(|to| format!("{}*", &number[..to]));
                [number.clone()].into_iter().chain(prefixes).map(Self).collect()
            }
            Caller::Hash(_) => Vec::new(),
        }
    }
}

impl Blocks {
    /// Creates a list of `entries`.
    #[must_use]
    pub fn new(entries: Vec<BlockRow>) -> Self {
        let mut all: HashMap<Pattern, Vec<BlockRow>> = HashMap::new();
        for entry in entries {
            all.entry(entry.block.caller.clone()).or_default().push(entry);
        }
        Self(all)
    }

    /// Returns the entry that blocks a call from `caller` to a number of the pools `serving`. If
    /// several entries match, prefers the most specific pattern, then an entry for one pool over an
    /// entry for all pools.
    #[must_use]
    pub fn find(&self, caller: &Caller, serving: &[Serving]) -> Option<&BlockRow> {
        if self.0.is_empty() {
            return None;
        }
        let is_about = |entry: &BlockRow| {
            entry.block.pool.is_none_or(|pool| serving.iter().any(|it| it.pool.0 == pool))
        };
        Pattern::all_of(caller).iter().find_map(|pattern| {
            let entries = self.0.get(pattern)?.iter().filter(|entry| is_about(entry));
            entries.max_by_key(|entry| entry.block.pool.is_some())
        })
    }
}

impl Refusal {
    /// The name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rejected => "reject",
            Self::Busy => "busy",
        }
    }

    /// Parses the name in the API.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Rejected, Self::Busy].into_iter().find(|it| it.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use ringwell_core::PoolId;

    use super::*;

    fn block(caller: &str, pool: Option<u64>, answer: Refusal) -> BlockRow {
        let block = Block { caller: Pattern::parse(caller).unwrap(), pool, answer, note: None };
        BlockRow { id: String::new(), block, created_at: Millis::ZERO }
    }

    #[test]
    fn the_most_exact_entry_wins_and_among_equals_the_one_for_the_pool() {
        let blocks = Blocks::new(vec![
            block("+1415*", None, Refusal::Busy),
            block("+14155551234", Some(16), Refusal::Rejected),
            block("+14155551234", None, Refusal::Busy),
            block("withheld", Some(7), Refusal::Rejected),
            block("sip:robot@pbx.example", None, Refusal::Rejected),
        ]);
        let found = |caller: &str, pool: u64| {
            let serving = Serving { pool: PoolId(pool), name: None, is_overflow: false };
            let found = blocks.find(&Caller::read(caller), &[serving]);
            found.map(|it| (it.block.caller.text().to_owned(), it.block.answer))
        };
        let exact = "+14155551234".to_owned();
        assert_eq!(found("+14155551234", 16), Some((exact.clone(), Refusal::Rejected)));
        assert_eq!(found("(415) 555-1234", 7), Some((exact, Refusal::Busy)));
        assert_eq!(found("+14155550000", 7), Some(("+1415*".to_owned(), Refusal::Busy)));
        assert_eq!(found("+14165551234", 7), None);
        assert_eq!(found("anonymous", 16), None);
        assert!(found("anonymous", 7).is_some() && found("sip:robot@pbx.example", 1).is_some());
        for caller in [
            "\"Robot\" <sip:robot@pbx.example>",
            "<sip:robot@PBX.example:5060;transport=udp>;tag=1",
            "sip:robot@pbx.example:5060",
        ] {
            assert!(found(caller, 1).is_some(), "{caller}");
        }
        assert_eq!(found("sip:robot@pbx.example.org", 1), None);
        let blocks = Blocks::new(
            ["+66341", "+7*", "sip:7001@pbx-a"].map(|it| block(it, None, Refusal::Busy)).into(),
        );
        let found = |caller: &str| blocks.find(&Caller::read(caller), &[]).is_some();
        for caller in ["66341", "sip:7001@PBX-A:5060", "sip:7001:pw@pbx-a", "+79161234567"] {
            assert!(found(caller), "{caller}");
        }
        // A prefix matches complete numbers, but not extensions or services' short numbers.
        for caller in ["66342", "7001", "sip:7001@pbx-b", "sip:7001@pbx-a.example"] {
            assert!(!found(caller), "{caller}");
        }
        assert_eq!(Blocks::default().find(&Caller::Withheld, &[]), None);
    }

    #[test]
    fn an_entry_that_matches_no_caller_is_invalid() {
        for text in [
            "",
            "*",
            "+*",
            "+0*",
            "1415*",
            "4155551234",
            "+1415**",
            "+1 415*",
            "bob",
            "66341",
            "+14",
            "+12345678901234567*",
        ] {
            assert_eq!(Pattern::parse(text), None, "{text}");
        }
        // The call log shows a service's short number in this form.
        assert_eq!(Pattern::parse("+66341").unwrap().text(), "+66341");
        assert_eq!(Pattern::parse(" +1 (415) 555-1234 ").unwrap().text(), "+14155551234");
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics_and_accepted_text_reads_back_as_the_same_entry(text in "\\PC{0,40}") {
            if let Some(pattern) = Pattern::parse(&text) {
                proptest::prop_assert_eq!(Pattern::parse(pattern.text()), Some(pattern));
            }
        }
    }
}
