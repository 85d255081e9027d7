//! Appends to a log whose leader lacks a message that other servers have.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use ringwell_driver::store::{Appending, Ask, Fate, NotAppended};
use ringwell_journal::Author;

/// Another process has written the message at this place, but the leader's copy of it is damaged.
#[test]
pub fn another_server_leads_if_the_leader_lacks_the_message_at_this_place() {
    let author = Author { shard: 0, journal: [0; 16], incarnation: [1; 16] };
    let hidden = |ends: Range<u64>| {
        let (mut appending, _) = Appending::begin(author, 9, Bytes::from_static(b"message"));
        let mut waited = Duration::ZERO;
        loop {
            assert_eq!(appending.appended(Err(NotAppended::Taken)), Ask::Read);
            match appending.read(Ok(None)) {
                Ask::Pause(time) => waited += time,
                ask => {
                    assert_eq!(ask, Ask::ReadEnds);
                    assert!(waited >= Duration::from_secs(2));
                    return (appending.ends(Ok(ends)), appending);
                }
            }
        }
    };
    let (ask, mut appending) = hidden(1..10);
    assert_eq!(ask, Ask::ChangeLeader);
    assert!(matches!(appending.changed_leader(Ok(())), Ask::Pause(_)));
    // The leader only counts a message that it has proposed.
    assert!(matches!(hidden(1..9).0, Ask::Pause(_)));
    assert!(matches!(hidden(10..12).0, Ask::Done(Fate::Failed(_))));
}
