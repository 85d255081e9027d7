//! Checks the servers that keep the journals, if the configuration names any.

use ringwell_config::Config;

use super::findings::Findings;
use crate::configuration::has_no_journals_in_files;

pub(super) fn servers(config: &Config, findings: &mut Findings) {
    let Some(replicated) = &config.journal.replicated else { return };
    if let Err(error) = has_no_journals_in_files(&config.data) {
        findings.bad("journal", error.to_string());
    }
    #[cfg(feature = "nats")]
    match ringwell_nats::examine(replicated, config.shards, config.clock_skew_max) {
        Ok(found) => {
            found.fit.into_iter().for_each(|text| findings.ok("journal", text));
            found.doubtful.into_iter().for_each(|text| findings.note("journal", text));
        }
        Err(error) => findings.bad("journal", error.to_string()),
    }
    #[cfg(not(feature = "nats"))]
    findings.bad(
        "journal",
        format!(
            "journals on {} require the feature `nats`, but this program was built without that \
             feature: build the program with `cargo install --features nats`",
            replicated.shown_servers()
        ),
    );
}
