use proptest::prelude::*;

use super::*;

#[test]
fn the_two_requests_of_the_published_api_are_recognised_under_any_date() {
    for date in ["2012-01-10", "2013-07-01", "2021-02-11", "2026-05-01", "1999-12-31"] {
        assert_eq!(route(&format!("/api/{date}/bulk.json")), Ok(Route::Bulk));
    }
    for (extension, format) in [("json", Format::Json), ("xml", Format::Xml), ("csv", Format::Csv)]
    {
        let path = format!("/api/2015-12-09/ring_pools/16/allocate_number.{extension}");
        assert_eq!(route(&path), Ok(Route::Allocate { pool: "16", format }));
    }
}

#[test]
fn a_version_that_is_not_a_date_is_refused() {
    for date in [
        "",
        "v1",
        "2013-7-1",
        "2013-13-01",
        "2013-00-01",
        "2013-07-32",
        "2013-07-00",
        "20130701",
        "2013-07-01x",
    ] {
        assert_eq!(
            route(&format!("/api/{date}/bulk.json")),
            Err(RequestError::BadVersion),
            "{date}"
        );
    }
}

#[test]
fn base_urls_with_a_final_slash_or_capitals_are_harmless() {
    for path in
        ["//api/2013-07-01/bulk.json", "/api/2013-07-01/bulk.json/", "///api/2013-07-01/bulk.JSON"]
    {
        assert_eq!(route(path), Ok(Route::Bulk), "{path}");
    }
    let path = "//api/2013-07-01/ring_pools/16/allocate_number.XML/";
    assert_eq!(route(path), Ok(Route::Allocate { pool: "16", format: Format::Xml }));
}

#[test]
fn no_other_path_exists() {
    for path in [
        "",
        "/",
        "/api",
        "/api/",
        "/api/2013-07-01",
        "/api/2013-07-01/",
        "/api/2013-07-01/bulk.xml",
        "/api/2013-07-01/bulk.json//",
        "/api/2013-07-01/bulk",
        "api/2013-07-01/bulk.json",
        "/./api/2013-07-01/bulk.json",
        "/api/2013-07-01/ring_pools/16/allocate_number",
        "/api/2013-07-01/ring_pools/16/allocate_number.pdf",
        "/api/2013-07-01/ring_pools/16",
        "/API/2013-07-01/bulk.json",
    ] {
        assert_eq!(route(path), Err(RequestError::NotFound), "{path}");
    }
}

proptest! {
    #[test]
    fn no_path_makes_it_panic(path in any::<String>(), date in "/api/[0-9-]{0,11}/.{0,40}") {
        let _ = (route(&path), route(&date));
    }
}
