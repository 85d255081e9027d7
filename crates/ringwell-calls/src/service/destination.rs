//! Chooses a call's destination, according to the user's program or the configuration.
//!
//! Source: docs/spec/calls.md, "Where a call goes".

use std::sync::PoisonError;

use ringwell_config::{RoutingSettings, UnknownNumber};
use ringwell_core::{Millis, PoolId};
use ringwell_store::Repeated;
use tokio::time::Instant;

use super::Service;
use super::decision::{Destination, NoPlan};
use crate::attribution::{Attribution, Serving};
use crate::call::CallState;
use crate::clock::now;
use crate::log::{CallChange, CallRow};
use crate::number::promo_number;
use crate::route::{Onward, RoutePlan};
use crate::router;

/// Limits the log lines about destinations that would cause a loop.
static LOOPS: Repeated = Repeated::new();

impl Service {
    /// Chooses the destination of the call in `change`, whose caller is not blocked, and records it
    /// in `change`. Waits for the user's program at most until `until`.
    pub(super) async fn choose(
        &self,
        change: &mut CallChange,
        serving: &[Serving],
        at: Millis,
        until: Instant,
    ) -> Destination {
        let former = if serving.is_empty() { self.former(change, at) } else { None };
        let plan = match former {
            Some(plan) => Ok(plan),
            None => self.plan(&change.account, change.number.as_deref(), serving, at),
        };
        change.destination = plan.as_ref().ok().map(|plan| plan.to[0].clone());
        let plan = match &self.settings().routing {
            None => plan,
            Some(routing) => match self.routed(routing, change, plan.as_ref().ok(), until).await {
                Some(routed) => Ok(routed),
                None => plan,
            },
        };
        match plan {
            Ok(plan) => {
                change.destination = Some(plan.to[0].clone());
                Destination::To(plan)
            }
            Err(lack) => self.not_connected(change, &lack, serving, at),
        }
    }

    /// The destinations of a call to a number that has left its pool, for example into quarantine.
    /// The rules for the last visitor's pool apply: that visitor may still call the number.
    fn former(&self, change: &CallChange, at: Millis) -> Option<RoutePlan> {
        let former = pool_of(change.attribution.as_ref()?)?;
        let plan = self.plan(&change.account, change.number.as_deref(), &[former], at).ok()?;
        self.remember(&change.id(), &plan);
        Some(plan)
    }

    /// The destinations that the user's program chooses. `None` if the program selects the default,
    /// `plan`, or gives no usable answer in time.
    async fn routed(
        &self,
        routing: &RoutingSettings,
        change: &CallChange,
        plan: Option<&RoutePlan>,
        until: Instant,
    ) -> Option<RoutePlan> {
        let row = CallRow::of(change);
        let asked = router::ask(routing, &self.inner.sender, &row, plan, (now(), until));
        match asked.await {
            Ok(answered) => {
                answered.as_ref().inspect(|answered| self.remember(&row.id, answered));
                answered
            }
            Err(reason) => {
                tracing::warn!(
                    call = row.id,
                    reason,
                    "calls.routing: no usable answer, so the configured destinations are used"
                );
                None
            }
        }
    }

    fn remember(&self, call: &str, plan: &RoutePlan) {
        let mut routed = self.inner.routed.lock().unwrap_or_else(PoisonError::into_inner);
        routed.keep(call, plan.clone());
    }

    /// The destinations of the known call with the id `call`, which `account` reported. The user's
    /// program may have chosen them; otherwise, they are those that the configuration assigns to
    /// `number`.
    pub async fn plan_of_call(
        &self,
        (account, call): (&str, &str),
        number: Option<&str>,
        at: Millis,
    ) -> Option<RoutePlan> {
        let routed = self.inner.routed.lock().unwrap_or_else(PoisonError::into_inner).of(call);
        if routed.is_some() {
            return routed;
        }
        let serving = self.serving(number);
        if serving.is_empty() {
            let logged = tokio::time::timeout(self.settings().deadline, self.log().call(call));
            let logged = logged.await.ok().and_then(Result::ok).flatten();
            let former = logged.and_then(|it| pool_of(&it.call.attribution));
            let plan = former.and_then(|former| self.plan(account, number, &[former], at).ok());
            if plan.is_some() {
                return plan;
            }
        }
        self.plan(account, number, &serving, at).ok()
    }

    /// Whether the log shows that the call with the id `call` was answered and has not ended.
    pub(crate) async fn is_in_conversation(&self, call: &str) -> bool {
        let logged = tokio::time::timeout(self.settings().deadline, self.log().call(call)).await;
        let logged = logged.ok().and_then(Result::ok).flatten();
        logged.is_some_and(|it| it.call.facts.state() == CallState::Answered)
    }

    pub(super) fn serving(&self, number: Option<&str>) -> Vec<Serving> {
        let number = number.and_then(promo_number);
        number.map(|number| self.inner.numbers.pools(number)).unwrap_or_default()
    }

    /// The destinations that the configuration assigns to `number`, except those that would cause a
    /// loop.
    fn plan(
        &self,
        account: &str,
        number: Option<&str>,
        serving: &[Serving],
        at: Millis,
    ) -> Result<RoutePlan, NoPlan> {
        let plan = self.settings().routes.plan(number, serving, at).ok_or(NoPlan::NoRule)?;
        let (to, loops) = self.cut_loops(plan.to, account, number, at);
        if !loops.is_empty()
            && let Some(left_out) = LOOPS.pass()
        {
            tracing::error!(
                number,
                left_out,
                "calls.destination: calls are not sent to {}, because they would return to this \
                 server in an endless loop",
                loops.join(", ")
            );
        }
        if to.is_empty() { Err(NoPlan::Loops(loops)) } else { Ok(RoutePlan { to, ..plan }) }
    }

    /// Splits the destinations `to` of a call to `number` into usable ones and those that would
    /// cause a loop.
    pub(super) fn cut_loops(
        &self,
        to: Vec<String>,
        account: &str,
        number: Option<&str>,
        at: Millis,
    ) -> (Vec<String>, Vec<String>) {
        let account = self.account(account);
        let unknown = match account.as_ref().map(|account| &account.unknown_number) {
            Some(UnknownNumber::Connect(to)) => Some(to.as_str()),
            _ => None,
        };
        let serving = |number: &str| self.serving(Some(number));
        let onward = Onward { at, unknown, serving: &serving };
        self.settings().routes.cut_loops(to, number.unwrap_or_default(), &onward)
    }
}

/// The pool that the visitor's number came from.
fn pool_of(attribution: &Attribution) -> Option<Serving> {
    let pool = attribution.pool.as_ref()?;
    Some(Serving { pool: PoolId(pool.id), name: pool.name.clone(), is_overflow: false })
}
