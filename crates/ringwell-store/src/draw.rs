//! Chooses the numbers that a pool draws from the inventory, and the numbers that it returns first.
//!
//! A pool without a preference gets the lowest numbers with the country code of the numbers that it
//! already has. A local pool gets numbers with the nearest area code first. Toll-free numbers
//! follow, unless the pool is set to wait for local numbers. The pool returns numbers in the
//! opposite order.

use ringwell_core::{NumberRange, PromoNumber};
use ringwell_directory::AreaCode;
use ringwell_wire::national::country_code;
use serde_json::json;

use crate::StoreError;
use crate::change::{Change, object};
use crate::local::Local;
use crate::numbers::{self, Span};
use crate::pools::Pool;

/// The kinds of numbers that suit a pool, in order of preference.
#[derive(Clone, Debug)]
pub(crate) struct Taste {
    /// The area codes, best first, or `None` if any number of the pool's country is suitable.
    wanted: Option<Vec<AreaCode>>,
    /// The count of local area codes, which come first in `wanted`.
    local: usize,
}

/// The numbers drawn.
#[derive(Default)]
struct Drawn {
    ranges: Vec<NumberRange>,
    local: u32,
    other: u32,
}

impl Taste {
    /// Returns `ranges`, split by area code if the pool prefers area codes, with the least
    /// preferred parts first. Equally preferred parts are in descending order of their numbers.
    pub(crate) fn least_wanted(&self, ranges: Vec<NumberRange>) -> Vec<NumberRange> {
        let mut parts = match &self.wanted {
            None => ranges,
            Some(_) => ranges.into_iter().flat_map(by_area).collect(),
        };
        parts.sort_by_key(|part| (self.rank(*part), part.first()));
        parts.reverse();
        parts
    }

    fn rank(&self, part: NumberRange) -> usize {
        let Some(wanted) = &self.wanted else { return 0 };
        let area = AreaCode::of(part.first());
        wanted.iter().position(|it| Some(*it) == area).unwrap_or(wanted.len())
    }
}

impl Change {
    pub(crate) fn taste(&self, pool: &Pool) -> Taste {
        let Some(local) = Local::of(&pool.settings.kept) else {
            return Taste { wanted: None, local: 0 };
        };
        let mut wanted = self.inventory.places.area_codes(&local.search);
        let count = wanted.len();
        if local.or_toll_free {
            let is_new = |area: &AreaCode| !wanted.contains(area);
            let toll_free: Vec<_> = AreaCode::TOLL_FREE.into_iter().filter(is_new).collect();
            wanted.extend(toll_free);
        }
        Taste { wanted: Some(wanted), local: count }
    }

    /// Draws for `pool`, in order of preference, at most `count` free numbers that are not locked
    /// out. If the pool has a preference, the counts of numbers drawn and still missing are
    /// recorded in the audit log.
    pub(crate) async fn draw(
        &mut self,
        pool: &Pool,
        count: u64,
    ) -> Result<Vec<NumberRange>, StoreError> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let taste = self.taste(pool);
        let mut drawn = Drawn::default();
        let Some(wanted) = &taste.wanted else {
            return self.draw_of_country(pool, count).await;
        };
        for (rank, area) in wanted.iter().enumerate() {
            let missing = count - drawn.local - drawn.other;
            let Some(range) = area.numbers().filter(|_| missing > 0) else { continue };
            let span = (range.first(), range.last());
            let ranges = self.draw_or_buy(pool, span, missing).await?;
            let found: u32 = ranges.iter().map(|range| range.count()).sum();
            if rank < taste.local {
                drawn.local += found;
            } else {
                drawn.other += found;
            }
            drawn.ranges.extend(ranges);
        }
        let Drawn { local, other, .. } = drawn;
        if local + other > 0 {
            let missing = count - local - other;
            let after = json!({ "local": local, "toll_free": other, "missing": missing });
            self.log("draw local numbers", &object(pool.id), None, Some(after)).await?;
        }
        Ok(drawn.ranges)
    }

    /// Draws the lowest free numbers with the pool's country code, at most `count`. Only numbers
    /// with country code 1 are bought.
    async fn draw_of_country(
        &mut self,
        pool: &Pool,
        count: u32,
    ) -> Result<Vec<NumberRange>, StoreError> {
        let mut drawn = Vec::new();
        match self.country(pool).await? {
            Some(1) => {
                let all = (PromoNumber::NANP_FIRST, PromoNumber::NANP_LAST);
                drawn = self.draw_or_buy(pool, all, count).await?;
            }
            Some(code) => {
                let mut missing = count;
                for span in of_country(code) {
                    let ranges = self.draw_from(pool, span, missing).await?;
                    missing -= ranges.iter().map(|range| range.count()).sum::<u32>();
                    drawn.extend(ranges);
                }
            }
            None => {}
        }
        Ok(drawn)
    }

    /// Returns the country code of the pool's lowest number. A pool without numbers has the country
    /// code of its overflow number, or 1 if it has no overflow number. Returns `None` if the
    /// country code is unknown.
    async fn country(&mut self, pool: &Pool) -> Result<Option<u16>, StoreError> {
        let runs = numbers::of_pool(&mut self.tx, pool.id).await?;
        let lowest = runs.iter().map(|run| run.first).min();
        Ok(lowest.or(pool.overflow).map_or(Some(1), country_code))
    }

    /// Draws the lowest free numbers in `span` for `pool`, at most `count`. If automatic purchases
    /// are on, missing numbers are bought.
    async fn draw_or_buy(
        &mut self,
        pool: &Pool,
        span: Span,
        count: u32,
    ) -> Result<Vec<NumberRange>, StoreError> {
        let drawn = self.draw_from(pool, span, count).await?;
        let missing = count - drawn.iter().map(|range| range.count()).sum::<u32>();
        if missing == 0 || !self.buy_short(pool, span, missing).await? {
            return Ok(drawn);
        }
        self.draw_from(pool, span, count).await
    }

    /// Draws the lowest free numbers in `span` for `pool`, at most `count`, without buying any.
    async fn draw_from(
        &mut self,
        pool: &Pool,
        span: Span,
        count: u32,
    ) -> Result<Vec<NumberRange>, StoreError> {
        let network = &pool.settings.scope.network;
        let mut missing = count;
        let mut drawn = Vec::new();
        for run in numbers::free(&mut self.tx, network, self.now, (span, count)).await? {
            let (first, last) = (run.first.max(span.0), run.last.min(span.1));
            let found = u32::try_from(last.to_e164() - first.to_e164() + 1).unwrap_or(u32::MAX);
            let Some(part) = NumberRange::new(first, found.min(missing)) else { break };
            missing -= part.count();
            drawn.push(part);
        }
        Ok(drawn)
    }
}

/// Returns all numbers with a country code other than 1: one span for each length.
fn of_country(code: u16) -> impl Iterator<Item = Span> {
    let code = u64::from(code);
    let parts = (1..PromoNumber::DIGITS_MAX).scan(1_u64, |part, _| {
        *part *= 10;
        Some(*part)
    });
    parts.filter_map(move |part| {
        let first = PromoNumber::from_e164(code * part)?;
        Some((first, PromoNumber::from_e164((code + 1) * part - 1)?))
    })
}

/// Returns `range`, split where one area code ends and the next begins.
fn by_area(range: NumberRange) -> Vec<NumberRange> {
    let mut parts = Vec::new();
    let mut rest = Some(range);
    while let Some(range) = rest {
        let area = AreaCode::of(range.first()).and_then(AreaCode::numbers);
        let end = area.map_or(range.last(), NumberRange::last);
        let count = end.min(range.last()).to_e164() - range.first().to_e164() + 1;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        parts.extend(NumberRange::new(range.first(), count));
        rest = crate::fill::last_of(range, range.count() - count);
    }
    parts
}
