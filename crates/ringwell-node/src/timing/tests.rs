use std::time::Duration;

use hyper::Response;

use super::{BYTES_MAX, time_headers, write};
use crate::response::AnswerBody;

fn written(us: u64) -> [String; 2] {
    let mut text = [0; BYTES_MAX];
    let (timing, whole) = write(us, &mut text);
    [timing, whole].map(|part| str::from_utf8(part).unwrap().to_owned())
}

#[test]
fn times_are_milliseconds_with_three_decimals() {
    for (us, timing, whole) in [
        (0, "total;dur=0.000", "0"),
        (7, "total;dur=0.007", "0"),
        (999, "total;dur=0.999", "0"),
        (1_000, "total;dur=1.000", "1"),
        (12_345, "total;dur=12.345", "12"),
        (u64::MAX, "total;dur=18446744073709551.615", "18446744073709551"),
    ] {
        assert_eq!(written(us), [timing, whole]);
    }
}

#[test]
fn any_time_is_written_as_formatting_would() {
    let near_powers = (0..u64::BITS).flat_map(|bit| {
        let power = 1_u64 << bit;
        [power - 1, power, power + 1, power.wrapping_mul(999)]
    });
    for us in near_powers.chain(0..20_000) {
        let timing = format!("total;dur={}.{:03}", us / 1000, us % 1000);
        assert_eq!(written(us), [timing, (us / 1000).to_string()]);
    }
}

#[test]
fn later_times_replace_earlier_ones() {
    let mut response = Response::new(AnswerBody::from(Vec::new()));
    time_headers(&mut response, Duration::from_millis(5));
    time_headers(&mut response, Duration::from_micros(17_250));
    let headers = response.headers();
    let all = |name| headers.get_all(name).iter().collect::<Vec<_>>();
    assert_eq!(all("processing-time"), ["17"]);
    assert_eq!(all("server-timing"), ["total;dur=17.250"]);
}
