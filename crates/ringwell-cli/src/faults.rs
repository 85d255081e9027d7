//! Prints faults in files that the user named.

use std::path::Path;
use std::process::ExitCode;

use ringwell_directory::Fault;

use crate::print::{print_error, print_note};

/// The maximum number of faults that are printed. More would be too many to read at once.
const FAULTS_SHOWN_MAX: usize = 100;

/// The advice if there is no cluster file at the given path.
pub(crate) const NAME_CLUSTER: &str =
    "set --cluster or RINGWELL_CLUSTER to the path of the cluster file";

/// The advice if there is no configuration at the given path.
pub(crate) const NAME_CONFIG: &str =
    "set --config or RINGWELL_CONFIG to the path of the configuration";

/// Prints faults in a configuration. Also prints advice if there is no file at its path.
pub(crate) fn show_of_file(faults: &[Fault], config: &Path) -> ExitCode {
    let advice = format!("{NAME_CONFIG}; `ringwell demo` needs no configuration");
    show_with_advice(faults, config, &advice)
}

/// Prints faults in the file at `path`. Also prints `advice` if there is no file at this path.
pub(crate) fn show_with_advice(faults: &[Fault], path: &Path, advice: &str) -> ExitCode {
    if is_file(path) {
        return show(faults);
    }
    for fault in faults {
        print_error(fault);
    }
    print_note(advice);
    ExitCode::FAILURE
}

/// Returns whether `path` exists and is not a directory. A pipe is accepted, too.
pub(crate) fn is_file(path: &Path) -> bool {
    path.exists() && !path.is_dir()
}

/// Prints faults, one per line.
pub(crate) fn show(faults: &[Fault]) -> ExitCode {
    for fault in faults.iter().take(FAULTS_SHOWN_MAX) {
        print_note(fault);
    }
    if let Some(more) = faults.len().checked_sub(FAULTS_SHOWN_MAX).filter(|more| *more > 0) {
        print_note(format_args!("and {more} more"));
    }
    ExitCode::FAILURE
}
