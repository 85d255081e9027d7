use super::values::{amount, percent, span};
use super::*;

fn plan(load: f64, asked: Option<u32>) -> pool::PoolPlan {
    let demand = Demand::of_load(load, Duration::from_mins(30)).unwrap();
    pool::PoolPlan::new(demand, 0.01, asked, Callers::assumed()).unwrap()
}

#[test]
fn the_table_marks_the_target_size_and_the_requested_one() {
    let text = plan(80.0, Some(100)).text(false);
    let line = |end: &str| text.lines().find(|line| line.ends_with(end)).unwrap().to_owned();
    let words = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(line("<- 1.00 % target"))[0], "96");
    assert_eq!(words(line("<- --numbers"))[..3], ["100", "0.399", "%"]);
    assert!(!text.contains('\x1b'), "colours are for terminals");
    assert!(plan(80.0, None).text(true).contains('\x1b'));
}

#[test]
fn lines_of_the_table_fit_a_terminal() {
    for load in [0.5, 80.0, 90_000.0] {
        let text = plan(load, Some(7)).text(false);
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= 100, "{longest} columns:\n{text}");
    }
}

#[test]
fn the_plot_falls_from_left_to_right() {
    let text = plan(80.0, None).text(false);
    let rows = text.lines().filter(|line| line.get(10..11).is_some_and(|c| "|+".contains(c)));
    let columns: Vec<_> = rows.filter_map(|row| row.find('o')).collect();
    assert!(columns.len() > 8, "{text}");
    assert!(columns.is_sorted(), "{text}");
}

#[test]
fn the_drawing_is_complete_and_needs_no_other_file() {
    let svg = svg::draw(&plan(80.0, Some(120)));
    for part in ["<svg ", "96 for the target", "120 as asked", "overflow", "0.010 %", "</svg>"] {
        assert!(svg.contains(part), "no {part:?} in\n{svg}");
    }
    assert!(!svg.contains("href") && !svg.contains("NaN"), "{svg}");
}

#[test]
fn shares_amounts_and_spans_are_read_and_written_as_people_do() {
    assert_eq!(parse_share("1%").map(|share| format!("{share}")), Ok("0.01".to_owned()));
    assert!(parse_share("101%").is_err() && parse_share("-1").is_err() && parse_share("").is_err());
    assert_eq!(parse_amount("127k").map(amount), Ok("127,000".to_owned()));
    assert_eq!(parse_amount("5.5G").map(amount), Ok("5,500,000,000".to_owned()));
    assert!(
        parse_amount("0").is_err() && parse_amount("k").is_err() && parse_amount("inf").is_err()
    );
    assert_eq!(
        [0.215, 0.0187, 0.00399, 1.6e-10].map(percent),
        ["21.5 %", "1.87 %", "0.399 %", "2e-8 %"]
    );
    assert_eq!([90.0, 3_000.0, 43_200.0, 1e6].map(span), ["90 s", "50 min", "12 h", "11.6 days"]);
    assert!(parse_callers("50%:3m,50%:1h").is_ok());
    assert!(parse_callers("50%:3m").is_err() && parse_callers("3m").is_err());
}

#[test]
fn a_plan_assumes_the_default_settings_of_the_journal() {
    let journal = ringwell_config::Journal::default();
    let age = values::parse_lifetime(cluster::HISTORY_AGE).unwrap();
    assert_eq!(age.as_millis(), u128::from(journal.history_age.0));
    let bytes = ringwell_config::parse_size(cluster::HISTORY_BYTES).unwrap();
    assert_eq!(bytes, journal.history_bytes);
}
