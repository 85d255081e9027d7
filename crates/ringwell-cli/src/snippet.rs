//! `ringwell snippet`: prints the script tag for a web site's pages.
//!
//! Needs no server, because the script is part of this program.

use std::fmt::Write as _;
use std::process::ExitCode;

use crate::print::print;

pub(crate) const HELP: &str = "\
The first tag always loads the newest script. The second tag loads only the script of this version \
of ringwell: replace the second tag after each upgrade that changes the script.

Examples:
  ringwell snippet --site pk_shop --server https://calls.example
  ringwell snippet --site pk_shop --server https://calls.example --only-tag";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The site's key, as printed by `ringwell sites list`
    #[arg(long, value_name = "KEY", value_parser = parse_site)]
    site: String,
    /// URL at which browsers reach the server
    #[arg(long, value_name = "URL", value_parser = parse_server)]
    server: String,
    /// The site's consent setting, if it is not `off`. `required` asks for the visitor's consent
    /// first; `cookieless` stores nothing in the browser before the visitor agrees
    #[arg(
        long,
        value_name = "SETTING",
        value_parser = ["required", "cookieless"],
        num_args = 0..=1,
        default_missing_value = "required"
    )]
    consent: Option<String>,
    /// Swap numbers in structured data (JSON-LD), too
    #[arg(long)]
    jsonld: bool,
    /// Print only the tag that loads the newest script
    #[arg(long)]
    only_tag: bool,
}

fn parse_site(key: &str) -> Result<String, &'static str> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let is_key = key.starts_with("pk_") && key.bytes().all(is_plain);
    if is_key {
        Ok(key.to_owned())
    } else {
        Err("a site key begins with pk_ and contains only letters, digits, _ and -")
    }
}

/// Parses the URL of a server. Returns the URL without a trailing slash.
fn parse_server(url: &str) -> Result<String, &'static str> {
    let origin = url.trim_end_matches('/');
    let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    let is_host = |b: u8| b.is_ascii_alphanumeric() || b".-:[]".contains(&b);
    let is_port = |port: &str| port.ends_with(']') || port.parse::<u16>().is_ok();
    let has_port = |host: &str| host.rsplit_once(':').is_none_or(|(_, port)| is_port(port));
    host.filter(|host| !host.is_empty() && host.bytes().all(is_host) && has_port(host))
        .map(|_| origin.to_owned())
        .ok_or("write e.g. https://calls.example, without a path")
}

/// Prints the script tag.
///
/// # Errors
/// If the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Args { site, server: origin, consent, jsonld, only_tag } = args;
    let consent = consent.as_ref().map(|it| format!(" data-consent=\"{it}\"")).unwrap_or_default();
    let more = format!("{consent}{}", if *jsonld { " data-jsonld" } else { "" });
    let mut text =
        format!("<script async src=\"{origin}/rw.js\" data-site=\"{site}\"{more}></script>\n");
    if !only_tag {
        let script = ringwell_node::script();
        let (path, integrity) = (&script.path, &script.integrity);
        let _ = write!(
            text,
            "\nTo load only this version of the script:\n<script async src=\"{origin}{path}\" \
             integrity=\"{integrity}\" crossorigin=\"anonymous\" \
             data-site=\"{site}\"{more}></script>\n\nIf the pages have a Content-Security-Policy, \
             add to it:\nscript-src {origin}; connect-src {origin}\n"
        );
    }
    print(text.as_bytes())
}
