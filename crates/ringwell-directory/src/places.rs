//! The places of area codes and zip codes, and the area codes near a place.
//!
//! Owns distances, states and the toll-free codes. The configuration supplies the places, and the
//! database of pools supplies the numbers. A number's place is known only from its area code.
//! Source: docs/spec/directory.md, "Local numbers".

use std::collections::BTreeMap;
use std::fmt;

use ringwell_core::{NumberRange, PromoNumber};

/// The first three digits of a ten-digit promo number: 200 to 999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AreaCode(u16);

/// Five digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZipCode(u32);

/// A state or province: two capital letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateCode([u8; 2]);

/// A point on the earth, in millionths of a degree (11 cm).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point {
    latitude: i32,
    longitude: i32,
}

/// The place of an area code or a zip code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its centre.
    pub point: Point,
    /// Its state.
    pub state: StateCode,
}

/// All known places. `Debug` shows only how many there are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Places {
    areas: BTreeMap<AreaCode, Place>,
    zips: BTreeMap<ZipCode, Place>,
}

/// The centre of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Center {
    /// The place of numbers with this area code.
    Area(AreaCode),
    /// A zip code.
    Zip(ZipCode),
    /// A point.
    Point(Point),
}

/// A search for local numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// The centre; if it is `None`, the search finds the area codes in `only`, wherever they are.
    pub center: Option<Center>,
    /// The maximum distance from the centre, in miles.
    pub radius_miles: u64,
    /// Whether to search only in the centre's state.
    pub in_state: bool,
    /// The only area codes to search; if the list is empty, all are searched.
    pub only: Vec<AreaCode>,
}

/// The earth's mean radius (6,371.0088 km, IUGG).
const EARTH_MILES: f64 = 3958.761;

impl AreaCode {
    /// Toll-free area codes that are in service in North America.
    pub const TOLL_FREE: [Self; 7] =
        [Self(800), Self(833), Self(844), Self(855), Self(866), Self(877), Self(888)];

    /// The area code with these digits, if it is valid.
    #[must_use]
    pub const fn new(digits: u16) -> Option<Self> {
        if digits >= 200 && digits <= 999 { Some(Self(digits)) } else { None }
    }

    /// The area code of `number`, or `None` if its country code is not 1.
    #[must_use]
    pub fn of(number: PromoNumber) -> Option<Self> {
        let digits = number.to_nanp()? / u64::from(Self::NUMBERS);
        // Dropping the last seven of ten digits leaves three.
        u16::try_from(digits).ok().map(Self)
    }

    /// Whether calls to the area code's numbers are free. A toll-free area code has no geographic
    /// location.
    #[must_use]
    pub fn is_toll_free(self) -> bool {
        Self::TOLL_FREE.contains(&self)
    }

    /// The range of all numbers with this area code.
    #[must_use]
    pub fn numbers(self) -> Option<NumberRange> {
        let first = PromoNumber::from_code(u64::from(self.0) * u64::from(Self::NUMBERS))?;
        NumberRange::new(first, Self::NUMBERS)
    }

    const NUMBERS: u32 = 10_000_000;
}

impl fmt::Display for AreaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl ZipCode {
    /// Parses a zip code, which must have exactly five digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_zip = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
        is_zip.then(|| text.parse().ok().map(Self)).flatten()
    }
}

impl StateCode {
    /// Parses a state code, which must be two capital letters. Does not check that the state
    /// exists.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let letters = <[u8; 2]>::try_from(text.as_bytes()).ok()?;
        letters.iter().all(u8::is_ascii_uppercase).then_some(Self(letters))
    }
}

impl Point {
    /// The point at `latitude` and `longitude`, in degrees north and east; `None` if either is out
    /// of range.
    #[must_use]
    pub fn new(latitude: f64, longitude: f64) -> Option<Self> {
        let fits = latitude.abs() <= 90.0 && longitude.abs() <= 180.0;
        fits.then(|| Self { latitude: millionths(latitude), longitude: millionths(longitude) })
    }

    /// The great-circle distance to `other` in miles, by the haversine formula.
    #[must_use]
    pub fn miles_to(self, other: Self) -> f64 {
        let radians = |millionths: i32| (f64::from(millionths) / 1e6).to_radians();
        let (north, other_north) = (radians(self.latitude), radians(other.latitude));
        let half = |from: f64, to: f64| ((to - from) / 2.0).sin().powi(2);
        let east = half(radians(self.longitude), radians(other.longitude));
        let chord = half(north, other_north) + north.cos() * other_north.cos() * east;
        2.0 * EARTH_MILES * chord.sqrt().min(1.0).asin()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most 180 million")]
fn millionths(degrees: f64) -> i32 {
    (degrees * 1e6).round() as i32
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Places of {} area codes and {} zip codes", self.areas.len(), self.zips.len())
    }
}

impl Places {
    /// Sets the place of an area code. Returns `false` if this replaces an earlier place.
    pub fn add_area(&mut self, area: AreaCode, place: Place) -> bool {
        self.areas.insert(area, place).is_none()
    }

    /// Sets the place of a zip code. Returns `false` if this replaces an earlier place.
    pub fn add_zip(&mut self, zip: ZipCode, place: Place) -> bool {
        self.zips.insert(zip, place).is_none()
    }

    /// The count of area codes with known places, and the count of zip codes with known places.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.areas.len(), self.zips.len())
    }

    /// Whether the place of `center` is known.
    #[must_use]
    pub fn knows(&self, center: Center) -> bool {
        self.find(center).is_some()
    }

    /// The area codes that match `search`, sorted by distance from the centre, then numerically. If
    /// the centre is itself an area code, it comes first, even if its place is unknown. If there is
    /// no centre, the result is `only`, in unchanged order.
    #[must_use]
    pub fn area_codes(&self, search: &Search) -> Vec<AreaCode> {
        let Some(center) = search.center else { return search.only.clone() };
        let own = match center {
            Center::Area(area) => Some(area),
            Center::Zip(_) | Center::Point(_) => None,
        };
        let is_wanted = |area: &AreaCode| search.only.is_empty() || search.only.contains(area);
        let mut found: Vec<_> = own.filter(is_wanted).map(|area| (0.0, area)).into_iter().collect();
        if let Some(place) = self.find(center) {
            #[expect(clippy::cast_precision_loss, reason = "no distance exceeds 12,500 miles")]
            let radius = search.radius_miles as f64;
            let is_local = |area: &AreaCode| is_wanted(area) && Some(*area) != own;
            let others = self.areas.iter().filter(|(area, _)| is_local(area));
            let others = others.filter(|(_, it)| !search.in_state || it.state == place.state);
            let others = others.map(|(area, it)| (it.point.miles_to(place.point), *area));
            found.extend(others.filter(|(miles, _)| *miles <= radius));
        }
        let own_first = |area: AreaCode| own != Some(area);
        found.sort_by(|a, b| {
            own_first(a.1).cmp(&own_first(b.1)).then(a.0.total_cmp(&b.0)).then(a.1.cmp(&b.1))
        });
        found.into_iter().map(|(_, area)| area).collect()
    }

    /// The place of `center`. A point is assumed to be in the state of the nearest known place.
    fn find(&self, center: Center) -> Option<Place> {
        match center {
            Center::Area(area) => self.areas.get(&area).copied(),
            Center::Zip(zip) => self.zips.get(&zip).copied(),
            Center::Point(point) => {
                let miles = |place: &&Place| place.point.miles_to(point);
                let all = self.areas.values().chain(self.zips.values());
                let nearest = all.min_by(|a, b| miles(a).total_cmp(&miles(b)))?;
                Some(Place { point, state: nearest.state })
            }
        }
    }
}

#[cfg(test)]
mod tests;
