//! `cargo xtask dist`: builds the packages for users, for this machine's architecture. These are a
//! glibc tarball and a static musl tarball, a Debian package, a container build context, checksums,
//! and a bill of materials.
//!
//! Everything except the programs comes from files in the repository or is output of the program
//! itself. Files in the archives have the commit's time, so that the same commit produces the same
//! archives.

mod deb;
mod release;
mod sbom;

use std::env::consts::ARCH;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

use self::release::{Release, read};
use crate::bench::{GUIDED, guided_program};
use crate::shell::{cargo, is_installed, output, run as run_command, target_dir, with_commit};

/// The static tarball to which the README links.
const LINKED: &str = "ringwell-x86_64-linux-musl.tar.gz";

/// Flags of `cargo xtask dist`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cargo profile of the programs, or `guided`: profile dist, built a second time with the
    /// counts from a run under load. Needs wrk and `rustup component add llvm-tools`.
    #[arg(long, default_value = GUIDED)]
    profile: String,
    /// Directory for the packages [default: target/dist-packages].
    #[arg(long)]
    out: Option<PathBuf>,
    /// The revision of the Debian package.
    #[arg(long, default_value_t = 1)]
    revision: u32,
    /// Pack the program of the development build, check the contents of the packages, and skip the
    /// limits: a step of CI.
    #[arg(long)]
    smoke: bool,
}

/// Builds and packs.
///
/// # Errors
/// If a program does not build, or a file is missing or too large.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let out = args.out.clone().unwrap_or_else(|| target_dir().join("dist-packages"));
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    let time = output(Command::new("git").args(["log", "-1", "--format=%ct"]))?.trim().to_owned();
    let release =
        Release { version: env!("CARGO_PKG_VERSION").to_owned(), time, out, is_smoke: args.smoke };
    ensure!(read("README.md")?.contains(LINKED), "README.md does not name {LINKED}");
    let (mut glibc, musl) = (None, format!("{ARCH}-unknown-linux-musl"));
    for (target, libc) in [(None, "gnu"), (Some(musl.as_str()), "musl")] {
        if args.smoke && target.is_some() {
            continue;
        }
        let program = build(&args.profile, target, args.smoke)?;
        let name = format!("ringwell-{}-{ARCH}-linux-{libc}", release.version);
        let folder = release.folder(&name, &program)?;
        release.tarball(&name)?;
        if target.is_some() {
            release.container(&folder)?;
            // A name without a version, for links to the latest release.
            let latest = format!("ringwell-{ARCH}-linux-{libc}.tar.gz");
            fs::copy(release.out.join(format!("{name}.tar.gz")), release.out.join(latest))?;
        } else {
            glibc = Some(folder);
        }
    }
    let folder = glibc.context("there is no glibc build to package")?;
    if is_installed("dpkg-deb") {
        deb::build(&release, &folder, args.revision)?;
    } else {
        println!("dpkg-deb is not installed: no Debian package");
    }
    sbom::write(&release.out.join(format!("ringwell-{}-{ARCH}.cdx.json", release.version)))?;
    release.checksums()
}

/// Builds the program with cargo; returns its path.
fn build(profile: &str, target: Option<&str>, smoke: bool) -> anyhow::Result<PathBuf> {
    if smoke {
        return Ok(target_dir().join("debug/ringwell"));
    }
    if let Some(target) = target {
        ensure!(
            is_installed("musl-gcc"),
            "musl-gcc is not installed (Debian: musl-tools); also: rustup target add {target}"
        );
    }
    if profile == GUIDED {
        return guided_program(target);
    }
    let mut command = cargo();
    command.args(["build", "--locked", "-p", "ringwell-cli", "--profile", profile]);
    command.args(["--features", "nats"]);
    let mut folder = target_dir();
    if let Some(target) = target {
        command.args(["--target", target]);
        folder.push(target);
    }
    run_command(with_commit(&mut command)?)?;
    Ok(folder.join(if profile == "dev" { "debug" } else { profile }).join("ringwell"))
}
