//! A log's notes, which are stored in its stream's metadata. They outlive the stream's messages,
//! and the servers store them together with the stream. Source: docs/spec/log.md, "Lost streams".

use ringwell_driver::store::{Gaps, LogEnd, LogNotes, OverflowPeriods};
use serde_json::{Value, json};

/// The shards of the process that created the log and the shards added later, separated by commas.
const SHARDS: &str = "ringwell.shards";
/// Present if the stream was created to replace one that was lost.
const REPLACEMENT: &str = "ringwell.replacement";
/// The periods from which answered allocations may be missing, in the format of [`Gaps::to_text`].
const GAPS: &str = "ringwell.gaps";
/// The overflow periods, in the format of [`OverflowPeriods::to_text`].
const OVERFLOW: &str = "ringwell.overflow";
/// The epoch and the group at which a process noticed a loss, separated by a colon.
const FAILED_AT: &str = "ringwell.failed-at";

/// Reads the notes from a stream's configuration.
pub(crate) fn read(config: &Value) -> LogNotes {
    let text = |name: &str| config["metadata"][name].as_str().unwrap_or_default();
    LogNotes {
        shards: text(SHARDS).split(',').filter_map(|shard| shard.parse().ok()).collect(),
        is_replacement: !text(REPLACEMENT).is_empty(),
        gaps: Gaps::parse(text(GAPS)),
        overflow: OverflowPeriods::parse(text(OVERFLOW)),
        failed_at: failed_at(text(FAILED_AT)),
    }
}

/// Parses the place where a process noticed a loss. If `text` cannot be parsed, the loss may have
/// happened at any time.
fn failed_at(text: &str) -> LogEnd {
    if text.is_empty() {
        return LogEnd::default();
    }
    let end = text.split_once(':').and_then(|(epoch, group)| {
        Some(LogEnd { epoch: epoch.parse().ok()?, group: group.parse().ok()? })
    });
    end.unwrap_or_else(|| {
        tracing::error!(
            note = text,
            "cannot read the metadata entry {FAILED_AT} of a journal's stream. The entry records \
             when the stream lost acknowledged messages. Until the entry can be read or is \
             removed, all pools of the shard answer with overflow numbers for the longest lifetime \
             after each start. Start a version of Ringwell that can read the entry, or remove \
             the entry"
        );
        LogEnd { epoch: u64::MAX, group: u64::MAX }
    })
}

/// Adds the notes to a stream's configuration.
pub(crate) fn write(config: &mut Value, notes: &LogNotes) {
    let shards: Vec<String> = notes.shards.iter().map(u16::to_string).collect();
    let replacement = if notes.is_replacement { "yes" } else { "" };
    let LogEnd { epoch, group } = notes.failed_at;
    let is_known = group < u64::MAX;
    let has_failed = notes.failed_at != LogEnd::default() && is_known;
    let failed_at = if has_failed { format!("{epoch}:{group}") } else { String::new() };
    let texts = [
        (SHARDS, shards.join(",")),
        (REPLACEMENT, replacement.to_owned()),
        (GAPS, notes.gaps.to_text()),
        (OVERFLOW, notes.overflow.to_text()),
        (FAILED_AT, failed_at),
    ];
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        config["metadata"][name] = json!(text);
    }
}

#[cfg(test)]
mod tests {
    use ringwell_core::{Millis, PromoNumber};

    use super::*;

    #[test]
    fn notes_are_read_as_they_were_written_and_other_metadata_stays() {
        let mut gaps = Gaps::default();
        gaps.add(Millis(5), Millis(7));
        let failed_at = LogEnd { epoch: 3, group: 70 };
        let mut overflow = OverflowPeriods::default();
        overflow.change(&[PromoNumber::parse("2005550001").unwrap()], &[], Millis(9));
        let shards = [0, 3].into();
        let notes = LogNotes { shards, is_replacement: true, gaps, overflow, failed_at };
        for notes in [notes, LogNotes::default()] {
            let mut config = json!({ "metadata": { "ringwell.placement": "one process" } });
            write(&mut config, &notes);
            assert_eq!(read(&config), notes);
            assert_eq!(config["metadata"]["ringwell.placement"], "one process");
        }
        assert_eq!(read(&json!({})), LogNotes::default());
    }

    #[test]
    fn a_loss_at_an_unreadable_time_may_have_been_at_any_time() {
        let any = LogEnd { epoch: u64::MAX, group: u64::MAX };
        for text in ["garbage", "v2:2:14", ":", "1:99999999999999999999999"] {
            let mut config = json!({ "metadata": { FAILED_AT: text } });
            assert_eq!(read(&config).failed_at, any, "{text}");
            // Writing the notes does not replace text that cannot be parsed.
            let notes = read(&config);
            write(&mut config, &notes);
            assert_eq!(config["metadata"][FAILED_AT], text);
        }
    }
}
