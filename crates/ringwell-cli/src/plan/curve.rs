//! The shares of overflow and misattributed callers by pool size: computes the points, and plots
//! them with characters.
//!
//! The scale is logarithmic, because the relevant shares range from half of all visitors to one in
//! ten thousand. The drawing in `svg.rs` uses the same scale.

use std::fmt::Write as _;

use ringwell_plan::Forecast;

use super::values::{amount, percent};

/// The width of the plot, in characters.
pub(super) const COLUMNS: u32 = 64;
const ROWS: u32 = 16;
/// The number of decades on the scale, which ranges from 100 % to 0.01 %.
const DECADES: f64 = 4.0;
/// The grid lines of the scale.
pub(super) const TICKS: [f64; 5] = [1.0, 0.1, 0.01, 0.001, 0.0001];

/// The points of both curves, in ascending order of size.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) left: u32,
    pub(super) right: u32,
    pub(super) points: Vec<Forecast>,
}

impl Curve {
    /// Computes `points` points between the pool sizes `left` and `right`. `right` must be larger.
    pub(super) fn new(
        left: u32,
        right: u32,
        points: u32,
        forecast: impl Fn(u32) -> Forecast,
    ) -> Self {
        let steps = u64::from(points.max(2)) - 1;
        let size = |step: u64| left + part(u64::from(right - left) * step, steps);
        Self { left, right, points: (0..=steps).map(|step| forecast(size(step))).collect() }
    }

    /// Returns the position of a size between `left` (0) and `right` (1).
    pub(super) fn across(&self, numbers: u32) -> f64 {
        f64::from(numbers.saturating_sub(self.left)) / f64::from(self.right - self.left)
    }

    /// Draws the plot. A vertical line marks the size `marked`.
    pub(super) fn plot(&self, marked: u32, colours: bool) -> String {
        let mark = nearest(self.across(marked), COLUMNS - 1);
        let mut text = String::new();
        for row in 0..=ROWS {
            let tick = TICKS.into_iter().find(|tick| nearest(down(*tick), ROWS) == row);
            let label = tick.map_or(String::new(), percent);
            let _ = write!(text, "{label:>9} {}", if tick.is_some() { '+' } else { '|' });
            for (column, point) in (0..).zip(&self.points) {
                let overflow = nearest(down(point.overflow), ROWS) == row && point.overflow > 0.0;
                let wrong = nearest(down(point.misattributed), ROWS) == row;
                let (mark, colour) = match (overflow, wrong) {
                    (true, _) => ('o', "\x1b[31m"),
                    (false, true) => ('w', "\x1b[36m"),
                    _ if column == mark => (':', ""),
                    _ if tick.is_some() => ('.', "\x1b[2m"),
                    _ => (' ', ""),
                };
                if colours && !colour.is_empty() {
                    let _ = write!(text, "{colour}{mark}\x1b[0m");
                } else {
                    text.push(mark);
                }
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        let (left, right) = (amount(f64::from(self.left)), amount(f64::from(self.right)));
        let width = usize::try_from(COLUMNS).unwrap_or(usize::MAX).saturating_sub(left.len());
        let _ = writeln!(text, "{:>10}{left}{right:>width$} numbers", "");
        text += "          o overflow   w wrong caller   : the size for the target\n";
        text
    }
}

/// Returns the position of a share on the scale, from 0 for 100 % to 1 for 0.01 % or less.
pub(super) fn down(share: f64) -> f64 {
    (-share.log10() / DECADES).clamp(0.0, 1.0)
}

/// Returns the index of the row or column that is nearest to a position from 0 to 1. `last` is the
/// highest index.
fn nearest(place: f64, last: u32) -> u32 {
    (0..=last).find(|index| f64::from(*index) + 0.5 > place * f64::from(last)).unwrap_or(last)
}

fn part(amount: u64, of: u64) -> u32 {
    u32::try_from(amount / of).unwrap_or(u32::MAX)
}
