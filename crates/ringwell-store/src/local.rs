//! A pool's preferences for its numbers, read from the fields of the published API that are stored
//! with the pool.
//!
//! The fields were checked when they were received. A field with an invalid value counts as
//! missing. Source: docs/spec/directory.md, "Local numbers".

use ringwell_directory::{AreaCode, Center, Point, Search, ZipCode};
use serde_json::{Map, Value};

/// A preference for local numbers, and what happens if there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) search: Search,
    /// Whether the pool takes toll-free numbers if there are no local ones. If `false`, the pool
    /// waits for local numbers.
    pub(crate) or_toll_free: bool,
}

/// The default search radius in the published API.
const RADIUS_MILES: u64 = 240;

impl Local {
    /// Returns the preferences in `kept`, or `None` if the pool accepts every number.
    pub(crate) fn of(kept: &Map<String, Value>) -> Option<Self> {
        let center = kept.get("local_center").and_then(center);
        let only: Vec<_> = list(kept.get("tn_prefix_whitelist")).filter_map(area).collect();
        if center.is_none() && only.is_empty() {
            return None;
        }
        let preferences = kept.get("local_number_preferences");
        let given = |name: &str| preferences.and_then(|it| it.get(name));
        let radius_miles = given("search_radius_miles").and_then(Value::as_u64);
        let in_state = given("restrict_search_to_state").and_then(Value::as_bool);
        let fallback = given("allocation_fallback_strategy").and_then(Value::as_str);
        let search = Search {
            center,
            radius_miles: radius_miles.unwrap_or(RADIUS_MILES),
            in_state: in_state.unwrap_or(true),
            only,
        };
        Some(Self { search, or_toll_free: fallback != Some("Wait") })
    }
}

fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

fn center(value: &Value) -> Option<Center> {
    if let Some(prefix) = value.get("tn_prefix") {
        return area(prefix).map(Center::Area);
    }
    if let Some(zip) = value.get("zipcode") {
        return ZipCode::parse(&text(zip)).map(Center::Zip);
    }
    let degrees = |name: &str| text(value.get(name)?).parse().ok();
    Point::new(degrees("latitude")?, degrees("longitude")?).map(Center::Point)
}

fn area(value: &Value) -> Option<AreaCode> {
    AreaCode::new(text(value).trim().parse().ok()?)
}

/// Returns the contents of a JSON string, or any other value as JSON text.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
