use super::*;

/// Five area codes in California, Nevada and New York, and two zip codes.
fn places() -> Places {
    let place = |state: &str, latitude, longitude| Place {
        point: Point::new(latitude, longitude).unwrap(),
        state: StateCode::parse(state).unwrap(),
    };
    let area = |digits| AreaCode::new(digits).unwrap();
    let mut places = Places::default();
    assert!(places.add_area(area(805), place("CA", 34.42, -119.70)));
    assert!(places.add_area(area(213), place("CA", 34.05, -118.24)));
    assert!(places.add_area(area(415), place("CA", 37.77, -122.42)));
    assert!(places.add_area(area(702), place("NV", 36.17, -115.14)));
    assert!(places.add_area(area(212), place("NY", 40.78, -73.97)));
    assert!(places.add_zip(ZipCode::parse("93101").unwrap(), place("CA", 34.42, -119.71)));
    assert!(places.add_zip(ZipCode::parse("89101").unwrap(), place("NV", 36.17, -115.12)));
    places
}

fn check(center: &str, radius_miles: u64, in_state: bool, only: &[u16], expected: &[u16]) {
    let center = match center.split_once(' ') {
        _ if center.is_empty() => None,
        None if center.len() == 3 => AreaCode::new(center.parse().unwrap()).map(Center::Area),
        None => ZipCode::parse(center).map(Center::Zip),
        Some((north, east)) => {
            Point::new(north.parse().unwrap(), east.parse().unwrap()).map(Center::Point)
        }
    };
    let only = only.iter().map(|digits| AreaCode::new(*digits).unwrap()).collect();
    let search = Search { center, radius_miles, in_state, only };
    let found = places().area_codes(&search);
    let found: Vec<u16> = found.into_iter().map(|area| area.0).collect();
    assert_eq!(found, expected, "{search:?}");
}

#[test]
fn area_codes_within_the_radius_are_sorted_by_distance() {
    check("93101", 240, false, &[], &[805, 213]);
    check("93101", 300, false, &[], &[805, 213, 415, 702]);
    check("93101", 3000, false, &[], &[805, 213, 415, 702, 212]);
}

#[test]
fn a_search_within_the_state_excludes_near_places_across_its_border() {
    check("93101", 3000, true, &[], &[805, 213, 415]);
    check("89101", 3000, true, &[], &[702]);
}

#[test]
fn the_requested_area_code_comes_first_even_if_its_place_is_unknown() {
    check("213", 100, true, &[], &[213, 805]);
    check("213", 0, true, &[], &[213]);
    check("303", 240, true, &[], &[303]);
}

#[test]
fn a_point_is_in_the_state_of_the_nearest_place() {
    check("34.0 -118.5", 240, true, &[], &[213, 805]);
    check("36.2 -115.2", 3000, true, &[], &[702]);
}

#[test]
fn a_list_of_area_codes_limits_the_search_or_is_used_alone() {
    check("93101", 3000, false, &[212, 213], &[213, 212]);
    check("213", 240, true, &[805], &[805]);
    check("", 0, true, &[415, 212], &[415, 212]);
}

#[test]
fn an_unknown_zip_code_is_near_nothing() {
    check("00000", 3000, false, &[], &[]);
}

#[test]
fn distances_are_those_of_great_circles() {
    let point = |north, east| Point::new(north, east).unwrap();
    let new_york = point(40.7128, -74.0060);
    // A degree of a great circle is 1/360 of the earth's circumference.
    let degree = 2.0 * std::f64::consts::PI * EARTH_MILES / 360.0;
    assert!((point(0.0, 0.0).miles_to(point(0.0, 1.0)) - degree).abs() < 1e-6);
    assert!((point(10.0, 179.5).miles_to(point(11.0, 179.5)) - degree).abs() < 1e-6);
    assert!((point(0.0, 179.5).miles_to(point(0.0, -179.5)) - degree).abs() < 1e-6);
    assert!((new_york.miles_to(point(34.0522, -118.2437)) - 2446.0).abs() < 2.0);
    assert!((point(90.0, 0.0).miles_to(point(-90.0, 7.0)) - 180.0 * degree).abs() < 1e-6);
}

#[test]
fn codes_have_their_digits_and_numbers() {
    assert_eq!(AreaCode::new(199), None);
    assert_eq!(AreaCode::new(1000), None);
    let number = PromoNumber::parse("8885550142").unwrap();
    assert!(AreaCode::of(number).unwrap().is_toll_free());
    let numbers = AreaCode::new(999).unwrap().numbers().unwrap();
    assert_eq!(numbers.last().to_string(), "9999999999");
    assert_eq!(ZipCode::parse("0210"), None);
    assert_eq!(ZipCode::parse("02108"), Some(ZipCode(2108)));
    assert_eq!(StateCode::parse("ca"), None);
    assert_eq!(Point::new(f64::NAN, 0.0), None);
}
