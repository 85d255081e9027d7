//! Backups contain calls too.

use std::fs;

use super::Switchboard;
use super::phone::Phone;
use super::support::server::{Server, ringwell};

#[test]
fn a_backup_restores_calls() {
    let board = Switchboard::new("");
    board.call_of("CA1", board.visitor("17"));
    let before = board.call("CA1", |call| call["state"] == "ended");
    let copy = board.site.config().with_file_name("copy");
    let data = board.site.data().to_owned();
    let secret = [7; 32];
    fs::write(data.join("site-secret"), secret).unwrap();
    let mut backup = ringwell(&["backup", "--config"]);
    let output = backup.arg(board.site.config()).arg("--to").arg(&copy).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let Switchboard { site, server, .. } = board;
    drop(server);
    fs::remove_dir_all(&data).unwrap();
    let restored = ringwell(&["restore"]).arg(&copy).arg(&data).output().unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    assert_eq!(fs::read(data.join("site-secret")).unwrap(), secret);
    fs::remove_file(data.join("site-secret")).unwrap();
    let server = Server::start(site.serve(&[]));
    let board = Switchboard { phone: Phone::at(&server), site, server };
    assert_eq!(board.call("CA1", |_| true), before);
}
