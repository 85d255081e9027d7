//! The rules for numbers that enter and leave rotations.
//!
//! Owns the rule that protects visitors: a number that a visitor may hold must not enter another
//! rotation or become an overflow number. A change that takes a number out of a rotation creates a
//! new version of the directory. Once every node has confirmed that version, no further visitor
//! gets the number. After the longest lockout of its pool, plus a margin for the nodes' clocks, no
//! visitor holds it any more. The number waits until then. [`Change::move_due`] then moves the
//! number to the pool that it is promised to.

use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use serde_json::json;

use crate::change::{Change, object};
use crate::numbers::{self, Goal, Left, NumberState, Run};
use crate::pools::{self, Pool};
use crate::row::{digits, to_db};
use crate::{Refusal, StoreError};

/// The counts of numbers that were given to a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The count of numbers that entered the rotation immediately.
    pub entered: u64,
    /// The count of numbers that wait until their lockouts in other pools end.
    pub waiting: u64,
}

/// The destination of numbers that leave a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// To the inventory, from which pools can draw them.
    Inventory,
    /// Into quarantine, until a person has checked them. They still belong to their pool.
    Quarantine,
    /// Out of use.
    Retire,
}

impl Change {
    /// Returns the parts of `ranges` that are new to the directory.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn unknown(
        &mut self,
        ranges: &[NumberRange],
    ) -> Result<Vec<NumberRange>, StoreError> {
        let mut unknown = Vec::new();
        for range in ranges {
            let known = numbers::touching(&mut self.tx, *range).await?;
            unknown.extend(numbers::gaps(*range, &known));
        }
        Ok(unknown)
    }

    /// Adds numbers to the inventory, for one network or for all networks. Returns the count of new
    /// numbers. Known numbers keep their states.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn add_to_inventory(
        &mut self,
        ranges: &[NumberRange],
        network: Option<&str>,
    ) -> Result<u64, StoreError> {
        let mut added = 0;
        for range in ranges {
            let known = numbers::cut(&mut self.tx, *range).await?;
            for gap in numbers::gaps(*range, &known) {
                added += u64::from(gap.count());
                Run::new(gap, network.map(str::to_owned)).insert(&mut self.tx).await?;
            }
            for run in known {
                run.insert(&mut self.tx).await?;
            }
        }
        if added > 0 {
            let after = json!({ "added": added, "ranges": texts(ranges), "network": network });
            self.log("add to inventory", "numbers", None, Some(after)).await?;
        }
        Ok(added)
    }

    /// Puts numbers into a pool's rotation, either at once or when no visitor can hold them any
    /// more. New numbers are added to the directory. Numbers that are already in the rotation stay
    /// there.
    ///
    /// # Errors
    /// [`Refusal::NumberTaken`] or [`Refusal::NumberUnusable`] for the first number that is used
    /// elsewhere, [`Refusal::UnknownPool`] or [`Refusal::NetworkCeiling`].
    pub async fn add_numbers(
        &mut self,
        pool: PoolId,
        ranges: &[NumberRange],
    ) -> Result<Placed, StoreError> {
        let room = self.known_room(pool).await?;
        let placed = self.place_numbers(pool, ranges).await?;
        self.use_room(room, placed.entered + placed.waiting)?;
        Ok(placed)
    }

    /// Like [`Change::add_numbers`], for numbers that the caller has checked against the network's
    /// ceiling.
    pub(crate) async fn place_numbers(
        &mut self,
        pool: PoolId,
        ranges: &[NumberRange],
    ) -> Result<Placed, StoreError> {
        let network = self.pool(pool).await?.settings.scope.network;
        let mut placed = Placed::default();
        for range in ranges {
            let runs = numbers::cut(&mut self.tx, *range).await?;
            let new = numbers::gaps(*range, &runs);
            let new = new.into_iter().map(|gap| Run::new(gap, Some(network.clone())));
            for run in new.chain(runs.iter().cloned()).collect::<Vec<_>>() {
                self.place(run, pool, Goal::Rotation, &network, &mut placed).await?;
            }
        }
        if placed != Placed::default() {
            self.touch(pool).await?;
            let Placed { entered, waiting } = placed;
            let after = json!({
                "ranges": texts(ranges), "entered": entered, "waiting": waiting
            });
            self.log("add numbers", &object(pool), None, Some(after)).await?;
        }
        Ok(placed)
    }

    /// Takes numbers out of rotations, quarantine or the inventory. Returns the count of numbers
    /// taken out.
    ///
    /// # Errors
    /// [`Refusal::UnknownNumber`], also for numbers that the author may not access;
    /// [`Refusal::NumberTaken`] for an overflow number.
    pub async fn take_out(&mut self, ranges: &[NumberRange], to: Leave) -> Result<u64, StoreError> {
        self.room = None;
        let mut count = 0;
        for range in ranges {
            for run in self.cut_known(*range).await? {
                self.check_own(&run).await?;
                if run.state == NumberState::Overflow {
                    return Err(self.taken(&run).await?.into());
                }
                count += run.count();
                self.leave(run, to).await?;
            }
        }
        if count > 0 {
            let action = match to {
                Leave::Inventory => "return to inventory",
                Leave::Quarantine => "quarantine",
                Leave::Retire => "retire",
            };
            let after = json!({ "ranges": texts(ranges) });
            self.log(action, "numbers", None, Some(after)).await?;
        }
        Ok(count)
    }

    /// Reserves numbers in the inventory for `network`, or makes them available to all networks if
    /// it is `None`. Returns the count of numbers.
    ///
    /// # Errors
    /// [`Refusal::UnknownNumber`], or [`Refusal::NumberTaken`] for a number that is not in the
    /// inventory.
    pub async fn reserve_for(
        &mut self,
        ranges: &[NumberRange],
        network: Option<&str>,
    ) -> Result<u64, StoreError> {
        let mut count = 0;
        for range in ranges {
            for run in self.cut_known(*range).await? {
                if run.state != NumberState::Free {
                    return Err(self.taken(&run).await?.into());
                }
                count += run.count();
                Run { network: network.map(str::to_owned), ..run }.insert(&mut self.tx).await?;
            }
        }
        let after = json!({ "ranges": texts(ranges), "network": network });
        self.log("reserve", "numbers", None, Some(after)).await?;
        Ok(count)
    }

    /// Returns quarantined numbers to their pools, once `cooldown` is over and no visitor can hold
    /// them. Numbers without a pool go to the inventory.
    ///
    /// # Errors
    /// [`Refusal::UnknownNumber`], also for numbers that the author may not access;
    /// [`Refusal::NumberTaken`] for a number that is not in quarantine.
    pub async fn end_quarantine(
        &mut self,
        ranges: &[NumberRange],
        cooldown: Millis,
    ) -> Result<Placed, StoreError> {
        let mut placed = Placed::default();
        for range in ranges {
            for mut run in self.cut_known(*range).await? {
                self.check_own(&run).await?;
                if run.state != NumberState::Quarantined {
                    return Err(self.taken(&run).await?.into());
                }
                run.state = NumberState::Free;
                if cooldown > Millis::ZERO {
                    // A number may return to its former pool at once. The former pool is therefore
                    // cleared, so that the number waits until the cooldown is over.
                    run.left.pool = None;
                    run.left.ready = run.left.ready.max(self.now + cooldown);
                }
                match run.pool.take() {
                    Some(pool) => {
                        let network = self.pool(pool).await?.settings.scope.network;
                        self.place(run, pool, Goal::Rotation, &network, &mut placed).await?;
                        self.touch(pool).await?;
                    }
                    None => run.insert(&mut self.tx).await?,
                }
            }
        }
        let after = json!({ "ranges": texts(ranges), "cooldown_ms": cooldown.0 });
        self.log("end quarantine", "numbers", None, Some(after)).await?;
        Ok(placed)
    }

    /// Like [`numbers::cut`], but refuses numbers that the directory does not contain.
    async fn cut_known(&mut self, range: NumberRange) -> Result<Vec<Run>, StoreError> {
        let runs = numbers::cut(&mut self.tx, range).await?;
        match numbers::gaps(range, &runs).first() {
            Some(gap) => Err(Refusal::UnknownNumber(gap.first()).into()),
            None => Ok(runs),
        }
    }

    /// If the author may only access one network, refuses numbers that are neither in a pool of
    /// this network nor reserved for this network, as if they were unknown.
    async fn check_own(&mut self, run: &Run) -> Result<(), StoreError> {
        let Some(only) = self.only.clone().filter(|only| run.network.as_ref() != Some(only)) else {
            return Ok(());
        };
        let is_own = match run.pool {
            Some(pool) => self.pool(pool).await?.settings.scope.network == only,
            None => false,
        };
        if is_own { Ok(()) } else { Err(Refusal::UnknownNumber(run.first).into()) }
    }

    /// Replaces or removes a pool's overflow number. If a visitor may hold the new number, the
    /// number is only promised to the pool. The pool then keeps its previous overflow number until
    /// no visitor can hold the new one. Any earlier promise of an overflow number to the pool ends.
    /// Returns `true` if the change took effect at once.
    ///
    /// # Errors
    /// [`Refusal::NumberTaken`], [`Refusal::NumberUnusable`], [`Refusal::NetworkCeiling`], or
    /// [`Refusal::OverflowIsFixed`] if the pool's settings do not allow an overflow number.
    pub async fn set_overflow(
        &mut self,
        id: PoolId,
        number: Option<PromoNumber>,
    ) -> Result<bool, StoreError> {
        let pool = self.pool(id).await?;
        self.end_promises(id, number).await?;
        let Some(new) = number.filter(|number| Some(*number) != pool.overflow) else {
            return self.place_overflow(id, number).await;
        };
        let room = self.known_room(id).await?;
        let run = numbers::holding(&mut self.tx, new).await?;
        let is_counted = |run: Run| run.pool == Some(id) || run.state == NumberState::Overflow;
        let is_counted = run.is_some_and(is_counted);
        let is_there = self.place_overflow(id, number).await?;
        if is_counted || pool.overflow.is_some() {
            // The previous overflow number, if any, still counts if another pool of the network
            // shares it. All numbers are therefore counted again.
            self.check_network_ceiling(id).await?;
        } else {
            self.use_room(room, 1)?;
        }
        Ok(is_there)
    }

    /// Moves to the inventory all overflow numbers that are promised to the pool, except `kept`.
    async fn end_promises(
        &mut self,
        id: PoolId,
        kept: Option<PromoNumber>,
    ) -> Result<(), StoreError> {
        for run in numbers::of_pool(&mut self.tx, id).await? {
            let is_promised = run.state == NumberState::Waiting && run.goal == Some(Goal::Overflow);
            if !is_promised || Some(run.first) == kept {
                continue;
            }
            let range = run.range()?;
            numbers::cut(&mut self.tx, range).await?;
            self.leave(run, Leave::Inventory).await?;
            self.touch(id).await?;
            let after = json!({ "ranges": texts(&[range]) });
            self.log("end promise of overflow number", &object(id), None, Some(after)).await?;
        }
        Ok(())
    }

    /// Whether the number is in the pool's rotation.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn rotates(&mut self, id: PoolId, number: PromoNumber) -> Result<bool, StoreError> {
        let run = numbers::holding(&mut self.tx, number).await?;
        Ok(run.is_some_and(|run| run.state == NumberState::Available && run.pool == Some(id)))
    }

    /// Like [`Change::set_overflow`], for a number that the caller has checked against the
    /// network's ceiling.
    pub(crate) async fn place_overflow(
        &mut self,
        id: PoolId,
        number: Option<PromoNumber>,
    ) -> Result<bool, StoreError> {
        let pool = self.pool(id).await?;
        if number == pool.overflow {
            return Ok(true);
        }
        let Some(number) = number else {
            self.release_overflow(&pool).await?;
            let after = Pool { overflow: None, ..pool.clone() };
            self.put_pool(&pool, after, "take overflow number").await?;
            return Ok(true);
        };
        if !pool.settings.allow_overflow {
            return Err(Refusal::OverflowIsFixed.into());
        }
        let network = pool.settings.scope.network.clone();
        let Some(range) = NumberRange::new(number, 1) else {
            return Err(Refusal::UnknownNumber(number).into());
        };
        let mut run = match numbers::cut(&mut self.tx, range).await?.pop() {
            Some(run) => run,
            None => Run::new(range, Some(network.clone())),
        };
        if run.state == NumberState::Available && run.pool == Some(id) {
            self.depart(&mut run).await?;
            (run.state, run.pool) = (NumberState::Free, None);
        }
        let mut placed = Placed::default();
        self.place(run, id, Goal::Overflow, &network, &mut placed).await?;
        if placed == Placed::default() {
            // The number was already promised.
            return Ok(false);
        }
        if placed.entered == 0 {
            self.touch(id).await?;
            let after = json!({ "overflow_number": number.to_string() });
            self.log("promise overflow number", &object(id), None, Some(after)).await?;
            return Ok(false);
        }
        self.release_overflow(&pool).await?;
        let after = Pool { overflow: Some(number), ..pool.clone() };
        self.put_pool(&pool, after, "set overflow number").await?;
        Ok(true)
    }

    /// Moves waiting numbers to the pools that they are promised to, once no visitor can hold the
    /// numbers any more. Returns the count of moved numbers.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn move_due(&mut self) -> Result<u64, StoreError> {
        let mut moved = 0;
        for run in numbers::due(&mut self.tx, self.now).await? {
            let (Some(pool), Some(goal)) = (run.pool, run.goal) else {
                return Err(StoreError::Damaged(format!("{} is not waiting", run.first)));
            };
            let (range, number) = (run.range()?, run.first);
            numbers::cut(&mut self.tx, range).await?;
            moved += run.count();
            let free = Run {
                state: NumberState::Free,
                pool: None,
                goal: None,
                left: Left::default(),
                ..run
            };
            free.insert(&mut self.tx).await?;
            match goal {
                Goal::Rotation => {
                    self.place_numbers(pool, &[range]).await?;
                }
                Goal::Overflow => {
                    self.place_overflow(pool, Some(number)).await?;
                }
            }
        }
        Ok(moved)
    }

    /// Moves all numbers of a pool to the inventory.
    pub(crate) async fn empty_pool(&mut self, pool: &Pool) -> Result<(), StoreError> {
        for run in numbers::of_pool(&mut self.tx, pool.id).await? {
            numbers::cut(&mut self.tx, run.range()?).await?;
            self.leave(run, Leave::Inventory).await?;
        }
        self.release_overflow(pool).await
    }

    /// Gives `run` to `pool` if no visitor can hold its numbers. Otherwise, marks it as waiting.
    async fn place(
        &mut self,
        mut run: Run,
        pool: PoolId,
        goal: Goal,
        network: &str,
        placed: &mut Placed,
    ) -> Result<(), StoreError> {
        let is_there = match run.state {
            NumberState::Available => goal == Goal::Rotation,
            NumberState::Waiting => run.goal == Some(goal),
            _ => false,
        };
        if is_there && run.pool == Some(pool) {
            return run.insert(&mut self.tx).await;
        }
        if goal == Goal::Overflow
            && run.state == NumberState::Overflow
            && self.is_overflow_of(network, run.first).await?
        {
            // Several pools of a network may share an overflow number, as is also allowed in a
            // configuration file.
            placed.entered += run.count();
            return run.insert(&mut self.tx).await;
        }
        let is_ours = run.network.as_deref().is_none_or(|owner| owner == network);
        if run.state != NumberState::Free || !is_ours {
            return Err(self.taken(&run).await?.into());
        }
        // A pool keeps the lockouts of numbers that have left it, so numbers that return to it need
        // not wait.
        let returns = goal == Goal::Rotation && run.left.pool == Some(pool);
        if returns || run.left.is_over(self.now) {
            run.left = Left::default();
            placed.entered += run.count();
            (run.state, run.pool) = match goal {
                Goal::Rotation => (NumberState::Available, Some(pool)),
                Goal::Overflow => (NumberState::Overflow, None),
            };
        } else {
            placed.waiting += run.count();
            (run.state, run.pool, run.goal) = (NumberState::Waiting, Some(pool), Some(goal));
        }
        run.insert(&mut self.tx).await
    }

    /// Whether all pools that have this overflow number belong to `network`.
    async fn is_overflow_of(
        &mut self,
        network: &str,
        number: PromoNumber,
    ) -> Result<bool, StoreError> {
        let query = "SELECT id FROM ring_pools WHERE overflow_number = $1 AND network <> $2";
        let query = sqlx::query(query).bind(digits(number)).bind(network.to_owned());
        Ok(query.fetch_optional(&mut *self.tx).await?.is_none())
    }

    /// Returns the refusal for a change that may not use `run`. If the author is limited to one
    /// network, the refusal reveals nothing about other networks' numbers.
    async fn taken(&mut self, run: &Run) -> Result<Refusal, StoreError> {
        let Some(own) = self.only.clone() else { return Ok(Refusal::from(run)) };
        let of_pool = match run.pool {
            Some(pool) => pools::network_of(&mut self.tx, pool).await?,
            None => None,
        };
        let is_own = [&run.network, &of_pool].into_iter().flatten().any(|network| *network == own);
        Ok(if is_own { Refusal::from(run) } else { Refusal::NumberUnusable(run.first) })
    }

    /// Records that the numbers in `run` leave their pool's rotation, and how long visitors may
    /// still hold them.
    async fn depart(&mut self, run: &mut Run) -> Result<(), StoreError> {
        let Some(id) = run.pool else { return Ok(()) };
        let pool = self.pool(id).await?;
        run.left = self.left(&pool, Some(id)).await?;
        self.touch(id).await
    }

    async fn left(&mut self, of: &Pool, pool: Option<PoolId>) -> Result<Left, StoreError> {
        let lockout = of.lockout(self.now) + self.margin;
        let version = self.first_unconfirmed().await?;
        // If there are no nodes, no number is handed out, but visitors may still hold numbers that
        // were handed out earlier.
        let ready = if version.is_none() { self.now + lockout } else { Millis::ZERO };
        Ok(Left { pool, version, lockout, ready })
    }

    async fn leave(&mut self, mut run: Run, to: Leave) -> Result<(), StoreError> {
        if run.state == NumberState::Available {
            self.depart(&mut run).await?;
        }
        run.goal = None;
        (run.state, run.pool) = match to {
            Leave::Inventory => (NumberState::Free, None),
            Leave::Quarantine => (NumberState::Quarantined, run.pool),
            Leave::Retire => (NumberState::Retired, None),
        };
        run.insert(&mut self.tx).await
    }

    /// Moves the pool's overflow number to the inventory, unless another pool has the same overflow
    /// number. In both cases, records how long visitors of this pool may still see the number.
    async fn release_overflow(&mut self, pool: &Pool) -> Result<(), StoreError> {
        let Some(number) = pool.overflow else { return Ok(()) };
        let query =
            sqlx::query("SELECT id FROM ring_pools WHERE overflow_number = $1 AND id <> $2");
        let query = query.bind(digits(number)).bind(to_db(pool.id.0, "a pool's id")?);
        let is_shared = query.fetch_optional(&mut *self.tx).await?.is_some();
        let Some(range) = NumberRange::new(number, 1) else { return Ok(()) };
        for mut run in numbers::cut(&mut self.tx, range).await? {
            run.left = self.left(pool, None).await?.and(run.left);
            run.state = if is_shared { run.state } else { NumberState::Free };
            run.insert(&mut self.tx).await?;
        }
        Ok(())
    }
}

fn texts(ranges: &[NumberRange]) -> Vec<String> {
    let text = |range: &NumberRange| match range.count() {
        1 => range.first().to_string(),
        _ => format!("{}-{}", range.first(), range.last()),
    };
    ranges.iter().map(text).collect()
}
