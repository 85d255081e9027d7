//! A call's destination, or the reason why it has none.

use std::fmt;

use crate::provider::Refusal;
use crate::route::RoutePlan;

/// A call's destination, or the reason why it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The call is connected.
    To(RoutePlan),
    /// The call is refused: the caller is blocked, or `unknown_number` refuses the call.
    Refused(Refusal),
    /// The call has no destination, so the provider must use its own fallback. Contains the reason
    /// and the remedy, for the operator.
    None(String),
}

/// The reason why the configuration has no destination for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoPlan {
    /// No rule applies to the number, or the call arrives outside the rule's hours.
    NoRule,
    /// All destinations of the rule would cause an endless loop. Contains these destinations.
    Loops(Vec<String>),
}

impl Destination {
    /// The destinations to call. `None` if the call is not connected.
    #[must_use]
    pub const fn plan(&self) -> Option<&RoutePlan> {
        match self {
            Self::To(plan) => Some(plan),
            Self::Refused(_) | Self::None(_) => None,
        }
    }

    /// The refusal, if the call is refused.
    #[must_use]
    pub const fn refused(&self) -> Option<Refusal> {
        match self {
            Self::Refused(refusal) => Some(*refusal),
            Self::To(_) | Self::None(_) => None,
        }
    }
}

/// The advice to the operator.
impl fmt::Display for NoPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRule => f.write_str(
                "no [[calls.destination]] in the configuration applies to the number now; add one \
                 for the number or for its ring pool, or a default one, which sets neither numbers \
                 nor ring_pools",
            ),
            Self::Loops(to) => write!(
                f,
                "calls to {} would return to this server in an endless loop; add a destination \
                 outside this server to [[calls.destination]]",
                to.join(", ")
            ),
        }
    }
}
