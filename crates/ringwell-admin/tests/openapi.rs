//! Checks that the OpenAPI document describes every path of `/v1/` and no other path.

use std::fs;
use std::path::Path;

#[test]
fn the_document_has_the_paths_of_the_router() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/v1/mod.rs");
    let source = fs::read_to_string(source).unwrap();
    let routes = source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next());
    // The document does not contain its own path.
    let mut routes: Vec<_> = routes.filter(|path| *path != "/v1/openapi.json").collect();
    routes.sort_unstable();
    let document = serde_json::to_value(ringwell_admin::openapi()).unwrap();
    let mut described: Vec<_> = document["paths"].as_object().unwrap().keys().collect();
    described.sort_unstable();
    assert_eq!(described, routes);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for name in ["PoolView", "StateView", "NumberRun", "Report", "TokenView", "AuditView"] {
        assert!(schemas.contains_key(name), "{name} is not described");
    }
}
