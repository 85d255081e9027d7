//! The process's environment: its variables and processors.

use std::thread;

/// Returns the value of a variable, if it is set and valid UTF-8.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Refuses configuration variables whose values are not UTF-8, because they would otherwise be
/// ignored.
///
/// # Errors
/// Returns an error about the first such variable.
pub(crate) fn check_variables() -> anyhow::Result<()> {
    for name in ringwell_config::VARIABLES {
        let is_text = std::env::var_os(name).is_none_or(|value| value.to_str().is_some());
        anyhow::ensure!(
            is_text,
            "the value of {name} is not UTF-8: correct the value, or unset the variable and use \
             the setting in the configuration"
        );
    }
    Ok(())
}

/// Warns about ignored variables whose names resemble those of configuration variables.
pub(crate) fn warn_of_slips() -> impl Iterator<Item = String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter_map(|name| {
        let meant = ringwell_config::meant(&name)?;
        Some(format!("the variable {name} is ignored: did you mean {meant}?"))
    })
}

/// Returns the number of processor cores that this process may use.
pub(crate) fn cores() -> u16 {
    thread::available_parallelism()
        .map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(u16::MAX))
}
