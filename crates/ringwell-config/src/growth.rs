//! The section `[growth]`: how pools in a database grow and shrink automatically.

use std::str::FromStr;
use std::time::Duration;

use super::fields::{duration, text, whole};
use super::limits;
use super::section::Section;
use super::values::ValueError;

/// The settings for automatic changes to pools. Busy pools grow if they were not filled completely
/// when they were created. At the end of each month, pools return unused numbers to the inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The mode (default: [`GrowthMode::On`]).
    pub mode: GrowthMode,
    /// The interval between two checks of the pools, 1 s to 1 day (default: 5 min).
    pub every: Duration,
    /// The growth of a busy pool in one step, as a share of its size (default: 20 %).
    pub percent: u32,
    /// The maximum growth in one step, in numbers (default: 50).
    pub step_max: u32,
    /// The threshold above which a pool counts as busy: the share of its rows that overflow, or
    /// that would overflow at the measured load (default: 1 %).
    pub overflow_percent: u32,
}

/// Whether pools change automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrowthMode {
    /// Pools change automatically.
    #[default]
    On,
    /// Changes are logged but not applied.
    DryRun,
    /// Pools do not change automatically.
    Off,
}

impl Default for Growth {
    fn default() -> Self {
        let every = Duration::from_mins(5);
        Self { mode: GrowthMode::On, every, percent: 20, step_max: 50, overflow_percent: 1 }
    }
}

impl FromStr for GrowthMode {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "on" => Ok(Self::On),
            "dry_run" => Ok(Self::DryRun),
            "off" => Ok(Self::Off),
            _ => Err(ValueError::new("must be \"on\", \"dry_run\" or \"off\"")),
        }
    }
}

pub(super) fn read(mut section: Section<'_, '_>, into: &mut Growth) {
    section.set(&mut into.mode, "mode", text(str::parse));
    section.set(&mut into.every, "every", duration(&limits::GROWTH_EVERY));
    section.set(&mut into.percent, "percent", whole(&limits::GROWTH_PERCENT));
    section.set(&mut into.step_max, "step_max", whole(&limits::GROWTH_STEP));
    let percent = whole(&limits::OVERFLOW_PERCENT);
    section.set(&mut into.overflow_percent, "overflow_percent", percent);
    section.finish();
}
