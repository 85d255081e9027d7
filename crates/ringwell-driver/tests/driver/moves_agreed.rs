//! Moves whose circumstances change after the two nodes have agreed.

use std::time::Duration;

use ringwell_directory::Directory;
use ringwell_driver::moves::{self, MoveError};
use ringwell_driver::{Path, Platform, change};

use crate::moves::{buckets, give, hand_out, pools, served};
use crate::pair::{Links, Pair};
use crate::support::Virtual;

#[test]
pub fn buckets_stay_if_their_list_changes_after_the_next_owner_has_agreed() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let a = &pair.a;
        let before = pools(a, 0);
        pair.a_to_b.set(Links::Slow(Path::Prepare));
        let (at, node, peers, moving) =
            (platform.clone(), a.node.clone(), a.peers.clone(), buckets(&pair));
        let given = platform.task(async move { moves::give(&at, &node, &peers, moving, 2).await });
        // The move waits for the next owner's consent.
        let gone = before[0];
        let short = move |list: &Directory| list.change(Vec::new(), &[gone]);
        change::apply(&platform, &a.node, &a.peers, short).await.unwrap();
        let given = given.await.unwrap().unwrap_err();
        assert!(matches!(&given, MoveError::NotTaken { reason, .. } if reason.contains("changed")));
        assert_eq!(pools(a, 0), before[1..]);
        assert!(pools(&pair.b, 2).iter().all(|pool| !before.contains(pool)));
    });
}

#[test]
pub fn lockouts_that_arrive_are_stored_before_they_are_confirmed() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        hand_out(a, 0, 1);
        pair.a_to_b.set(Links::Without(Path::Adopt));
        give(&pair, 2).await.unwrap_err();
        let adopt = serde_json::to_vec(&pair.sent(Path::Adopt)).unwrap();
        let stored_at = platform.moment() + Duration::from_millis(200);
        b.stores.iter().for_each(|store| store.until.set(stored_at));
        b.answer(Path::Adopt, adopt.into()).await.unwrap();
        assert!(platform.moment() >= stored_at, "{:?}", platform.moment());
    });
}

#[test]
pub fn buckets_come_back_although_the_answer_of_the_node_that_agreed_to_it_was_lost() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let a = &pair.a;
        let before = pools(a, 0);
        pair.a_to_b.set(Links::Without(Path::Take));
        give(&pair, 2).await.unwrap_err();
        pair.a_to_b.set(Links::Deaf(Path::Abandon));
        moves::abort(&platform, &a.node, &a.peers).await.unwrap_err();
        assert!(pools(a, 0).is_empty());
        pair.a_to_b.set(Links::Up);
        a.resume_moves(&platform);
        platform.sleep_until(platform.moment() + Duration::from_secs(3)).await;
        assert!(served(a).leaving.is_empty());
        assert_eq!(pools(a, 0), before);
    });
}
