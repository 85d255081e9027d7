//! `ringwell call` with each provider: the forms or JSON that the provider sends, its signatures,
//! and its reports.

use std::process::Output;
use std::thread;

use super::Switchboard;
use super::support::server::ringwell;

/// A 32-byte private key, and its public key (RFC 8032, test 1).
const PRIVATE: &str = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";
const PUBLIC: &str = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
/// Providers other than Twilio, with their accounts' secrets.
const OTHERS: [(&str, &str); 6] = [
    ("signalwire", "a-signing-key-of-signalwire-012345"),
    ("telnyx", PUBLIC),
    ("plivo", "an-auth-token-of-plivo-0123456789"),
    ("vonage", "a-signature-secret-of-vonage-0123456789"),
    ("bandwidth", "ringwell:a-password-0123456789abc"),
    ("generic", "a-secret-of-a-switch-0123456789abc"),
];

fn board() -> Switchboard {
    let account = |(provider, _): &(&str, &str)| {
        format!(
            "[[calls.account]]\nname = \"at-{provider}\"\nprovider = \"{provider}\"\n\
             public_url = \"https://calls.example\"\nsecret_files = [\"{provider}.secret\"]\n"
        )
    };
    let accounts: String = OTHERS.iter().map(account).collect();
    let names = OTHERS.map(|(provider, secret)| (format!("{provider}.secret"), secret));
    let files: Vec<_> = names.iter().map(|(name, secret)| (name.as_str(), *secret)).collect();
    Switchboard::with_files(&format!("timeout = \"5s\"\n{accounts}"), &files)
}

fn ring(board: &Switchboard, provider: &str, number: u64, more: &[&str]) -> Output {
    let number = number.to_string();
    let url = format!("http://{}", board.phone.address());
    let mut command = ringwell(&["call", "--to", &number, "--url", &url, "--provider", provider]);
    command.args(more).arg("--config").arg(board.site.config());
    command.output().unwrap()
}

/// Checks that the command succeeded, and returns the call from the call log once the call has
/// ended.
fn logged(board: &Switchboard, output: &Output) -> serde_json::Value {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    board.call(said.split(':').next().unwrap(), |call| call["state"] == "ended")
}

/// A report whose values are not accepted is stored, and the log names the fields.
#[test]
fn the_log_names_fields_of_your_own_switch_that_are_not_accepted_without_their_values() {
    let board = board();
    let report = |body: &str| {
        let secret = format!("Bearer {}", OTHERS[5].1);
        let headers = [("authorization", &*secret), ("content-type", "application/json")];
        board.phone.client().post("/t/at-generic/events", &headers, body).unwrap().status
    };
    assert_eq!(report(r#"{"call_id":"g1","event":"ended","talk_seconds":0.4}"#), 200);
    assert_eq!(board.call("g1", |_| true)["outcome"], "answered");
    assert!(!board.server.log().contains("talk_seconds"), "{}", board.server.log());
    let odd = r#"{"call_id":"g2","event":"ended","status":"by Jane","talk_seconds":"12 s"}"#;
    for _ in 0..3 {
        assert_eq!(report(odd), 200);
    }
    assert_eq!(board.call("g2", |_| true)["state"], "ended");
    board.server.says("values are not accepted");
    let log = board.server.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("are not accepted")).collect();
    let [line] = lines[..] else { panic!("{log}") };
    let wanted = ["WARN", "at-generic", "talk_seconds (accepted: ", "status (accepted: "];
    assert!(wanted.iter().all(|part| line.contains(part)), "{line}");
    assert!(!log.contains("Jane"), "{log}");
}

#[test]
fn each_provider_can_be_played() {
    let board = board();
    let key = board.site.config().with_file_name("private.key");
    std::fs::write(&key, PRIVATE).unwrap();
    let key = key.to_str().unwrap();
    let refused = ring(&board, "telnyx", 2_001_600_000, &[]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--key"));
    let play = &|provider: &str| {
        let number = board.visitor(provider);
        let soon = ["--answer-after", "50ms", "--talk", "1s", "--key", key];
        let answered = ring(&board, provider, number, &soon);
        let call = logged(&board, &answered);
        let of = (&call["outcome"], &call["talk_seconds"], &call["provider"]);
        assert_eq!(of, (&"answered".into(), &1.into(), &provider.into()), "{call:#}");
        assert_eq!(call["attribution"]["parameters"]["id"], provider, "{call:#}");
        assert_eq!(call["from"]["e164"], "+12005550100", "{call:#}");

        let missed = ring(&board, provider, number, &["--answer-after", "6s", "--key", key]);
        let call = logged(&board, &missed);
        assert_eq!(call["outcome"], "no_answer", "{provider}: {call:#}");
    };
    thread::scope(|scope| {
        let all = OTHERS.map(|(provider, _)| scope.spawn(move || play(provider)));
        for one in all {
            one.join().unwrap();
        }
    });
}

/// The provider reports the end of each destination's leg, and rings the destination in the answer.
#[test]
fn the_next_destination_rings_if_one_does_not_answer() {
    let board = board();
    let key = board.site.config().with_file_name("private.key");
    std::fs::write(&key, PRIVATE).unwrap();
    let key = key.to_str().unwrap();
    let settings = std::fs::read_to_string(board.site.config()).unwrap();
    let both = "to = [\"+18005550199\", \"+18005550198\"]";
    std::fs::write(board.site.config(), settings.replace("to = [\"+18005550199\"]", both)).unwrap();
    board.server.reload();
    let play = &|provider: &str, number: u64, ringing: &str, outcome: &str| {
        let flags = ["--answer-after", ringing, "--talk", "1s", "--key", key];
        let output = ring(&board, provider, number, &flags);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("18005550199, ") && said.contains("18005550198, "), "{said}");
        let call = logged(&board, &output);
        assert_eq!(call["outcome"], outcome, "{provider}: {call:#}");
        let talk =
            if outcome == "answered" { serde_json::json!(1) } else { call["talk_seconds"].clone() };
        assert_eq!(call["talk_seconds"], talk, "{provider}: {call:#}");
    };
    // Your own switch rings only the destination in the first answer.
    let all = OTHERS.map(|(provider, _)| provider).into_iter().filter(|it| *it != "generic");
    let all: Vec<_> = all.chain(["twilio"]).map(|it| (it, board.visitor(it))).collect();
    thread::scope(|scope| {
        let calls = all.iter().flat_map(|(provider, number)| {
            [("5200ms", "answered"), ("11s", "no_answer")].map(|(ringing, outcome)| {
                scope.spawn(move || play(provider, *number, ringing, outcome))
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.join().unwrap();
        }
    });
}

#[test]
fn a_phone_with_another_secret_is_refused() {
    let board = board();
    let key = board.site.config().with_file_name("private.key");
    std::fs::write(&key, "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=").unwrap();
    let stranger = ring(&board, "telnyx", 2_001_600_000, &["--key", key.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(!stranger.status.success() && said.contains("secret_files of account"), "{said}");
    for (provider, secret) in OTHERS.into_iter().filter(|(provider, _)| *provider != "telnyx") {
        // The server has already read the right secret, so only the command uses the wrong one.
        let file = board.site.config().with_file_name(format!("{provider}.secret"));
        std::fs::write(
            &file,
            secret.replace("0123456789", "9876543210").replace("012345", "543210"),
        )
        .unwrap();
        let stranger = ring(&board, provider, 2_001_600_000, &[]);
        let said = String::from_utf8_lossy(&stranger.stderr).into_owned();
        assert!(!stranger.status.success() && said.contains("403"), "{provider}: {said}");
    }
}
