//! Judges the answers that clients see. The judge shares no code with the rules that it judges.
//!
//! It receives each number that an owner hands out, each answer that is sent, and the state of each
//! process that begins to serve. True time is the time of visitors, in microseconds. Shard time is
//! the time of owners, in milliseconds. Source: docs/spec/simulation.md, "A log shared by
//! machines".

use std::collections::{BTreeMap, BTreeSet};

use super::fault::Loss;
use super::servers::{Incarnation, Servers};
use crate::message::RowAnswer;
use crate::model::{Judged, LENGTHENED_MS, Shown, Violation};

/// The most that shard time may gain on true time between two take-overs. Shard time approaches the
/// wall clock at a rate of one part in 2,000.
const SLEWED_MS: i64 = 150;

/// A number that an owner has given to a row, regardless of whether the answer is ever sent.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) process: u64,
    pub(super) batch: u64,
    pub(super) row: u16,
    pub(super) shard: u16,
    pub(super) pool: u64,
    pub(super) number: u64,
    pub(super) true_us: u64,
    pub(super) at_ms: u64,
    /// The group that contains the grant's record.
    pub(super) group: u64,
    pub(super) params: String,
}

/// A number that a visitor has seen.
#[derive(Clone, Debug)]
pub(super) struct SeenNumber {
    pub(super) grant: Grant,
    /// The time before which no other visitor may get the number.
    pub(super) until_us: u64,
    /// Whether the servers have lost the number's record. In this case, only a hold keeps the
    /// number from other visitors, and no look-up finds its visitor.
    pub(super) is_lost: bool,
    /// Whether the record may have been copied to the end of the log and lost there.
    may_be_gone: bool,
}

/// One shard of a process that begins to serve.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each field is an independent fact")]
pub(super) struct Begun {
    pub(super) shard: u16,
    pub(super) author: Incarnation,
    /// The first group that this process wrote.
    pub(super) first_n: u64,
    /// Each number, with the time of its allocation and the end of its lockout.
    pub(super) numbers: BTreeMap<u64, (u64, u64)>,
    /// The time until which all pools are held.
    pub(super) held_until_ms: u64,
    /// Whether the process assumes that answered allocations are missing.
    pub(super) is_in_doubt: bool,
    /// Whether the process can detect that the servers have lost messages: from the files of its
    /// machine, from the snapshots, or from heartbeats that it received.
    pub(super) has_evidence: bool,
    /// Whether the servers have ever lost messages of this shard.
    pub(super) has_lost: bool,
    /// Whether the process is still the owner according to the log.
    pub(super) is_owner: bool,
    /// The number of take-overs that the log has ever stored.
    pub(super) take_overs: u64,
    /// The shard time of the newest record that an earlier process wrote.
    pub(super) last_at_ms: u64,
    /// Whether the process has the previous owner's shard time: from a heartbeat, or because that
    /// owner has run on this machine since the last boot.
    pub(super) knows_time: bool,
    pub(super) now_ms: u64,
    pub(super) now_us: u64,
}

/// The judge of a run.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// The grants by process, batch and row.
    granted: BTreeMap<(u64, u64, u16), Grant>,
    /// For each number, the allocations that visitors have seen, in the order of the answers.
    pub(super) held: BTreeMap<u64, Vec<SeenNumber>>,
    /// The true time of the newest grant of each number, whether or not its answer was ever sent.
    newest_us: BTreeMap<u64, u64>,
    /// The author that each process names in its messages, by process and shard.
    authors: BTreeMap<(u64, u16), Incarnation>,
    /// The pools with their lifetimes.
    pub(super) lifetimes_ms: BTreeMap<u64, u64>,
    /// The newest owner of each shard, and the difference between the owner's shard time and true
    /// time.
    offsets_ms: BTreeMap<u16, (u64, i64)>,
    /// The processes that regained a shard because the servers lost messages, each with the first
    /// lost group. If such a process never detected the owner that followed it, it has no evidence
    /// of the loss.
    unaware: BTreeMap<(u64, u16), u64>,
    /// The starts of processes without a reliable time: the shard, the first group of the process,
    /// and how far shard time has leapt.
    leaps_us: Vec<(u16, u64, u64)>,
    /// For each shard, the number of take-overs until each start, by the true time of the start.
    take_overs: BTreeMap<u16, BTreeMap<u64, u64>>,
    /// The smallest and the largest difference between shard time and true time at any start.
    offset_range_ms: Option<(i64, i64)>,
    /// For each shard, the end of its hold at its last start, and the number of take-overs until
    /// then.
    holds_ms: BTreeMap<u16, (u64, u64)>,
    /// Shards that have handed out no number since their streams were deleted. Every start of such
    /// a shard must detect the loss.
    deleted: BTreeSet<u16>,
    pub(super) rows: u64,
    pub(super) numbers: u64,
    /// Whether every row must get a number from now on.
    pub(super) must_serve: bool,
    pub(super) served: u64,
}

fn broken(rule: &'static str, shard: u16, number: u64, text: String) -> Judged {
    Err(Violation { rule, text, number, shard })
}

impl Judge {
    pub(super) fn granted(&mut self, grant: Grant) {
        let newest = self.newest_us.entry(grant.number).or_default();
        *newest = (*newest).max(grant.true_us);
        self.granted.insert((grant.process, grant.batch, grant.row), grant);
    }

    /// Judges the answer to a row when the answer leaves a process.
    pub(super) fn answered(
        &mut self,
        servers: &Servers,
        (process, batch, row): (u64, u64, u16),
        answer: RowAnswer,
        now_us: u64,
    ) -> Judged {
        self.rows += 1;
        match answer.shown {
            Shown::Number(number) => {
                let Some(grant) = self.granted.get(&(process, batch, row)).cloned() else {
                    let text = format!("no owner handed out the number to batch {batch} row {row}");
                    return broken("phantom", 0, number, text);
                };
                if grant.number != number {
                    let text =
                        format!("batch {batch} row {row} should have received {}", grant.number);
                    return broken("phantom", grant.shard, number, text);
                }
                self.numbers += 1;
                self.deleted.remove(&grant.shard);
                self.served += u64::from(self.must_serve);
                self.check_stored(servers, &grant)?;
                self.check_double(&grant, now_us)?;
                let lifetime_ms = self.lifetimes_ms.get(&grant.pool).copied().unwrap_or(0);
                let later = self
                    .leaps_us
                    .iter()
                    .filter(|(shard, first_n, _)| *shard == grant.shard && grant.group < *first_n);
                let leapt_us: u64 = later.map(|(.., ahead_us)| ahead_us).sum();
                let until_us = (grant.true_us + lifetime_ms * 1000).saturating_sub(leapt_us);
                let is_lost = self.is_lost(servers, &grant);
                self.held.entry(number).or_default().push(SeenNumber {
                    grant,
                    until_us,
                    is_lost,
                    may_be_gone: false,
                });
                Ok(())
            }
            shown if self.must_serve => {
                let text =
                    format!("batch {batch} row {row} got {shown:?} long after the last fault");
                broken("not live", 0, 0, text)
            }
            Shown::Exhausted | Shown::Refused(_) => Ok(()),
        }
    }

    /// Checks that the log contains an answer's record, written by the process that sends the
    /// answer.
    fn check_stored(&self, servers: &Servers, grant: &Grant) -> Judged {
        let Some(author) = self.authors.get(&(grant.process, grant.shard)) else { return Ok(()) };
        if servers.streams[usize::from(grant.shard)].has_stored(grant.group, author) {
            return Ok(());
        }
        let text = format!(
            "the number was sent to a client, but group {}, which contains its record, was never \
            stored",
            grant.group
        );
        broken("forgotten", grant.shard, grant.number, text)
    }

    /// Checks that the new lockout does not overlap the lockout of another visitor who has seen the
    /// number.
    fn check_double(&self, new: &Grant, now_us: u64) -> Judged {
        let lifetime_us = self.lifetimes_ms.get(&new.pool).copied().unwrap_or(0) * 1000;
        for held in self.held.get(&new.number).into_iter().flatten() {
            let is_older = held.grant.true_us <= new.true_us;
            let is_double = if is_older {
                new.true_us < held.until_us
            } else {
                held.grant.true_us < new.true_us + lifetime_us
            };
            if is_double && !self.is_unaware(new, held) {
                let Grant { batch, row, true_us, process, .. } = &held.grant;
                let text = format!(
                    "batch {batch} row {row} of process {process} got the number at {true_us} us \
                     and has it until {} us; batch {} row {} of process {} also got it at {} us, \
                     in an answer that is sent at {now_us} us",
                    held.until_us, new.batch, new.row, new.process, new.true_us
                );
                return broken("double", new.shard, new.number, text);
            }
        }
        Ok(())
    }

    /// Whether the owner that granted `new` cannot detect that another process handed the number
    /// out. This is the case if the servers have lost everything that the other process wrote,
    /// including its take-over message.
    fn is_unaware(&self, new: &Grant, held: &SeenNumber) -> bool {
        let first_lost = self.unaware.get(&(new.process, new.shard));
        held.is_lost
            && held.grant.process != new.process
            && first_lost.is_some_and(|first| held.grant.group >= *first)
    }

    /// Records that the servers have lost groups of a shard. Only a hold can still protect the
    /// numbers in these groups.
    pub(super) fn lost(&mut self, servers: &Servers, shard: u16, loss: Loss) {
        match loss {
            Loss::Stream => drop(self.deleted.insert(shard)),
            // The notes kept with the other shards' logs, which would show the loss, are lost too.
            Loss::Streams => drop(self.deleted.remove(&shard)),
            Loss::Tail | Loss::Nothing => {}
        }
        let mut held = std::mem::take(&mut self.held);
        for held in held.values_mut().flatten() {
            held.is_lost |= self.is_lost(servers, &held.grant);
            held.may_be_gone |= held.grant.shard == shard;
        }
        self.held = held;
        let stream = &servers.streams[usize::from(shard)];
        let owner = stream.owner().map(|(author, _)| author);
        let of = |((_, of), author): &(&(u64, u16), &Incarnation)| {
            *of == shard && Some(**author) == owner
        };
        if let Some((&before, _)) = self.authors.iter().find(of) {
            self.unaware.insert(before, stream.groups_end());
        }
    }

    fn is_lost(&self, servers: &Servers, grant: &Grant) -> bool {
        let author = self.authors.get(&(grant.process, grant.shard));
        let stream = &servers.streams[usize::from(grant.shard)];
        author.is_some_and(|author| stream.has_lost(grant.group, author))
    }

    /// Judges a process that begins to serve a shard.
    pub(super) fn begins(&mut self, process: u64, begun: &Begun) -> Judged {
        self.authors.insert((process, begun.shard), begun.author);
        let is_ours = |held: &&mut SeenNumber| held.grant.shard == begun.shard;
        self.check_hold(begun)?;
        if !begun.is_owner {
            return Ok(());
        }
        let has_evidence = begun.has_evidence || self.deleted.contains(&begun.shard);
        if !has_evidence && !begun.is_in_doubt {
            // The process could not detect the loss, so nothing is promised for numbers whose
            // records were lost.
            for held in self.held.values_mut().flatten().filter(is_ours).filter(|it| it.is_lost) {
                held.until_us = held.until_us.min(begun.now_us);
            }
        }
        let offset = begun.now_ms.cast_signed() - (begun.now_us / 1000).cast_signed();
        let before = self.offsets_ms.insert(begun.shard, (process, offset));
        let before = before.map_or(offset, |(_, before)| before);
        let ahead_ms = offset - before - LENGTHENED_MS.cast_signed();
        if !begun.knows_time && ahead_ms > 0 {
            let leapt_us = ahead_ms.unsigned_abs() * 1000;
            self.leaps_us.push((begun.shard, begun.first_n, leapt_us));
            for held in self.held.values_mut().flatten().filter(is_ours) {
                held.until_us = held.until_us.saturating_sub(leapt_us);
            }
        }
        if begun.is_in_doubt && !begun.has_lost {
            let text = "after its start, the process holds the shard's pools, although nothing \
                        was lost"
                .to_owned();
            return broken("held without cause", begun.shard, 0, text);
        }
        self.check_locked(begun)
    }

    /// Checks the length of a hold, which normally lasts for one lockout. A take-over by another
    /// machine may lengthen the lockouts and holds that have not ended. The next hold then lasts as
    /// long as the longest lockout that had not ended at the time of the log's last record.
    /// Lockouts and holds may be lengthened in this way even if no process served after that
    /// take-over, or if the log has lost the take-over. If shard time leaps, lockouts that have not
    /// ended are lengthened by the whole leap. A hold that began at an earlier start continues.
    fn check_hold(&mut self, begun: &Begun) -> Judged {
        let longest_ms = self.lockout_max_ms();
        let idle_ms = begun.now_ms.saturating_sub(begun.last_at_ms);
        let since_us = begun.now_us.saturating_sub((idle_ms + 4 * longest_ms) * 1000);
        let counts = self.take_overs.entry(begun.shard).or_default();
        let before = counts.range(..since_us).last().map_or(0, |(_, count)| *count);
        counts.insert(begun.now_us, begun.take_overs);
        let lengthened_ms = (begun.take_overs - before) * LENGTHENED_MS;
        let offset = begun.now_ms.cast_signed() - (begun.now_us / 1000).cast_signed();
        let (low, high) = self.offset_range_ms.unwrap_or((offset, offset));
        self.offset_range_ms = Some((low.min(offset), high.max(offset)));
        let most_ms = longest_ms + longest_ms / 1000 + lengthened_ms + self.leapt_ms();
        let held = self.holds_ms.insert(begun.shard, (begun.held_until_ms, begun.take_overs));
        let (held_ms, count) = held.unwrap_or((0, begun.take_overs));
        let same_ms = held_ms + (begun.take_overs - count) * LENGTHENED_MS;
        if begun.held_until_ms <= same_ms.max(begun.now_ms + most_ms) {
            return Ok(());
        }
        let left_ms = begun.held_until_ms - begun.now_ms;
        let text = format!("the hold lasts {left_ms} ms, but may last at most {most_ms} ms");
        broken("held for too long", begun.shard, 0, text)
    }

    /// The longest lockout.
    pub(super) fn lockout_max_ms(&self) -> u64 {
        self.lifetimes_ms.values().copied().max().unwrap_or(0)
    }

    /// Returns how much the difference between shard time and true time has varied over all starts.
    pub(super) fn leapt_ms(&self) -> u64 {
        self.offset_range_ms.map_or(0, |(low, high)| high.abs_diff(low))
    }

    fn check_locked(&self, begun: &Begun) -> Judged {
        for held in self.held.values().flatten() {
            let SeenNumber { grant, until_us, .. } = held;
            if grant.shard != begun.shard || *until_us <= begun.now_us {
                continue;
            }
            let left_ms = (until_us - begun.now_us) / 1000;
            let known = begun.numbers.get(&grant.number).map_or(0, |known| known.1);
            if known.max(begun.held_until_ms) + 1 < begun.now_ms + left_ms {
                let text = format!(
                    "at {} ms of shard time, the number must stay locked out for another \
                    {left_ms} ms, but the process has recorded a lockout only until {known} ms \
                    and a hold only until {} ms; the number was handed out at {} us by process {} \
                    in group {}, for {} ms; time of the previous owner known: {}; group lost: {}; \
                    evidence of lost messages: {}",
                    begun.now_ms,
                    begun.held_until_ms,
                    grant.true_us,
                    grant.process,
                    grant.group,
                    self.lifetimes_ms.get(&grant.pool).copied().unwrap_or(0),
                    begun.knows_time,
                    held.is_lost,
                    begun.has_evidence
                );
                return broken("forgotten", begun.shard, grant.number, text);
            }
        }
        Ok(())
    }

    /// Checks that the owner's shard time has not gained more on true time than is allowed. If
    /// messages were lost, an earlier owner with a different shard time may be the owner again.
    pub(super) fn check_time(
        &mut self,
        process: u64,
        shard: u16,
        shard_ms: u64,
        now_us: u64,
    ) -> Judged {
        let offset = shard_ms.cast_signed() - (now_us / 1000).cast_signed();
        let before = self.offsets_ms.insert(shard, (process, offset));
        let before = before.filter(|(of, _)| *of == process).map_or(offset, |(_, before)| before);
        if offset - before <= SLEWED_MS {
            return Ok(());
        }
        let text = format!("shard time has gained {} ms on true time", offset - before);
        broken("time runs ahead", shard, 0, text)
    }

    /// Returns the look-ups that must succeed, each with a flag that shows whether the allocation's
    /// record may be missing.
    pub(super) fn look_ups(&self) -> Vec<(Grant, bool)> {
        let all = self.held.values().flatten().filter(|held| !held.is_lost);
        let newest = |grant: &Grant| self.newest_us.get(&grant.number) == Some(&grant.true_us);
        all.map(|held| (held.grant.clone(), held.may_be_gone || !newest(&held.grant))).collect()
    }
}
