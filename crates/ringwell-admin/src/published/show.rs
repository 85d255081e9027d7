//! Shows a ring pool in the format of the published API.

use ringwell_store::{Pool, Role, Store, StoreError};
use serde_json::{Value, json};

use super::fields::OLDER;
use super::members::Members;

/// The members that `nested.rs` checks and stores, in the order of output.
const KEPT: [&str; 5] = [
    "local_center",
    "local_number_preferences",
    "tn_prefix_whitelist",
    "destination_type",
    "hours_of_operation",
];

/// Shows `pool` to a visitor with this role. `url` is the pool's URL in the published API.
pub(super) async fn pool(
    store: &Store,
    pool: &Pool,
    url: &str,
    role: Role,
) -> Result<Members, StoreError> {
    let settings = &pool.settings;
    let customer = match &settings.destination {
        None => None,
        Some(number) => {
            let tag = store.destination_tag(&settings.scope.network, number).await?;
            let tag = tag.map_or(Value::Null, |tag| json!({ "obfuscated_tag_id": tag }));
            Some(Members(vec![
                ("destination_phone_number".into(), number.clone().into()),
                ("js_tag".into(), tag),
            ]))
        }
    };
    let customer = customer.map(|it| serde_json::to_value(it).unwrap_or_default());
    // During a key change, clients are shown the new key.
    let key = pool.next_key.as_ref().unwrap_or(&pool.key).reveal();
    let lifetime = settings.lifetime.0.div_ceil(1000);
    let mut members: Vec<(&str, Value)> = vec![
        ("id", pool.id.0.into()),
        ("id_from_network", settings.id_from_network.clone().into()),
        ("name", settings.name.clone().into()),
        ("lifetime_seconds", lifetime.into()),
        ("max_pool_size", settings.max_pool_size.into()),
        ("preferred", settings.preferred.into()),
        // With the key, a client can take all of the pool's numbers.
        ("api_key", Some(key).filter(|_| role >= Role::Write).into()),
        ("object_url", url.into()),
        ("fill_immediately", settings.fill_immediately.into()),
        ("allow_overflow", settings.allow_overflow.into()),
        ("customer_phone_numbers", customer.clone().into_iter().collect::<Vec<_>>().into()),
        ("default_customer_phone_number", customer.unwrap_or_default()),
    ];
    let kept = |name: &'static str| Some((name, settings.kept.get(name)?.clone()));
    members.extend(KEPT.into_iter().filter_map(kept));
    let urls =
        [("destination_url", &settings.destination_url), ("tracking_url", &settings.tracking_url)];
    let given = urls.into_iter().filter(|(_, url)| !url.is_empty());
    members.extend(given.map(|(name, url)| (name, url.clone().into())));
    members.extend(OLDER.into_iter().filter_map(kept));
    Ok(Members(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
}
