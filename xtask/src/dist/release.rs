//! The files of a release.

use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::shell::{output, root, run as run_command};

/// The maximum size of a tarball.
const TARBALL_MAX: u64 = 15 << 20;

/// The data that all packages have in common.
pub(super) struct Release {
    pub(super) version: String,
    /// The commit's time, in seconds since 1970.
    pub(super) time: String,
    pub(super) out: PathBuf,
    pub(super) is_smoke: bool,
}

impl Release {
    /// Creates the folder `name` with everything that a tarball contains.
    pub(super) fn folder(&self, name: &str, program: &Path) -> anyhow::Result<PathBuf> {
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
    pub(super) fn tarball(&self, name: &str) -> anyhow::Result<()> {
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
    pub(super) fn container(&self, folder: &Path) -> anyhow::Result<()> {
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
    pub(super) fn checksums(&self) -> anyhow::Result<()> {
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

/// Reads a file from the repository.
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
