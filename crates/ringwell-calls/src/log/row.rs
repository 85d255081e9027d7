//! A call, as stored in the log.

use ringwell_core::Millis;
use serde_json::{Value, json};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::error::LogError;
use super::places::{Places, padded};
use super::values::{from_ms, parsed};
use crate::attribution::Attribution;
use crate::call::{Facts, Outcome};
use crate::caller::Caller;
use crate::clock::moment;
use crate::provider::Stir;
use crate::robocall::Robocall;

/// A call in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRow {
    /// Ringwell's id for the call.
    pub id: String,
    /// The account that reported the call.
    pub account: String,
    /// The account's provider.
    pub provider: String,
    /// The provider's id for the call.
    pub provider_call: String,
    /// The count of changes to the call.
    pub sequence: u64,
    /// The facts: state, outcome, times and durations.
    pub facts: Facts,
    /// The called number in E.164 format, with `+`.
    pub number: Option<String>,
    /// The caller.
    pub caller: Caller,
    /// Whether this is the caller's first call. `None` for callers without a number.
    pub first_time: Option<bool>,
    /// The first destination that the call was sent to.
    pub destination: Option<String>,
    /// The visitor to whom the number was shown.
    pub attribution: Attribution,
    /// The telephone network's verdict on whether the caller's number is genuine.
    pub stir: Option<Stir>,
    /// The time at which the caller and the visitor were removed.
    pub redacted_at: Option<Millis>,
    /// If the call was refused, the id of the matching entry in the list of blocked callers.
    pub blocked: Option<String>,
    /// The robocall score. `None` until it is computed.
    pub robocall: Option<Robocall>,
    pub(super) published: String,
}

/// Selects the columns that [`CallRow::read`] needs.
pub(super) const CALL: &str = "SELECT id, account, provider, provider_call_id, sequence, started_ms, \
                               number, caller, first_time, destination, attribution, stir, facts, \
                               published, redacted_ms, blocked, robocall, robocall_reasons \
                               FROM calls ";

impl CallRow {
    pub(super) fn read(row: &AnyRow) -> Result<Self, LogError> {
        let caller: Option<String> = row.try_get("caller")?;
        let sequence: i64 = row.try_get("sequence")?;
        let first_time: Option<i64> = row.try_get("first_time")?;
        let mut facts: Facts = parsed(Some(row.try_get("facts")?))?.unwrap_or_default();
        facts.keep_beginning(from_ms(row.try_get("started_ms")?));
        Ok(Self {
            id: row.try_get("id")?,
            account: row.try_get("account")?,
            provider: row.try_get("provider")?,
            provider_call: row.try_get("provider_call_id")?,
            sequence: u64::try_from(sequence).unwrap_or_default(),
            facts,
            number: row.try_get("number")?,
            caller: Caller::from_column(caller.as_deref()),
            first_time: first_time.map(|it| it != 0),
            destination: row.try_get("destination")?,
            attribution: parsed(row.try_get("attribution")?)?.unwrap_or_default(),
            stir: parsed(row.try_get("stir")?)?,
            redacted_at: row.try_get::<Option<i64>, _>("redacted_ms")?.map(from_ms),
            blocked: row.try_get("blocked")?,
            robocall: robocall(row)?,
            published: row.try_get("published")?,
        })
    }

    /// Converts the call to JSON for the API and webhooks.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let facts = &self.facts;
        let caller = match &self.caller {
            Caller::Withheld if self.redacted_at.is_some() => erased_caller(),
            Caller::Withheld => json!({ "withheld": true }),
            Caller::E164(number) => json!({ "e164": number }),
            Caller::Sip(address) => json!({ "sip": address }),
            Caller::Hash(hash) => json!({ "hash": hash }),
        };
        json!({
            "id": self.id,
            "account": self.account,
            "provider": self.provider,
            "provider_call_id": self.provider_call,
            "direction": "inbound",
            "to": self.number,
            "from": caller,
            "started_at": moment(facts.started_at()),
            "answered_at": facts.answered_at().map(moment),
            "ended_at": facts.ended_at().map(moment),
            "state": facts.state().name(),
            "outcome": facts.outcome().map(Outcome::name),
            "ring_seconds": facts.ring().map(|ring| ring.0 / 1000),
            "talk_seconds": facts.talk_seconds(),
            "destination": self.destination,
            "pool": self.attribution.pool,
            "attribution": self.shown_attribution(),
            "stir": self.stir,
            "first_time_caller": self.first_time,
            "blocked": self.blocked,
            "robocall": self.robocall.as_ref().map(|it| json!({
                "score": it.score, "reasons": it.reasons,
            })),
            "sequence": self.sequence,
        })
    }

    fn shown_attribution(&self) -> Value {
        let it = &self.attribution;
        let shown = |allocation: &crate::attribution::Allocation| {
            let parameters: serde_json::Map<String, Value> =
                allocation.parameters.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
            json!({
                "allocated_at": moment(Millis(allocation.allocated_ms)),
                "locked_until": moment(Millis(allocation.locked_until_ms)),
                "late": allocation.late,
                "tapped_at": allocation.tapped_ms.map(|tap| moment(Millis(tap))),
                "probability": allocation.probability,
                "parameters": parameters,
            })
        };
        let mut value = json!({ "outcome": it.outcome.name() });
        if let (Some(members), Some(allocation)) = (value.as_object_mut(), &it.allocation)
            && let Value::Object(more) = shown(allocation)
        {
            members.extend(more);
            members.remove("probability");
            members.insert("confidence".to_owned(), json!(it.confidence));
            let earlier: Vec<Value> = it.earlier.iter().map(shown).collect();
            members.insert("earlier".to_owned(), Value::Array(earlier));
        }
        if let (Some(members), Some(problem)) = (value.as_object_mut(), &it.problem) {
            members.insert("problem".to_owned(), json!(problem));
        }
        value
    }
}

/// The JSON of a caller who was erased.
pub(super) fn erased_caller() -> Value {
    json!({ "withheld": true, "erased": true })
}

fn robocall(row: &AnyRow) -> Result<Option<Robocall>, LogError> {
    let score: Option<i64> = row.try_get("robocall")?;
    let reasons: Option<String> = row.try_get("robocall_reasons")?;
    let reasons = reasons.unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect();
    let score = score.and_then(|score| u8::try_from(score).ok());
    Ok(score.map(|score| Robocall { score, reasons }))
}

/// Reads the calls with the given ids. Ids without a call are ignored.
pub(super) async fn calls_of(
    db: &mut AnyConnection,
    ids: &[String],
) -> Result<Vec<CallRow>, LogError> {
    let ids = padded(ids);
    let statement = format!("{CALL} WHERE id IN ({})", Places::of(db).list(ids.len()));
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for id in ids {
        query = query.bind(id);
    }
    query.fetch_all(db).await?.iter().map(CallRow::read).collect()
}
