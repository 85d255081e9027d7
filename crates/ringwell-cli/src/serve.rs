//! `ringwell serve`: a server as its configuration wants it.

use std::process::ExitCode;
use std::thread;

use ringwell_directory::{Fault, load};

use crate::args::Serve;
use crate::logs;

/// More than anybody reads at once.
const FAULTS_SHOWN_MAX: usize = 100;

/// Serves until a signal ends it, or only checks.
///
/// # Errors
/// If the server cannot start or does not end well. Faults of the configuration are printed.
pub(crate) fn run(args: Serve) -> anyhow::Result<ExitCode> {
    let flags = args.server.overrides(args.data);
    let (config, directory) = match load(&args.config, variable, flags, cores()) {
        Ok(loaded) => loaded,
        Err(faults) => {
            let code = show(&faults);
            if !args.config.exists() {
                eprintln!(
                    "name the configuration with --config or RINGWELL_CONFIG; `ringwell demo` \
                     needs none"
                );
            }
            return Ok(code);
        }
    };
    if args.check {
        logs::filter(&config.log)?;
        let (pools, numbers) = (directory.pools().len(), directory.number_count());
        println!("ok: {pools} pools, {numbers} numbers");
        return Ok(ExitCode::SUCCESS);
    }
    logs::start(&config.log)?;
    ringwell_node::serve(config, directory, None, Box::new(|_| ()))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints faults, one a line.
pub(crate) fn show(faults: &[Fault]) -> ExitCode {
    for fault in faults.iter().take(FAULTS_SHOWN_MAX) {
        eprintln!("{fault}");
    }
    if let Some(more) = faults.len().checked_sub(FAULTS_SHOWN_MAX).filter(|more| *more > 0) {
        eprintln!("and {more} more");
    }
    ExitCode::FAILURE
}

/// The value of a variable, if it has one that is text.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// How many processor cores this process may use.
pub(crate) fn cores() -> u16 {
    thread::available_parallelism()
        .map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(u16::MAX))
}
