//! The members of a ring pool that are objects or lists: local numbers and opening hours.
//!
//! Checks these members, and stores them as they are shown.

use ringwell_store::PoolSettings;
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::values::{integer, truth};

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const QUARTER_MINUTES: u16 = 15;

type Faults = Vec<(String, String)>;

/// Converts the objects and lists in `body` and stores them in `settings`.
///
/// # Errors
/// [`Fault::Nested`] if one of these objects has an unknown member.
pub(super) fn read(
    body: &Map<String, Value>,
    settings: &mut PoolSettings,
    faults: &mut Faults,
) -> Result<(), Fault> {
    let has_destination = settings.destination.is_some();
    let kept = &mut settings.kept;
    if let Some(value) = body.get("local_center") {
        local_center(value, kept, faults)?;
    }
    if let Some(value) = body.get("local_number_preferences") {
        preferences(value, kept, faults)?;
    }
    if let Some(value) = body.get("tn_prefix_whitelist") {
        prefixes(value, kept, faults);
    }
    match body.get("destination_type") {
        None | Some(Value::Null) => {}
        Some(Value::String(kind)) if kind == "Advertiser" || kind == "API" => {
            kept.insert("destination_type".to_owned(), kind.clone().into());
        }
        Some(_) => faults.push(fault("destination_type", "is not Advertiser or API")),
    }
    if let Some(value) = body.get("hours_of_operation") {
        hours(value, has_destination, kept, faults)?;
    }
    Ok(())
}

fn fault(field: &str, message: &str) -> (String, String) {
    (field.to_owned(), message.to_owned())
}

/// Whether `value` is empty. A member that is set to an empty value is deleted.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The members of `value`. Their names must all be in `known`.
fn members<'a>(
    value: &'a Value,
    known: &[&str],
    of: &'static str,
) -> Result<&'a Map<String, Value>, Fault> {
    let members = value.as_object().ok_or(Fault::Nested(of))?;
    let all_known = members.keys().all(|name| known.contains(&name.as_str()));
    if all_known { Ok(members) } else { Err(Fault::Nested(of)) }
}

fn is_prefix(value: &Value) -> bool {
    integer(value).is_some_and(|prefix| (200..=999).contains(&prefix))
}

fn local_center(
    value: &Value,
    kept: &mut Map<String, Value>,
    faults: &mut Faults,
) -> Result<(), Fault> {
    if is_nothing(value) {
        kept.remove("local_center");
        return Ok(());
    }
    let known = ["tn_prefix", "zipcode", "latitude", "longitude"];
    let center = members(value, &known, "Local Center")?;
    let degrees = |name: &str, most: f64| {
        let value = center.get(name);
        let number = value.and_then(|it| it.as_f64().or_else(|| it.as_str()?.parse().ok()));
        number.is_some_and(|number| number.abs() <= most)
    };
    let is_valid = match center.len() {
        1 if center.contains_key("tn_prefix") => is_prefix(&center["tn_prefix"]),
        1 => center.get("zipcode").is_some_and(|zip| {
            let text = zip.as_str().map_or_else(|| zip.to_string(), str::to_owned);
            text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit())
        }),
        2 => degrees("latitude", 90.0) && degrees("longitude", 180.0),
        _ => false,
    };
    if is_valid {
        kept.insert("local_center".to_owned(), value.clone());
    } else {
        let message = "must be one of tn_prefix, zipcode, latitude and longitude";
        faults.push(fault("local_center", message));
    }
    Ok(())
}

fn preferences(
    value: &Value,
    kept: &mut Map<String, Value>,
    faults: &mut Faults,
) -> Result<(), Fault> {
    if is_nothing(value) {
        kept.remove("local_number_preferences");
        return Ok(());
    }
    let known = [
        "search_radius_miles",
        "restrict_search_to_state",
        "restrict_to_state",
        "allocation_fallback_strategy",
    ];
    let given = members(value, &known, "Local Number Preferences")?;
    let radius = given.get("search_radius_miles").map_or(Some(240), integer);
    // The older name, `restrict_to_state`, is read only if the newer name is absent.
    let state = given.get("restrict_search_to_state").or_else(|| given.get("restrict_to_state"));
    let state = state.map_or(Some(true), truth);
    let fallback = given.get("allocation_fallback_strategy").map_or(Some("UseTollFree"), |it| {
        it.as_str().filter(|name| ["UseTollFree", "Wait"].contains(name))
    });
    match (radius, state, fallback) {
        (Some(radius), Some(state), Some(fallback)) => {
            let preferences = json!({
                "search_radius_miles": radius,
                "restrict_search_to_state": state,
                "allocation_fallback_strategy": fallback,
            });
            kept.insert("local_number_preferences".to_owned(), preferences);
        }
        (radius, state, _) => {
            let message = match (radius, state) {
                (None, _) => "search_radius_miles is not a number",
                (_, None) => "restrict_search_to_state is not true or false",
                _ => "allocation_fallback_strategy is not UseTollFree or Wait",
            };
            faults.push(fault("local_number_preferences", message));
        }
    }
    Ok(())
}

fn prefixes(value: &Value, kept: &mut Map<String, Value>, faults: &mut Faults) {
    if is_nothing(value) {
        kept.remove("tn_prefix_whitelist");
        return;
    }
    match value.as_array().filter(|list| list.iter().all(is_prefix)) {
        Some(list) => {
            let text = |prefix: &Value| integer(prefix).map(|prefix| prefix.to_string().into());
            let list = list.iter().filter_map(text).collect();
            kept.insert("tn_prefix_whitelist".to_owned(), Value::Array(list));
        }
        None => faults.push(fault("tn_prefix_whitelist", "is not a list of area codes")),
    }
}

fn hours(
    value: &Value,
    has_destination: bool,
    kept: &mut Map<String, Value>,
    faults: &mut Faults,
) -> Result<(), Fault> {
    if is_nothing(value) {
        kept.remove("hours_of_operation");
        return Ok(());
    }
    let known = ["open_24_7", "time_zone", "schedules"];
    let given = members(value, &known, "Hours Of Operation")?;
    let mut say = |message: &str| faults.push(fault("hours_of_operation", message));
    if !has_destination {
        say("needs a destination_phone_number");
        return Ok(());
    }
    let mut spans = Vec::new();
    for schedule in given.get("schedules").and_then(Value::as_array).into_iter().flatten() {
        let known = ["day_of_week", "open_time", "close_time"];
        let schedule = members(schedule, &known, "Schedules")?;
        let day = schedule.get("day_of_week").and_then(Value::as_str);
        let day = day.and_then(|day| DAYS.iter().position(|known| known.eq_ignore_ascii_case(day)));
        let time = |name: &str| schedule.get(name).and_then(Value::as_str).and_then(minutes);
        match (day, time("open_time"), time("close_time")) {
            (Some(day), Some(open), Some(close)) if open < close => spans.push((day, open, close)),
            _ => {
                say("each schedule needs a day_of_week, an open_time and a later close_time; \
                     times must be in steps of 15 minutes");
                return Ok(());
            }
        }
    }
    spans.sort_unstable();
    if spans.windows(2).any(|pair| pair[0].0 == pair[1].0 && pair[0].2 > pair[1].1) {
        say("schedules overlap");
        return Ok(());
    }
    kept.insert("hours_of_operation".to_owned(), value.clone());
    Ok(())
}

/// Converts a time such as `09:30` to the number of minutes since midnight. This number must be a
/// multiple of 15. `24:00` is the end of the day.
fn minutes(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
    let all = hours.checked_mul(60)?.checked_add(minutes)?;
    (minutes < 60 && minutes.is_multiple_of(QUARTER_MINUTES) && all <= 24 * 60).then_some(all)
}
