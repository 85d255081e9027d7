//! The call service. Decides the destination of each incoming call, and converts every report to a
//! change in the log.
//!
//! The service fails open: if the attribution or the log is late or unavailable, the caller is
//! still connected. The log is completed later. Source: docs/decisions/035-calls-fail-open.md.

mod attribute;
mod blocks;
mod decision;
mod destination;
mod endpoints;
mod ends;
mod pools;
mod privacy;
mod refusal;
mod settings;
mod tap_queue;
mod taps;

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use ringwell_config::Calls;
use ringwell_core::Millis;
use ringwell_store::Repeated;
use ringwell_trace::Kind;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::account::Account;
use crate::attribution::{Attributed, Attribution, Numbers};
use crate::block::Blocks;
use crate::call::CallEvent;
use crate::caller::Caller;
use crate::clock::now;
use crate::log::{
    Applied, CallChange, EndpointCounts, Log, ReportedEvent, Submitted, Tap, Waiting, Writer,
};
use crate::number::called;
use crate::provider::Stir;
use crate::route::NoTimeZone;
use crate::router::Remembered;
use crate::trace::trace;
use crate::webhook::Worker;
use crate::webhook::address::Policy;
use crate::webhook::send::{Sender, System};

use self::settings::Settings;
pub use decision::Destination;
pub use pools::Exhausting;

/// The time limit for storing a report. When it expires, the provider gets an error, so that it
/// sends the report again.
const STORE_MAX: Duration = Duration::from_secs(10);

/// The time limit at shutdown for storing changes that wait for the log. When it expires, changes
/// that are only in memory are dropped.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// The time limit for closing the log. This includes the time for SQLite to copy its write-ahead
/// log into the database file.
const LOG_CLOSE_MAX: Duration = Duration::from_secs(10);

static NOT_LOGGED: Repeated = Repeated::new();

/// Handles calls. Clones share one service. It runs on the runtime that started it.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: tokio::runtime::Handle,
    log: Log,
    writer: Writer,
    /// The count of transactions that stored calls.
    changes: Arc<AtomicU64>,
    /// The queue of taps that wait for the log.
    taps: mpsc::Sender<Tap>,
    numbers: Arc<dyn Numbers>,
    settings: RwLock<Arc<Settings>>,
    sender: Sender,
    /// The answers of the user's program, remembered for calls that may still need their next
    /// destination.
    routed: Mutex<Remembered>,
    /// Notified when a delivery may be due.
    stored: Arc<Notify>,
    /// The most recently used key for hashing callers, with its month.
    caller_key: Mutex<Option<(String, Vec<u8>)>>,
    /// Callers that cannot be hashed yet, oldest first.
    unhashed: Mutex<VecDeque<Unhashed>>,
    /// The list of blocked callers.
    blocks: RwLock<Arc<Blocks>>,
    /// The ids of calls that are being attributed.
    looking: Mutex<HashSet<String>>,
    /// Whether some calls were not attributed, because too many look-ups were in progress or a
    /// result was not stored.
    left_out: AtomicBool,
    /// The count of providers' webhooks that were not signed correctly.
    unsigned: AtomicU64,
    /// The counts of webhook endpoints.
    endpoints: Mutex<EndpointCounts>,
}

/// A caller that is not hashed yet, because the log did not return the key. It exists only in
/// memory: the number must not be written anywhere.
#[derive(Clone)]
struct Unhashed {
    /// A change that contains nothing but the call's id.
    call: CallChange,
    caller: Caller,
    at: Millis,
}

/// A call, or a report about a call, as received from a provider or a switch.
#[derive(Clone, Debug, Default)]
pub struct IncomingCall {
    /// The account that reported the call.
    pub account: String,
    /// The account's provider.
    pub provider: String,
    /// The provider's id for the call.
    pub provider_call: String,
    /// The called number, as received.
    pub to: Option<String>,
    /// The caller's number or address, as received.
    pub from: Option<String>,
    /// The telephone network's verdict on whether the caller's number is genuine.
    pub stir: Option<Stir>,
    /// The reported events.
    pub events: Vec<CallEvent>,
    /// The time at which the report arrived.
    pub received: Millis,
}

/// The routing decision for a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Ringwell's id for the call.
    pub call: String,
    /// The called number in E.164 format, with `+`.
    pub number: Option<String>,
    /// The caller.
    pub caller: Caller,
    /// The destination, or the reason why there is none.
    pub destination: Destination,
    /// The attribution, if it was completed in time.
    pub attribution: Option<Attribution>,
}

/// The error if a report could not be stored in time. It may be stored later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the report is not stored yet")]
pub struct NotStored;

/// The error if the service has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call service has stopped")]
pub struct Stopped;

impl Service {
    /// Starts the service on the current runtime.
    ///
    /// # Errors
    /// [`NoTimeZone`].
    pub fn start(
        settings: &Calls,
        log: Log,
        numbers: Arc<dyn Numbers>,
    ) -> Result<Self, NoTimeZone> {
        let stored = Arc::new(Notify::new());
        let changes = Arc::new(AtomicU64::new(0));
        let (tell, count) = (Arc::clone(&stored), Arc::clone(&changes));
        let writer = Writer::start(log.clone(), now, move || {
            count.fetch_add(1, Ordering::Relaxed);
            tell.notify_one();
        });
        let sender = Sender::new(Policy::new(&settings.webhooks), Arc::new(System));
        tokio::spawn(Worker::new(log.clone(), sender.clone(), Arc::clone(&stored)).run());
        let inner = Inner {
            runtime: tokio::runtime::Handle::current(),
            taps: tap_queue::start(log.clone()),
            log,
            writer,
            changes,
            numbers,
            settings: RwLock::new(Arc::new(Settings::new(settings)?)),
            sender,
            routed: Mutex::default(),
            stored,
            caller_key: Mutex::default(),
            unhashed: Mutex::default(),
            blocks: RwLock::default(),
            looking: Mutex::default(),
            left_out: AtomicBool::default(),
            unsigned: AtomicU64::default(),
            endpoints: Mutex::default(),
        };
        let service = Self { inner: Arc::new(inner) };
        tokio::spawn(service.clone().resume());
        tokio::spawn(service.clone().forget());
        tokio::spawn(service.clone().hash_waiting());
        tokio::spawn(service.clone().follow_blocks());
        tokio::spawn(service.clone().follow_endpoints());
        Ok(service)
    }

    /// Stores all waiting reports and closes the log. Later reports are not stored.
    pub async fn close(&self) {
        // If the time limit expires, the number of remaining reports is logged below.
        let _ = tokio::time::timeout(CLOSE_MAX, self.inner.writer.finish()).await;
        let Waiting { all, kept } = self.waiting();
        let lost = all - kept;
        if lost > 0 {
            tracing::error!(lost, "reports of calls were lost: they could not be stored in time");
        }
        let unhashed = self.unhashed().len();
        if unhashed > 0 {
            tracing::warn!(
                calls = unhashed,
                "callers stay withheld: the call log did not return the key to hash them"
            );
        }
        if kept > 0 {
            tracing::warn!(reports = kept, "reports of calls will be stored at the next startup");
        }
        if tokio::time::timeout(LOG_CLOSE_MAX, self.inner.log.close()).await.is_err() {
            tracing::warn!(
                "the call log was not closed in time; it is recovered at the next startup"
            );
        }
    }

    /// From now on, keeps reports in the file at `path` while the log cannot store them. Submits to
    /// the log's writer the reports that an earlier process left in that file.
    pub fn keep_in(&self, path: &Path) {
        let changes = match self.inner.writer.keep_in(path) {
            Ok(changes) => changes,
            Err(error) => {
                let file = path.display();
                tracing::error!(%error, %file, "waiting call reports cannot be read");
                return;
            }
        };
        if !changes.is_empty() {
            tracing::info!(
                reports = changes.len(),
                "storing the call reports of an earlier process in the call log"
            );
        }
        for (change, applied) in changes {
            let service = self.clone();
            self.inner.runtime.spawn(async move {
                if let Ok(applied) = applied.await {
                    service.complete(&change, &applied);
                }
            });
        }
    }

    /// The account whose name is `name`.
    #[must_use]
    pub fn account(&self, name: &str) -> Option<Arc<Account>> {
        self.settings().accounts.iter().find(|account| account.name == name).cloned()
    }

    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.inner.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Applies the settings in `calls`, for example the accounts, destinations, retention times and
    /// rules for webhooks. Does not apply changes to the listen address or the database.
    ///
    /// # Errors
    /// [`NoTimeZone`]. In this case, nothing is changed.
    pub fn reload(&self, calls: &Calls) -> Result<(), NoTimeZone> {
        let settings = Arc::new(Settings::new(calls)?);
        *self.inner.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        self.inner.sender.keep_to(Policy::new(&calls.webhooks));
        Ok(())
    }

    /// The number of transactions in which this process has stored calls.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.inner.changes.load(Ordering::Relaxed)
    }

    /// The count of providers' webhooks that were refused because they were not signed correctly.
    #[must_use]
    pub fn unsigned_webhooks(&self) -> &AtomicU64 {
        &self.inner.unsigned
    }

    /// The counts of calls to pools' numbers whose attribution this process has completed, by
    /// result.
    pub fn attributed(&self) -> impl Iterator<Item = (Attributed, u64)> {
        let counts = self.inner.writer.attributed();
        Attributed::RESULTS.into_iter().zip(counts).map(|(it, n)| (it, n.load(Ordering::Relaxed)))
    }

    /// The counts of changes that wait to be stored in the log.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        self.inner.writer.waiting()
    }

    /// Whether a report that was already acknowledged, or its caller, is still missing from the
    /// log.
    pub(crate) fn is_behind(&self) -> bool {
        self.waiting().kept > 0 || !self.unhashed().is_empty()
    }

    /// The call log.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.inner.log
    }

    /// Checks an endpoint's URL: see [`Sender::check_url`].
    pub(crate) async fn check_url(&self, url: &str) -> Result<(), String> {
        self.inner.sender.check_url(url).await
    }

    /// Starts the webhook deliveries that are due, without waiting for the next read of the log.
    pub fn wake(&self) {
        self.inner.stored.notify_one();
    }

    /// Runs `work` on the service's thread. May be called from any thread.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stopped> {
        self.inner.runtime.spawn(work).await.map_err(|_| Stopped)
    }

    /// Decides the destination of an incoming call and logs the call. Returns before the deadline,
    /// even if the node, the log or the user's program (`calls.routing`) is late or unavailable.
    pub async fn incoming(&self, call: IncomingCall) -> Decision {
        let deadline = self.settings().deadline;
        let began_at = Instant::now();
        let until = began_at + deadline;
        let number = call.to.as_deref().and_then(called);
        let serving = self.serving(number.as_deref());
        let caller = call.from.as_deref().map_or(Caller::Withheld, Caller::read);
        let mut change = self.change(&call).await;
        let id = change.id();
        let mut span = trace("an incoming call", Kind::Server, || Some(id.clone()));
        let began = call.events.iter().map(|event| event.at).min().unwrap_or(call.received);
        // The last quarter of the time until the deadline is reserved for storing the call.
        let attributed = self.attribute(number.as_deref(), began);
        let attributed = tokio::time::timeout_at(began_at + deadline * 3 / 4, attributed).await;
        change.attribution = attributed.ok().and_then(Result::ok);
        change.looked_up = Some((number.clone(), began));
        let destination = if let Some(entry) = self.block(&caller, &serving) {
            Self::refuse(&mut change, &entry, call.received)
        } else {
            // If the user's program chooses the destination, only the last tenth of the time until
            // the deadline is reserved for storing the call.
            let asked_until = began_at + deadline * 9 / 10;
            self.choose(&mut change, &serving, call.received, asked_until).await
        };
        let attribution = change.attribution.clone();
        let is_stored = self.hand_over(change, until).await;
        if let Some(span) = &mut span {
            let attribution = attribution.as_ref().map_or("pending", |it| it.outcome.name());
            span.text("ringwell.attribution", attribution);
            span.text("ringwell.stored", if is_stored { "yes" } else { "not yet" });
        }
        Decision { call: id, number, caller, destination, attribution }
    }

    /// Logs the events of a call.
    ///
    /// # Errors
    /// [`NotStored`].
    pub async fn report(&self, call: IncomingCall) -> Result<String, NotStored> {
        self.report_within(STORE_MAX, call).await
    }

    /// Logs a call's events while the caller waits for the next destination. Returns within the
    /// time limit for calls. Events that have not been stored by then are stored later.
    pub async fn report_while_ringing(&self, call: IncomingCall) {
        let _ = self.report_within(self.settings().deadline, call).await;
    }

    async fn report_within(&self, wait: Duration, call: IncomingCall) -> Result<String, NotStored> {
        let until = Instant::now() + wait;
        let change = self.change(&call).await;
        let id = change.id();
        let _span = trace("a report about a call", Kind::Server, || Some(id.clone()));
        if self.hand_over(change, until).await { Ok(id) } else { Err(NotStored) }
    }

    async fn change(&self, call: &IncomingCall) -> CallChange {
        let caller = match call.from.as_deref().map(Caller::read) {
            None => None,
            Some(caller) => Some(self.stored_caller(caller, call).await),
        };
        // Removes control characters: PostgreSQL cannot store NUL, and no call may be lost because
        // of it.
        let plain = |text: &str| text.replace(char::is_control, "");
        let reported = |event: &CallEvent| ReportedEvent {
            event: CallEvent { key: plain(&event.key), ..event.clone() },
            received: call.received,
        };
        let stir = call.stir.as_ref().map(|stir| Stir {
            verstat: stir.verstat.as_deref().map(plain),
            attestation: stir.attestation.as_deref().map(plain),
        });
        CallChange {
            account: call.account.clone(),
            provider: call.provider.clone(),
            provider_call: call.provider_call.clone(),
            events: call.events.iter().map(reported).collect(),
            seen: call.events.is_empty().then_some(call.received),
            number: call.to.as_deref().and_then(called),
            caller,
            destination: None,
            stir,
            attribution: None,
            looked_up: None,
            blocked: None,
        }
    }

    /// Submits `change` to the writer. Returns whether the change was stored by `until`, either in
    /// the log or in the backlog file. If too many changes are already waiting, `change` is
    /// dropped. Otherwise, it is stored even if `until` passes first. Once the change is in the
    /// log, starts looking up the visitor if the call is not attributed yet.
    async fn hand_over(&self, change: CallChange, until: Instant) -> bool {
        let submitted = self.inner.writer.submit_report(change.clone(), until);
        let Ok(Submitted { applied, kept }) = submitted else {
            if let Some(left_out) = NOT_LOGGED.pass() {
                tracing::error!(
                    call = change.id(),
                    left_out,
                    "a call was not logged: too many calls are waiting for the call log"
                );
            }
            return false;
        };
        let service = self.clone();
        let stored = tokio::spawn(async move {
            let applied = applied.await.ok();
            if let Some(applied) = &applied {
                service.complete(&change, applied);
            }
            applied.is_some()
        });
        let is_safe = async {
            tokio::select! {
                stored = stored => matches!(stored, Ok(true)),
                Ok(()) = kept => true,
            }
        };
        tokio::time::timeout_at(until, is_safe).await.unwrap_or(false)
    }

    /// Starts the look-up of the visitor if the call is not attributed yet.
    fn complete(&self, change: &CallChange, applied: &Applied) {
        if let Some((number, at)) = applied.unattributed.clone() {
            self.look_for(change, number, at);
        }
    }
}

#[cfg(test)]
mod tests;
