//! The database is restored from an older copy. In the copy, a number is an overflow number, but
//! since then it has entered another pool's rotation.

use std::thread;
use std::time::{Duration, Instant};

use super::support::batch;
use super::support::server::Server;
use super::support::site::Pool;
use super::{LONG, Managed, Rig, numbers, range, soon};

/// The lifetime of the pool whose rotation contains the number.
const SHORT: Duration = Duration::from_secs(8);

/// A server whose database has just been restored to the older copy. Pool 1 has one number and, in
/// the copy, the overflow number. Pool 3 had this number in its rotation.
struct RestoredDatabase {
    managed: Managed,
    server: Server,
    pools: [Pool; 2],
    /// The visitor who received the number from pool 3.
    holder: Option<String>,
}

fn with_restored_database(is_held: bool) -> RestoredDatabase {
    let pools = [Pool::new(1, 1, LONG), Pool::new(3, 2, SHORT)];
    let managed = Managed::new(Rig::postgres(), pools.to_vec());
    let server = managed.start();
    let mut client = server.client();
    let number = pools[0].overflow;
    let (name, _) = managed.database();
    managed.execute(&name, "CREATE TABLE before AS SELECT * FROM numbers");
    managed.execute(
        &name,
        &format!(
            "BEGIN; UPDATE numbers SET state = 'available', pool = 3 WHERE first_number = 1{number}; \
             UPDATE ring_pools SET overflow_number = NULL WHERE id = 1; \
             UPDATE ring_pools SET version = version + 1; \
             UPDATE directory SET version = version + 1; COMMIT"
        ),
    );
    soon("the number is in rotation", || numbers(&mut client) == 4);
    let mut holder = None;
    for id in ["a", "b", "c"].into_iter().filter(|_| is_held) {
        let row = batch::one(&mut client, &pools[1], id);
        holder = holder.or(Some(row.id).filter(|_| row.number == number && !row.overflow));
    }
    assert_eq!(holder.is_some(), is_held);
    assert_eq!(batch::one(&mut client, &pools[0], "first").number, pools[0].first);
    managed.execute(
        &name,
        &format!(
            "BEGIN; DELETE FROM numbers; INSERT INTO numbers SELECT * FROM before; \
             UPDATE ring_pools SET overflow_number = 1{number} WHERE id = 1; \
             UPDATE ring_pools SET version = version - 1; \
             UPDATE directory SET version = version - 1; COMMIT"
        ),
    );
    soon("the number has left its pool", || numbers(&mut client) == 3);
    server.says("contains an older version than the one this server was using");
    RestoredDatabase { managed, server, pools, holder }
}

/// While a visitor holds the number, pool 1 has no overflow number, and calls are attributed to the
/// visitor. Everything else in the list of pools is served, even after a restart.
#[test]
fn a_held_number_becomes_the_overflow_number_of_the_older_copy_after_its_lockout() {
    let began = Instant::now();
    let RestoredDatabase { managed, server, pools, holder } = with_restored_database(true);
    let number = pools[0].overflow;
    let until = Instant::now() + SHORT * 2;
    let is_withheld = |server: &Server, id: &str| {
        let mut client = server.client();
        let row = batch::one(&mut client, &pools[0], id);
        if row.overflow {
            assert_eq!(row.number, number);
            return false;
        }
        assert_eq!(row.number, 0, "the pool has no number left");
        let found = batch::holder(&mut client, number).unwrap();
        assert_eq!(found["parameters"]["id"].as_str(), holder.as_deref(), "{found}");
        true
    };
    assert!(is_withheld(&server, "second"), "a visitor holds the overflow number");
    server.says("a visitor may still hold a number that is to become an overflow number");
    managed.add(3, range(pools[1].first + 10, 1));
    soon("later changes", || numbers(&mut server.client()) == 4);
    server.kill();
    let server = managed.start();
    server.says("a visitor may still hold a number that is to become an overflow number");
    assert!(is_withheld(&server, "third"), "also after a restart");
    while is_withheld(&server, "fourth") {
        assert!(Instant::now() < until, "the number is never the overflow number");
        thread::sleep(Duration::from_millis(100));
    }
    assert!(began.elapsed() > SHORT);
    server.says("is an overflow number from now on");
    server.stop();
}

#[test]
fn a_number_that_no_visitor_holds_becomes_the_overflow_number_of_the_older_copy_at_once() {
    let RestoredDatabase { managed, server, pools, .. } = with_restored_database(false);
    let row = batch::one(&mut server.client(), &pools[0], "second");
    assert_eq!((row.number, row.overflow), (pools[0].overflow, true));
    managed.add(3, range(pools[1].first + 10, 1));
    soon("later changes", || numbers(&mut server.client()) == 4);
    server.stop();
}
