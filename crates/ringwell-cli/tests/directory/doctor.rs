//! `ringwell doctor` with a database of ring pools.

use std::fs;

use super::rig::{self, Rig};
use super::support::server::{Server, ringwell};
use super::support::site::Pool;
use super::{LONG, Managed};

/// Returns whether `doctor` finds the server fit to serve, and what it says about the databases.
fn doctor(managed: &Managed) -> (bool, String) {
    let output = ringwell(&["doctor", "--config", managed.site.config().to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = said.lines().filter(|line| line.contains("  database ")).collect();
    (output.status.success(), lines.join("\n"))
}

#[test]
fn postgres_is_asked_for_its_schema_and_its_permissions() {
    let server = rig::Server::start();
    let managed = Managed::new(Rig::on(&server), vec![Pool::new(1, 3, LONG)]);
    let (is_fit, said) = doctor(&managed);
    assert!(is_fit && said.contains("directory.database: PostgreSQL answers; schema 6"), "{said}");
    let (name, _) = managed.database();
    for (change, is_fit, wanted) in [
        ("UPDATE schema_version SET version = 5", true, "the first start upgrades the tables"),
        ("UPDATE schema_version SET version = 99", false, "has schema 99, but this version"),
        ("DROP TABLE schema_version", true, "the first start creates the tables"),
        ("DROP SCHEMA public CASCADE", false, "GRANT CREATE ON SCHEMA public"),
    ] {
        managed.execute(&name, change);
        let (fit, said) = doctor(&managed);
        assert!(fit == is_fit && said.contains(wanted), "{change}: {said}");
    }
    drop(server);
    let (is_fit, said) = doctor(&managed);
    // The server may still be shutting down, and its answer may say so.
    assert!(!is_fit && said.contains("directory.database: the database "), "{said}");
}

/// `doctor`, `serve --check` and startup must agree on each of these users.
#[test]
fn a_user_with_too_few_rights_is_named_with_the_remedy() {
    let managed = Managed::new(Rig::postgres(), vec![Pool::new(1, 3, LONG)]);
    managed.start().stop();
    let (name, _) = managed.database();
    managed.execute(
        &name,
        "CREATE ROLE reader LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader; \
         CREATE ROLE writer LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO writer; \
         REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    );
    let config = managed.site.config();
    let text = fs::read_to_string(&config).unwrap();
    let of = |user: &str| {
        fs::write(&config, text.replace("postgres://ringwell@", &format!("postgres://{user}@")))
            .unwrap();
        let (found, checked) = (doctor(&managed), said(&managed, &["serve", "--check"]));
        assert_eq!(found.0, checked.0, "{checked:?}");
        (found, Server::try_start(managed.site.serve(&[])))
    };
    let ((is_fit, said), started) = of("reader");
    assert!(!is_fit && said.contains("GRANT ALL ON ALL TABLES"), "{said}");
    assert!(started.unwrap_err().log.contains("grant the user the missing rights"));
    let ((is_fit, said), started) = of("writer");
    assert!(is_fit && said.contains("PostgreSQL answers; schema 6"), "{said}");
    started.unwrap().stop();
    managed
        .execute(&name, &format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    let ((is_fit, said), started) = of("ringwell");
    assert!(!is_fit && said.contains("set the address of the primary server"), "{said}");
    assert!(started.unwrap_err().log.contains("set the address of the primary server"));
}

#[test]
fn a_sqlite_file_is_read_whether_a_server_uses_it_or_not() {
    let managed = Managed::new(Rig::sqlite(), vec![Pool::new(1, 3, LONG)]);
    let path = managed.rig.location.clone();
    let ringwell_store::Location::File(path) = path else { panic!("it is a file") };
    let folder = || {
        let names = fs::read_dir(path.parent().unwrap()).unwrap();
        names.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    let server = managed.start();
    let said = doctor(&managed).1;
    assert!(said.contains("is writable and undamaged"), "{said}");
    server.stop();
    managed.runtime.block_on(managed.store.close());
    let before = folder();
    let (is_fit, said) = doctor(&managed);
    assert!(is_fit && said.contains("is writable and undamaged"), "{said}");
    let mut bytes = fs::read(&path).unwrap();
    // The second page is no longer a valid table page.
    bytes[4096..4200].fill(0xff);
    fs::write(&path, bytes).unwrap();
    let (is_fit, said) = doctor(&managed);
    assert!(!is_fit && said.contains("is damaged"), "{said}");
    assert_eq!(folder(), before);
}

/// Returns whether a command succeeds, and its output.
fn said(managed: &Managed, command: &[&str]) -> (bool, String) {
    let config = managed.site.config();
    let args = [command, &["--config", config.to_str().unwrap()]].concat();
    let output = ringwell(&args).output().unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn the_check_and_the_doctor_read_the_pools_in_the_database() {
    let postgres = rig::Server::start();
    for rig in [Rig::on(&postgres), Rig::sqlite()] {
        let is_file = matches!(rig.location, ringwell_store::Location::File(_));
        let calls = "management.address = \"127.0.0.1:0\"\n[calls]\nlisten = \"127.0.0.1:0\"\n\
                     [[calls.destination]]\nring_pools = [7]\nto = [\"+18005550199\"]\n";
        let mut managed = Managed::with(rig, vec![Pool::new(1, 3, LONG)], calls);
        let server = managed.start();
        managed.site.write(vec![]);
        for command in [&["serve", "--check"][..], &["doctor"]] {
            let (_, said) = said(&managed, command);
            assert!(said.contains("1 pool, 3 numbers in the database"), "{command:?}: {said}");
            assert!(said.contains("do not exist: 7"), "{command:?}: {said}");
            assert!(said.contains("numbers of the ring pools 1:"), "{command:?}: {said}");
        }
        server.stop();
        let bad = "UPDATE ring_pools SET lifetime_ms = 0";
        if is_file {
            continue;
        }
        let (name, _) = managed.database();
        managed.execute(&name, bad);
        for command in [&["serve", "--check"][..], &["doctor"]] {
            let (is_fit, said) = said(&managed, command);
            assert!(
                !is_fit && said.contains("damaged: ring pool 1: lifetime"),
                "{command:?}: {said}"
            );
        }
    }
    let managed = Managed::new(Rig::on(&postgres), vec![]);
    drop(postgres);
    let (is_good, said) = said(&managed, &["serve", "--check"]);
    assert!(is_good && said.contains("in the database were not checked: directory."), "{said}");
}
