//! Startups with other counts of shards, before which snapshots were lost.

use ringwell_config::Durability;
use ringwell_core::{Millis, PoolId, PromoNumber, VisitorId};
use ringwell_directory::Directory;
use ringwell_driver::open::Begun;
use ringwell_driver::store::Inline;
use ringwell_engine::{Ask, Outcome, Refusal};
use ringwell_os::OsFiles;

use crate::open::{Data, LIFETIME, directory, now};

/// Asks each pool for a number for its own visitor, and stores the answers.
fn visit(begun: &mut Begun<OsFiles>, directory: &Directory, at: Millis) -> Vec<PromoNumber> {
    let mut shown = Vec::new();
    for shard in &mut begun.shards {
        shard.engine.set_clocks(begun.clocks);
        for pool in directory.pools_of(shard.shard) {
            let index = directory.lookup(pool.id()).unwrap().index();
            let visitor = Some(visitor(pool.id()));
            let ask = Ask { pool: index, id: pool.id(), params: [b"", b""], visitor, retry: None };
            let mut outcome = Outcome::Refused(Refusal::Late);
            shard.engine.allocate(at, &ask, &mut outcome);
            shown.push(outcome.number().unwrap());
        }
        let Some(group) = shard.engine.seal(Vec::new()) else { continue };
        let Inline::Left(journal) = &shard.store else { panic!("it is in memory") };
        journal.store(group).unwrap();
    }
    shown.sort_unstable();
    shown
}

fn visitor(pool: PoolId) -> VisitorId {
    VisitorId([u8::try_from(pool.0 % 251).unwrap(); 16])
}

/// A second count of shards gives pools to other shards, whose journals contain only the extensions
/// of the visitors' lockouts. A third count gives the pools to further shards.
#[test]
pub fn an_extension_is_kept_if_its_number_changes_shards_twice_and_snapshots_are_lost() {
    for counts in [[2, 5, 8], [2, 5, 2], [1, 2, 4], [4, 1, 3]] {
        let data = Data::new(Durability::Disk);
        let lists = counts.map(|shards| directory(shards, LIFETIME));
        let begins = [Millis::ZERO, Millis(40_000), Millis(70_000)];
        let mut shown = Vec::new();
        for (list, since) in lists.iter().zip(begins).take(2) {
            let mut begun = data.start(list, since);
            let at = now(&begun, since);
            shown.push(visit(&mut begun, list, at));
        }
        assert_eq!(shown[0], shown[1], "{counts:?}: visitors kept their numbers");
        let begun = data.start(&lists[2], begins[2]);
        let now = now(&begun, begins[2]);
        let slots = begun.shards.iter().flat_map(|shard| shard.engine.shard().slots());
        let mut locked: Vec<_> =
            slots.filter(|slot| !slot.is_free(now)).map(|slot| slot.number).collect();
        locked.sort_unstable();
        assert_eq!(locked, shown[0], "{counts:?}");
    }
}
