use super::*;

fn change(call: &str) -> CallChange {
    let event = CallEvent {
        key: "ended".to_owned(),
        kind: EventKind::Ended(Some(crate::call::Outcome::Busy)),
        at: Millis(5),
        talk_seconds: Some(3),
    };
    CallChange {
        account: "main".to_owned(),
        provider: "twilio".to_owned(),
        provider_call: call.to_owned(),
        events: vec![ReportedEvent { event, received: Millis(6) }],
        seen: Some(Millis(7)),
        number: Some("+12125550000".to_owned()),
        caller: Some(Caller::Hash("h".to_owned())),
        destination: Some("+18005550199".to_owned()),
        stir: Some(Stir { verstat: Some("TN".to_owned()), attestation: None }),
        attribution: Some(Attribution { problem: Some("p".to_owned()), ..Attribution::default() }),
        looked_up: Some((None, Millis(8))),
        blocked: Some("b".to_owned()),
    }
}

fn keep(backlog: &mut Backlog, changes: &[CallChange]) {
    backlog.keep(&Backlog::lines(changes.iter()), changes.len()).unwrap();
}

#[test]
fn kept_changes_are_read_by_the_next_process_until_all_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waiting.jsonl");
    let (mut backlog, before) = Backlog::open(&path).unwrap();
    assert!(before.is_empty() && !path.exists());
    let all = [change("CA1"), change("CA2"), CallChange::default()];
    keep(&mut backlog, &all[..2]);
    keep(&mut backlog, &all[2..]);
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let (mut next, changes) = Backlog::open(&path).unwrap();
    assert_eq!(changes, all);
    next.stored(1).unwrap();
    assert!(path.exists());
    next.stored(2).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_line_of_another_format_is_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waiting.jsonl");
    let line = String::from_utf8(Backlog::lines([change("CA1")].iter())).unwrap();
    fs::write(&path, format!("{HEAD}\n{line}{{\"of\":\"the future\"}}\n")).unwrap();
    let (_, changes) = Backlog::open(&path).unwrap();
    assert_eq!(changes, [change("CA1")]);
    assert!(path.exists());
    let unread = fs::read_to_string(folder.path().join("waiting.unread")).unwrap();
    assert_eq!(unread, "{\"of\":\"the future\"}\n");
    fs::write(&path, "{\"calls_waiting\":2}\n").unwrap();
    assert!(Backlog::open(&path).unwrap().1.is_empty());
    assert!(!path.exists(), "nothing in it is waiting");
}

/// Checks a file that is incomplete because the process ended while writing it.
#[test]
fn a_file_cut_off_anywhere_has_the_changes_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waiting.jsonl");
    let (mut backlog, _) = Backlog::open(&path).unwrap();
    let all = [change("CA0"), change("CA1")];
    for one in &all {
        keep(&mut backlog, std::slice::from_ref(one));
    }
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        fs::write(&path, &whole[..at]).unwrap();
        let lines = whole[..at].split_inclusive(|byte| *byte == b'\n');
        let complete =
            lines.filter(|line| line.starts_with(b"{\"account") && line.ends_with(b"\n"));
        let complete = complete.count();
        let (mut next, changes) = Backlog::open(&path).unwrap();
        assert_eq!(changes, all[..complete], "cut off after {at} bytes");
        // A change that is appended after an incomplete line must not be lost.
        keep(&mut next, &[change("after")]);
        let (_, changes) = Backlog::open(&path).unwrap();
        assert_eq!(changes.last(), Some(&change("after")), "cut off after {at} bytes");
    }
}

/// A directory or a FIFO at the backlog file's path is refused, even if it is created while the
/// server runs. Opening a FIFO would block the server.
#[test]
fn something_else_in_its_place_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waiting.jsonl");
    let (mut backlog, _) = Backlog::open(&path).unwrap();
    let fifo = || std::process::Command::new("mkfifo").arg(&path).status().unwrap().success();
    for is_fifo in [false, true] {
        if is_fifo {
            fs::remove_dir(&path).unwrap();
            assert!(fifo());
        } else {
            fs::create_dir(&path).unwrap();
        }
        assert!(Backlog::open(&path).unwrap_err().to_string().contains("move it away"));
        let error = backlog.keep(b"", 0).unwrap_err().to_string();
        assert!(error.contains("waiting.jsonl is not a file"), "{error}");
        assert!(examine_waiting(&path).is_err());
    }
}

/// Checks that removal of the backlog file is detected once. An operator may remove the file while
/// the call log is unavailable.
#[test]
fn a_file_that_was_removed_is_noticed_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waiting.jsonl");
    let (mut backlog, _) = Backlog::open(&path).unwrap();
    assert!(!backlog.is_lost());
    backlog.keep(b"{}\n", 2).unwrap();
    assert!(!backlog.is_lost());
    fs::remove_file(&path).unwrap();
    assert!(backlog.is_lost());
    assert!(!backlog.is_lost());
    backlog.keep(b"{}\n", 2).unwrap();
    backlog.stored(2).unwrap();
    assert!(!path.exists());
}
