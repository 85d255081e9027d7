//! Tests calls whose destinations are chosen by a user's program, and reloads of the configuration
//! by SIGHUP.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::Value;

use super::Switchboard;
use super::phone::{self, Provider};

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// Maps a request's index to the answer: a pause, a status line, and a body.
type Answers = fn(usize) -> (Duration, &'static str, &'static str);

/// Starts a routing program. Returns the program's port, and a channel that receives each request
/// and whether the request's signature is correct.
fn program(answers: Answers) -> (u16, Receiver<(Value, bool)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (questions, got) = channel();
    thread::spawn(move || {
        for (place, stream) in listener.incoming().flatten().enumerate() {
            let questions = questions.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let mut head = std::collections::BTreeMap::new();
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    let Some((name, value)) = line.trim().split_once(':') else {
                        if line.trim().is_empty() {
                            break;
                        }
                        continue;
                    };
                    head.insert(name.to_ascii_lowercase(), value.trim().to_owned());
                }
                let mut body = vec![0; head["content-length"].parse().unwrap()];
                reader.read_exact(&mut body).unwrap();
                let key = STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
                let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
                let signed = [
                    format!("{}.{}.", head["webhook-id"], head["webhook-timestamp"]).as_bytes(),
                    &body,
                ]
                .concat();
                let code = STANDARD.encode(hmac::sign(&key, &signed));
                let is_signed = head["webhook-signature"] == format!("v1,{code}");
                questions.send((serde_json::from_slice(&body).unwrap(), is_signed)).unwrap();
                let (pause, status, answer) = answers(place);
                thread::sleep(pause);
                let text = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}",
                    answer.len()
                );
                let _ = reader.get_mut().write_all(text.as_bytes());
            });
        }
    });
    (port, got)
}

fn settings(port: u16) -> String {
    format!(
        "[calls.webhooks]\nallow_networks = [\"127.0.0.0/8\"]\nallow_http = true\n\
         allow_ports = [{port}]\n[calls.routing]\nurl = \"http://127.0.0.1:{port}/route\"\n\
         secret_file = \"routing.secret\"\n"
    )
}

#[test]
fn a_program_decides_the_destination_of_calls_and_the_default_applies_if_it_fails() {
    let (port, questions) = program(|place| match place {
        0 => {
            let two = r#"{"to":["+18005550001","sip:desk@pbx.example"],"timeout":12}"#;
            (Duration::ZERO, "200 OK", two)
        }
        1 => (Duration::from_secs(2), "200 OK", r#"{"to":["+18005550002"]}"#),
        2 => (Duration::ZERO, "500 No", ""),
        3 => (Duration::ZERO, "200 OK", r#"{"to":["everybody"]}"#),
        4 => (Duration::ZERO, "200 OK", "{}"),
        _ => (Duration::ZERO, "204 Nothing", ""),
    });
    let board = Switchboard::with_files(&settings(port), &[("routing.secret", SECRET)]);
    let number = board.visitor("17");
    let twilio = Provider::twilio(&board.phone);
    let ring = |call: &str| {
        let ring = format!("CallSid={call}&CallStatus=ringing&From=%2B14155551234&To=%2B1{number}");
        let began = Instant::now();
        let answer = twilio.post("/t/main/answer", &ring);
        (answer, began.elapsed())
    };
    let (first, _) = ring("CA0");
    assert!(first.body.contains(">+18005550001</Number>"), "{}", first.body);
    assert!(first.body.contains("timeout=\"12\""), "{}", first.body);
    let (question, is_signed) = questions.recv().unwrap();
    assert!(is_signed);
    assert_eq!(question["type"], "call.routing");
    assert_eq!(question["data"]["from"]["e164"], "+14155551234");
    assert_eq!(question["data"]["attribution"]["parameters"]["id"], "17", "{question:#}");
    assert_eq!(question["data"]["default"]["to"][0], "+18005550199");
    // The first destination is busy. The server then returns the second one from the program's
    // answer.
    let dial = phone::urls(&first.body).into_iter().find(|url| url.contains("/dial")).unwrap();
    let second = twilio.post(&dial, "CallSid=CA0&From=%2B14155551234&DialCallStatus=busy");
    assert!(second.body.contains(">sip:desk@pbx.example</Sip>"), "{}", second.body);
    assert_eq!(board.call("CA0", |_| true)["destination"], "+18005550001");
    // If the program's answer is late, is invalid, is an error, or contains no decision, the server
    // chooses the default destination within a second.
    for call in 1..6 {
        let (answer, took) = ring(&format!("CA{call}"));
        assert!(answer.body.contains(">+18005550199</Number>"), "{call}: {}", answer.body);
        assert!(took < Duration::from_secs(1), "{call}: {took:?}");
    }
    assert_eq!(board.call("CA1", |_| true)["destination"], "+18005550199");
    assert_eq!(
        board
            .server
            .log()
            .matches("calls.routing: no usable answer, so the configured destinations are used")
            .count(),
        3
    );
}

#[test]
fn sighup_reloads_accounts_destinations_and_secrets() {
    let board = Switchboard::new("");
    let number = board.visitor("17");
    let ring = |call: &str| {
        let twilio = Provider::twilio(&board.phone);
        let ring = format!("CallSid={call}&From=%2B14155551234&To=%2B1{number}");
        twilio.post("/t/main/answer", &ring)
    };
    assert!(ring("CA1").body.contains(">+18005550199<"));
    let config = board.site.config();
    let old = fs::read_to_string(&config).unwrap();
    fs::write(&config, old.replace("+18005550199", "+18005550200")).unwrap();
    let said = board.server.reload();
    assert!(said.contains("calls"), "{said}");
    assert!(ring("CA2").body.contains(">+18005550200<"));
    // If the new configuration is invalid, a reload changes nothing.
    let wrong = old.replace("to = [", "time_zone = \"Nowhere/Town\"\nto = [");
    fs::write(&config, wrong).unwrap();
    board.server.reload();
    assert!(board.server.log().contains("Nowhere/Town"));
    assert!(ring("CA3").body.contains(">+18005550200<"));
    fs::write(&config, old).unwrap();
    fs::write(config.with_file_name("main.secret"), "another-secret-0123456789abcdef").unwrap();
    board.server.reload();
    assert_eq!(ring("CA4").status, 403);
}
