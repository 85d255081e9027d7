//! `Node` methods that set and read the states of this process's shards.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ringwell_core::Millis;

use super::Node;
use super::shard_state::{HistoryState, JournalState, ShardState, Trouble};
use crate::locks::lock;
use crate::platform::Moment;

impl Node {
    fn state(&self, shard: u16) -> Option<&ShardState> {
        self.shards.iter().find(|state| state.shard == shard)
    }

    /// Sets the state of `shard`'s journal.
    pub fn set_journal(&self, shard: u16, journal: JournalState) {
        if let Some(state) = self.state(shard) {
            state.journal.store(journal as u8, Ordering::Relaxed);
        }
    }

    /// Records that `shard`'s log has stored everything up to `group`.
    pub fn set_stored(&self, shard: u16, group: u64) {
        if let Some(state) = self.state(shard) {
            state.stored.store(group, Ordering::Relaxed);
        }
    }

    /// Returns the newest group that each shard's log has stored since startup; 0 if there is none.
    pub fn stored(&self) -> impl Iterator<Item = u64> {
        self.shards.iter().map(|state| state.stored.load(Ordering::Relaxed))
    }

    /// Records that `shard`'s journal stores nothing from `now` on, together with the journal's
    /// state and the reason.
    pub fn set_trouble(&self, shard: u16, journal: JournalState, reason: &str, now: Moment) {
        if let Some(state) = self.state(shard) {
            *lock(&state.trouble) = Trouble { since: now, reason: reason.to_owned() };
            self.set_journal(shard, journal);
        }
    }

    /// Returns the journals that store nothing now, with their states and the reasons.
    pub fn troubles(&self) -> impl Iterator<Item = (u16, JournalState, Trouble)> {
        let states = self.shards.iter().map(|state| (state, state.journal()));
        let troubled = states.filter(|(_, journal)| *journal != JournalState::Writing);
        troubled.map(|(state, journal)| (state.shard, journal, lock(&state.trouble).clone()))
    }

    /// Records that pools of `shard` are held. The longest of these holds lasts for `left` from
    /// `now` on.
    pub fn set_held(&self, shard: u16, left: Millis, now: Moment) {
        if let Some(state) = self.state(shard) {
            let now_ms = u64::try_from(now.0.as_millis()).unwrap_or(u64::MAX);
            let until_ms = if left.0 == 0 { 0 } else { now_ms.saturating_add(left.0) };
            state.held_until_ms.store(until_ms, Ordering::Relaxed);
        }
    }

    /// Returns the shards with held pools at `now`, and how long each shard's longest hold still
    /// lasts.
    pub fn held(&self, now: Moment) -> impl Iterator<Item = (u16, Duration)> {
        self.shards.iter().filter_map(move |state| {
            let until_ms = state.held_until_ms.load(Ordering::Relaxed);
            let until = Moment(Duration::from_millis(until_ms));
            (until > now).then(|| (state.shard, until.since(now)))
        })
    }

    /// Sets the state of `shard`'s history.
    pub fn set_history(&self, shard: u16, history: HistoryState) {
        if let Some(state) = self.state(shard) {
            state.history.store(history as u8, Ordering::Relaxed);
        }
    }

    /// Returns the state of each shard's history, in shard order.
    pub fn histories(&self) -> impl Iterator<Item = HistoryState> {
        self.shards.iter().map(ShardState::history)
    }

    /// Returns this process's shards, in ascending order.
    pub fn shards(&self) -> impl Iterator<Item = u16> {
        self.shards.iter().map(|state| state.shard)
    }

    /// Returns the state of each shard's journal.
    pub fn journals(&self) -> impl Iterator<Item = (u16, JournalState)> {
        self.shards.iter().map(|state| (state.shard, state.journal()))
    }
}
