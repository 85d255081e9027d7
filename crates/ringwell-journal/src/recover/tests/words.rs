//! Tests the error messages for the operator: each message states the fault, the place and the
//! remedy.

use super::*;
use crate::SegmentFault;

type Refusal = RecoverError<Infallible>;

#[test]
fn every_refusal_has_its_reason() {
    let foreign = |why| Refusal::Foreign { segno: 2, why };
    let missing = |found| Refusal::Missing { expected: 5, found };
    let chain = |fault| Refusal::Chain { segno: 2, offset: 4096, n: 5, fault };
    let segment = |fault| Refusal::Segment { segno: 2, fault };
    let (newer_segno, newer_offset, newer_n) = (2, 8192, 6);
    let damaged = |fault| {
        let (segno, offset, n) = (2, 4096, 5);
        Refusal::Damaged { segno, offset, n, fault, newer_segno, newer_offset, newer_n }
    };
    for (refusal, words) in [
        (foreign(Foreign::Number(3)), "its first block identifies it as segment 0000000000000003"),
        (foreign(Foreign::Shard(4)), "it belongs to shard 4"),
        (foreign(Foreign::Journal), "it belongs to another journal"),
        (missing(Oldest::None), "frame 5 is needed, but there is no segment"),
        (
            missing(Oldest::Frame(7)),
            "frame 5 is needed, but the oldest segment begins with frame 7",
        ),
        (chain(ChainFault::Number(9)), "it has number 9"),
        (chain(ChainFault::Hash), "its hash of the previous frame does not match that frame"),
        (chain(ChainFault::Epoch), "its epoch is lower"),
        (chain(ChainFault::Time), "its time is earlier"),
        (
            chain(ChainFault::Snapshot),
            "the snapshot contains a different hash of the previous frame",
        ),
        (segment(SegmentFault::Magic), "its first block is not the head of a segment"),
        (segment(SegmentFault::Checksum), "the checksum of its first block is wrong"),
        (
            segment(SegmentFault::Tip),
            "its first block contains an impossible frame number or epoch",
        ),
        (
            segment(SegmentFault::Version(9)),
            "cannot be read: its format has version 9; this program reads versions 1 to 2. If a newer",
        ),
        (
            Refusal::Short { segno: 2, bytes: 4096 },
            "has 4096 bytes but was longer when it was created",
        ),
        (damaged(FrameFault::NotWritten), "frame 5 is not wholly written"),
        (damaged(FrameFault::Rotten), "frame 5 is corrupted"),
    ] {
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
}

#[test]
fn a_verdict_reports_the_cut_and_whether_an_answer_may_have_been_sent() {
    let cut = Cut { segno: 3, offset: 8192, n: 7 };
    let place = "(segment 0000000000000003, offset 8192)";
    assert_eq!(Verdict::Clean.to_string(), "clean");
    for (verdict, words, is_in_doubt) in [
        (Verdict::Torn(cut), "cut before frame 7, which was never completely written", false),
        (
            Verdict::Rotten(cut),
            "cut before frame 7, which is corrupted; answers may have been sent",
            true,
        ),
    ] {
        let said = verdict.to_string();
        assert!(said.starts_with(words) && said.ends_with(place), "{said}");
        let (tip, journal, segments) = (Tip::FIRST, None, Vec::new());
        let recovered = Recovered { tip, journal, verdict, segments, frames: 0 };
        assert_eq!(recovered.is_in_doubt(), is_in_doubt);
    }
}
