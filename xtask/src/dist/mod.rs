//! `cargo xtask dist`: builds the packages for users, for the architecture of this machine. These
//! are a glibc tarball and a static musl tarball, a Debian package, a container's context,
//! checksums, and a bill of materials.
//!
//! Everything except the programs comes from files in the repository or is output of the program
//! itself. Files in the archives have the time of the commit, so that the same commit produces the
//! same archives.

mod deb;
mod sbom;

use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::bench::{GUIDED, guided_program};
use crate::shell::{
    cargo, is_installed, output, root, run as run_command, target_dir, with_commit,
};

/// The static tarball to which the README links.
const LINKED: &str = "ringwell-x86_64-linux-musl.tar.gz";

/// The maximum size of a tarball.
const TARBALL_MAX: u64 = 15 << 20;

/// Flags of `cargo xtask dist`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cargo profile of the programs, or `guided`: profile dist, built a second time guided by the
    /// counts of a run under load. Needs wrk and `rustup component add llvm-tools`.
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

/// The data that all packages have in common.
pub(super) struct Release {
    pub(super) version: String,
    /// The commit's time, in seconds since 1970.
    time: String,
    out: PathBuf,
    is_smoke: bool,
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

impl Release {
    /// Creates the folder `name` with everything that a tarball contains.
    fn folder(&self, name: &str, program: &Path) -> anyhow::Result<PathBuf> {
        let folder = self.out.join(name);
        let stripped = folder.join("bin/ringwell");
        fs::create_dir_all(folder.join("bin"))?;
        run_command(
            Command::new("strip").arg("--strip-all").arg("-o").arg(&stripped).arg(program),
        )?;
        set_mode(&stripped, 0o755)?;
        let printed = |words: &[&str]| output(Command::new(&stripped).args(words));
        let generated = [
            ("share/man/man1/ringwell.1", printed(&["man"])?),
            ("share/completions/ringwell.bash", printed(&["completions", "bash"])?),
            ("share/completions/_ringwell", printed(&["completions", "zsh"])?),
            ("share/completions/ringwell.fish", printed(&["completions", "fish"])?),
        ];
        for (path, text) in generated {
            write(&folder.join(path), &text, 0o644)?;
        }
        let copied = [
            ("LICENSE", "LICENSE"),
            ("CHANGELOG.md", "CHANGELOG.md"),
            ("README.md", "README.md"),
            ("deploy/ringwell.toml", "share/ringwell/ringwell.toml"),
            ("deploy/cluster.toml", "share/ringwell/cluster.toml"),
            ("deploy/ringwell.service", "share/ringwell/ringwell.service"),
        ];
        for (from, to) in copied {
            write(&folder.join(to), &read(from)?, 0o644)?;
        }
        Ok(folder)
    }

    /// Packs the folder `name` as a tarball.
    fn tarball(&self, name: &str) -> anyhow::Result<()> {
        let file = self.out.join(format!("{name}.tar.gz"));
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
        tar.arg(format!("--mtime=@{}", self.time)).args(["-I", "gzip -9n", "-C"]).arg(&self.out);
        run_command(tar.arg("-cf").arg(&file).arg(name))?;
        let bytes = fs::metadata(&file)?.len();
        println!("{}: {} KiB", file.display(), bytes / 1024);
        ensure!(
            self.is_smoke || bytes <= TARBALL_MAX,
            "{} has {bytes} bytes, more than {TARBALL_MAX}",
            file.display()
        );
        Ok(())
    }

    /// Packs the context of a container image that contains only the static program.
    fn container(&self, folder: &Path) -> anyhow::Result<()> {
        let name = format!("ringwell-{}-{ARCH}-container", self.version);
        let context = self.out.join(&name);
        write(&context.join("Containerfile"), &read("deploy/package/Containerfile")?, 0o644)?;
        fs::create_dir_all(context.join("data"))?;
        // The image's user must be able to write to this directory.
        set_mode(&context.join("data"), 0o777)?;
        fs::copy(folder.join("bin/ringwell"), context.join("ringwell"))?;
        self.tarball(&name)
    }

    /// Writes the SHA-256 of every file that is published.
    fn checksums(&self) -> anyhow::Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.out)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.push(entry.file_name());
            }
        }
        names.sort();
        let sums = output(Command::new("sha256sum").args(&names).current_dir(&self.out))?;
        fs::write(self.out.join("SHA256SUMS"), &sums)?;
        print!("{sums}");
        Ok(())
    }

    /// A command with the commit's time in its environment, for programs that use it.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SOURCE_DATE_EPOCH", &self.time);
        command
    }

    pub(super) fn out(&self) -> &Path {
        &self.out
    }

    pub(super) const fn is_smoke(&self) -> bool {
        self.is_smoke
    }
}

/// Reads a file of the repository.
pub(super) fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| path.to_owned())
}

/// Writes a file, and creates the folders that it needs.
pub(super) fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    fs::create_dir_all(path.parent().context("no folder")?)?;
    fs::write(path, text).with_context(|| path.display().to_string())?;
    set_mode(path, mode)
}

pub(super) fn set_mode(path: &Path, mode: u32) -> anyhow::Result<()> {
    let set = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    set.with_context(|| path.display().to_string())
}
