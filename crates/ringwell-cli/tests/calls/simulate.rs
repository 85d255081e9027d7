//! `ringwell simulate` with an access log and the pools of a configuration.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use super::LIFETIME;
use super::support::server::ringwell;
use super::support::site::{Pool, Site};

#[test]
fn a_log_of_a_day_yields_the_expected_attributions() {
    let site = Site::new(vec![Pool::new(16, 40, LIFETIME), Pool::new(17, 2, LIFETIME)], "");
    let log = site.config().with_file_name("access.log");
    let mut text = String::new();
    // The log contains one visitor per minute, who opens three pages. It also contains a page view
    // by a robot, a request for an image, and an unreadable line.
    for minute in 0..1_200 {
        let (hour, at) = (minute / 60, minute % 60);
        let address = format!("198.51.{}.{}", minute / 250, minute % 250);
        for (second, page) in [(0, "/"), (20, "/shop?a=1"), (40, "/contact.html")] {
            writeln!(
                text,
                "{address} - - [21/Nov/2026:{hour:02}:{at:02}:{second:02} +0100] \"GET {page} HTTP/1.1\" 200 \
                 2326 \"-\" \"Mozilla/5.0\""
            )
            .unwrap();
        }
    }
    text += "203.0.113.1 - - [21/Nov/2026:10:00:00 +0100] \"GET / HTTP/1.1\" 200 1 \"-\" \"Examplebot/1.0\"\n";
    text += "203.0.113.1 - - [21/Nov/2026:10:00:00 +0100] \"GET /a.png HTTP/1.1\" 200 1 \"-\" \"Mozilla\"\n";
    text += "junk\n";
    fs::write(&log, text).unwrap();
    let run = |args: &[&str]| {
        let mut command = ringwell(&["simulate", "--calls", "50%", "--site-log"]);
        command.arg(&log).args(args);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), said)
    };
    let config = site.config();
    let config = config.to_str().unwrap();
    let (code, said, problems) = run(&["--config", config, "--json"]);
    assert_eq!(code, Some(0), "{problems}");
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["log"]["page_views"], 3_600, "{said:#}");
    assert_eq!((&said["log"]["robots"], &said["log"]["unreadable"]), (&1.into(), &1.into()));
    let [large, small] = &said["ring_pools"].as_array().unwrap()[..] else { panic!("{said:#}") };
    assert_eq!((&large["visits"], &large["overflow_visits"]), (&1_200.into(), &0.into()));
    let calls = &large["calls"];
    let count = |name: &str| calls[name].as_u64().unwrap();
    assert!((500..700).contains(&count("all")) && count("unknown") == 0, "{said:#}");
    assert_eq!(count("right") + count("wrong"), count("all"));
    assert!(count("right") > count("wrong") && count("wrong") > 0, "{said:#}");
    // Two numbers, each locked out for ten minutes, are not enough for one visitor per minute.
    assert!(small["overflow_visits"].as_u64().unwrap() > 800, "{said:#}");

    let (code, said, _) = run(&["--config", config, "--pool", "17", "--seed", "2"]);
    assert!(code == Some(0) && said.contains("ring pool 17: 2 numbers"), "{said}");
    let (code, said, _) = run(&["--numbers", "10", "--numbers", "40", "--lifetime", "20m"]);
    assert!(code == Some(0) && said.contains("40 numbers, lifetime 20 min"), "{said}");
    let unknown = ["--config", config, "--pool", "9"];
    for (args, exit, wanted) in [(&[][..], 2, "give --config"), (&unknown, 1, "no ring pool 9")] {
        let (code, _, said) = run(args);
        assert!(code == Some(exit) && said.contains(wanted), "{said}");
    }
    fs::write(&log, "junk\n").unwrap();
    let (code, _, said) = run(&["--numbers", "10"]);
    assert!(code == Some(1) && said.contains("no page view"), "{said}");
}
