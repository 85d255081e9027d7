//! Erlang's loss formula: the share of a load that arrives while all numbers of a pool are locked
//! out.
//!
//! Owns the formula, which also covers fractional counts of numbers, and the formula's two
//! inverses. If no number is free, the visitor does not wait. A pool therefore loses visitors in
//! the same way as a telephone exchange without a queue loses calls. If visitors arrive
//! independently of each other, only the mean length of the lockouts matters. The formula therefore
//! also holds if all lockouts have the same length. Invariant: the result decreases with the count
//! of numbers, increases with the load, and is between 0 and 1.

/// The maximum count of numbers that [`numbers_for`] tries, which is more than any pool may have.
pub const NUMBERS_MAX: u32 = 1 << 24;

/// The number of steps for computing the integral for a fractional count of numbers.
const STEPS: u32 = 4_000;
/// The upper limit of the integral. The integrand decreases like `e^-u`, so the part beyond this
/// limit is smaller than the precision of an `f64`.
const TAIL: f64 = 40.0;
/// The count of halvings in the search for a load; further halvings would not change an `f64`.
const HALVINGS: u32 = 100;

/// The share of allocations that overflow if a pool of `numbers` numbers is offered `load` (Erlang
/// B). The load is the number of allocations per second, multiplied by the seconds that each
/// allocation locks out a number.
///
/// `numbers` may be a fraction, which [`crate::Demand`] needs for batches. Arguments below 0 count
/// as 0. The result is accurate to nine digits, and the computation takes as many steps as there
/// are numbers.
#[must_use]
pub fn blocking(numbers: f64, load: f64) -> f64 {
    if load <= 0.0 {
        return if numbers > 0.0 { 0.0 } else { 1.0 };
    }
    let whole = numbers.max(0.0).floor();
    let part = numbers.max(0.0) - whole;
    let mut blocked = if part > 0.0 { blocking_of_part(part, load) } else { 1.0 };
    let mut count = part;
    while count + 0.5 < numbers {
        count += 1.0;
        blocked = load * blocked / (count + load * blocked);
        if blocked == 0.0 {
            // The share is smaller than an `f64` can represent, and would only fall further.
            break;
        }
    }
    blocked
}

/// The smallest count of numbers that keeps overflow at or below the share `target`, if the load is
/// `load` and allocations arrive in batches of `together`. `None` if even [`NUMBERS_MAX`] are too
/// few.
#[must_use]
pub fn numbers_for(load: f64, together: f64, target: f64) -> Option<u32> {
    let enough = |numbers: u32| blocking(f64::from(numbers) / together, load / together) <= target;
    let mut high = 1;
    while !enough(high) {
        high = high.checked_mul(2).filter(|high| *high <= NUMBERS_MAX)?;
    }
    let mut low = high / 2;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if enough(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// The largest load that a pool of `numbers` numbers can carry if at most the share `target` of
/// allocations may overflow. Assumes that allocations arrive one at a time.
#[must_use]
pub fn load_for(numbers: u32, target: f64) -> f64 {
    let numbers = f64::from(numbers);
    let (mut low, mut high) = (0.0, numbers.max(1.0));
    while blocking(numbers, high) <= target && high.is_finite() {
        high *= 2.0;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if blocking(numbers, middle) <= target { low = middle } else { high = middle }
    }
    low
}

/// The formula for a fraction of one number, computed as an integral: `1/B = ∫ e^-u (1 + u/A)^x du`
/// over all `u` above 0.
///
/// With `u = A(e^s - 1)` the integrand is smooth for small and large loads, and Simpson's rule is
/// enough. Starting from this value, Erlang's recursion computes the value for each greater
/// fractional count.
fn blocking_of_part(part: f64, load: f64) -> f64 {
    let end = (TAIL / load).ln_1p();
    let step = end / f64::from(STEPS);
    let value = |at: f64| load * (at * (1.0 + part) - load * at.exp_m1()).exp();
    let inner: f64 = (1..STEPS)
        .map(|index| if index % 2 == 1 { 4.0 } else { 2.0 } * value(f64::from(index) * step))
        .sum();
    let integral = (value(0.0) + inner + value(end)) * step / 3.0;
    1.0 / integral
}

#[cfg(test)]
mod tests;
