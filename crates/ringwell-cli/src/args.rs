//! The command line: the commands and flags of `ringwell`, and its help texts.
//!
//! Defines names, defaults and help texts. Does not run the commands.

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::version::VERSION;
use crate::{
    backup, call_log, check, demo, doctor, haproxy, journal, load, plan, pools, restore, serve,
    shards, simulate, sites, snippet, test_call, top, ui, webhooks,
};

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  failed, or found a fault (doctor, journal verify, check, pools import)
  2  wrong usage; for `check`, also an unreadable file, or nothing to judge

Start with the demo. It creates ring pools, serves them on 127.0.0.1:8080, and prints requests to \
try:
  ringwell demo";

const SERVE_HELP: &str = "\
Settings are read from the configuration file. The variables RINGWELL_DATA, RINGWELL_LISTEN \
(addresses separated by commas), RINGWELL_SHARDS, RINGWELL_DURABILITY, RINGWELL_DEADLINE, \
RINGWELL_TOKEN_SHA256, RINGWELL_LOG_FORMAT and RINGWELL_LOG_LEVEL override the file, and flags \
override the variables.

Examples:
  ringwell serve --config ringwell.toml --check
  ringwell serve --config ringwell.toml --cluster cluster.toml --node a
  ringwell serve --config ringwell.toml --listen 0.0.0.0:8080 \\
    --listen unix:/run/ringwell.sock";

const DEMO_HELP: &str = "\
Examples:
  ringwell demo
  ringwell demo --pools 1000 --numbers 100 --shards 2 --durability memory
  ringwell demo --lifetime 10ms    # for load tests: numbers become free again within milliseconds";

const JOURNAL_HELP: &str = "\
DIRECTORY is a data directory, or one shard's directory in it (DATA/journal/0).

Examples:
  ringwell journal verify ./data
  ringwell journal inspect ./data --number 2000000000 --json
  ringwell journal replay ./data";

const TOKEN_HELP: &str = "\
Give the secret to clients, which send it as `Authorization: Bearer SECRET`; the command does not \
store the secret. The setting contains the SHA-256 hash of the secret. Paste all of stderr into \
the server's configuration, or set RINGWELL_TOKEN_SHA256 to the hash.

Examples:
  ringwell token
  (umask 077; ringwell token >secret 2>setting.toml)";

const MAN_HELP: &str = "\
Examples:
  ringwell man | man -l -
  ringwell man >/usr/local/share/man/man1/ringwell.1";

/// Ring Pool API server: gives each visitor a phone number and records who received it.
#[derive(Debug, Parser)]
#[command(name = "ringwell", version = &**VERSION, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Ringwell {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands, in the order in which a user needs them: try, plan, set up, run, measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create sample ring pools and serve them
    #[command(after_help = DEMO_HELP)]
    Demo(demo::Args),
    /// Calculate how many numbers a pool needs, or what machines a cluster needs
    #[command(after_help = plan::HELP)]
    Plan(Box<plan::Args>),
    /// Simulate visitors from a web site's access log to see which calls would be attributed
    #[command(after_help = simulate::HELP)]
    Simulate(Box<simulate::Args>),
    /// Check whether this machine and a configuration are fit to serve
    #[command(after_help = doctor::HELP)]
    Doctor(doctor::Args),
    /// Create a management token: print the secret on stdout, and the setting for the server on
    /// stderr
    #[command(after_help = TOKEN_HELP)]
    Token,
    /// Serve the ring pools in a configuration
    #[command(after_help = SERVE_HELP)]
    Serve(serve::Args),
    /// Manage the ring pools of a running server that keeps them in a database
    #[command(after_help = pools::HELP)]
    Pools(Box<pools::Args>),
    /// Manage web sites whose pages show each visitor a number
    #[command(after_help = sites::HELP)]
    Sites(Box<sites::Args>),
    /// Print the script tag for a web site's pages
    #[command(after_help = snippet::HELP)]
    Snippet(snippet::Args),
    /// Show which ring pools overflow, and why
    #[command(after_help = top::HELP)]
    Top(top::Args),
    /// Make a test call to one of a running server's numbers, without a provider
    #[command(after_help = test_call::HELP)]
    Call(test_call::Args),
    /// Export calls from a running server, report their results, block callers, erase personal data
    #[command(after_help = call_log::HELP)]
    Calls(call_log::Args),
    /// Receive a server's webhooks on this machine, for testing
    #[command(after_help = webhooks::HELP)]
    Webhooks(webhooks::Args),
    /// Print a link that opens a running server's dashboard
    #[command(after_help = ui::HELP)]
    Ui(ui::Args),
    /// Back up a running server, and check the backup
    #[command(after_help = backup::HELP)]
    Backup(backup::Args),
    /// Restore a data directory from a copy; the server then withholds numbers that may be locked
    /// out
    #[command(after_help = restore::HELP)]
    Restore(restore::Args),
    /// Check and read journals, or erase parameters in them
    #[command(after_help = JOURNAL_HELP)]
    Journal(journal::Args),
    /// Show which shard owns which buckets, and move them between running nodes
    #[command(after_help = shards::HELP)]
    Shards(shards::Args),
    /// Print a haproxy configuration for a cluster's nodes
    #[command(after_help = haproxy::HELP)]
    Haproxy(haproxy::Args),
    /// Send batches to a server and report answers and latencies
    #[command(after_help = load::HELP)]
    Load(Box<load::Args>),
    /// Check whether a recorded history violates the server's guarantees
    #[command(after_help = check::HELP)]
    Check(check::Args),
    /// Print a completion script for a shell
    Completions {
        /// The shell to print completions for
        shell: Shell,
    },
    /// Print the manual page, in roff
    #[command(after_help = MAN_HELP)]
    Man,
}
