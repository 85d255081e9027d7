//! Builds the Debian package: the program, its unit, account and directories, the man page, and the
//! completions.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::release::{Release, read, set_mode, write};
use crate::shell::{output, run};

/// Files that the package must contain. Without them, the package would not work or its
/// documentation would be missing.
const EXPECTED: [&str; 10] = [
    "./usr/bin/ringwell",
    "./lib/systemd/system/ringwell.service",
    "./etc/ringwell/ringwell.toml",
    "./usr/share/man/man1/ringwell.1.gz",
    "./usr/share/bash-completion/completions/ringwell",
    "./usr/share/zsh/vendor-completions/_ringwell",
    "./usr/share/fish/vendor_completions.d/ringwell.fish",
    "./usr/share/doc/ringwell/copyright",
    "./usr/share/doc/ringwell/changelog.gz",
    "./usr/share/doc/ringwell/ringwell.toml",
];

/// Packs the tarball's `folder` as a Debian package.
pub(super) fn build(release: &Release, folder: &Path, revision: u32) -> anyhow::Result<()> {
    let version = format!("{}-{revision}", release.version);
    let root = release.out().join("deb");
    let program = folder.join("bin/ringwell");
    let copies = [
        (program.clone(), "usr/bin/ringwell", 0o755),
        (folder.join("share/man/man1/ringwell.1"), "usr/share/man/man1/ringwell.1", 0o644),
        (
            folder.join("share/completions/ringwell.bash"),
            "usr/share/bash-completion/completions/ringwell",
            0o644,
        ),
        (
            folder.join("share/completions/_ringwell"),
            "usr/share/zsh/vendor-completions/_ringwell",
            0o644,
        ),
        (
            folder.join("share/completions/ringwell.fish"),
            "usr/share/fish/vendor_completions.d/ringwell.fish",
            0o644,
        ),
        (folder.join("CHANGELOG.md"), "usr/share/doc/ringwell/changelog", 0o644),
        (
            folder.join("share/ringwell/ringwell.toml"),
            "usr/share/doc/ringwell/ringwell.toml",
            0o644,
        ),
        (folder.join("share/ringwell/cluster.toml"), "usr/share/doc/ringwell/cluster.toml", 0o644),
    ];
    for (from, to, mode) in copies {
        let to = root.join(to);
        fs::create_dir_all(to.parent().context("no folder")?)?;
        fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        set_mode(&to, mode)?;
    }
    for page in ["usr/share/man/man1/ringwell.1", "usr/share/doc/ringwell/changelog"] {
        run(Command::new("gzip").arg("-9n").arg(root.join(page)))?;
    }
    write(&root.join("usr/share/doc/ringwell/copyright"), &copyright(), 0o644)?;
    write(&root.join("lib/systemd/system/ringwell.service"), &unit()?, 0o644)?;
    write(&root.join("etc/ringwell/ringwell.toml"), &read("deploy/package/ringwell.toml")?, 0o644)?;
    write(&root.join("DEBIAN/conffiles"), "/etc/ringwell/ringwell.toml\n", 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        let text = read(&format!("deploy/package/{script}"))?;
        write(&root.join("DEBIAN").join(script), &text, 0o755)?;
    }
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let kib = fs::metadata(&program)?.len() / 1024;
    let control = control(&version, architecture, &glibc(&program)?, kib);
    write(&root.join("DEBIAN/control"), &control, 0o644)?;
    let file = release.out().join(format!("ringwell_{version}_{architecture}.deb"));
    let mut pack = release.command("dpkg-deb");
    // A smoke run does not compress, because compressing a program with symbols takes long.
    let packing = if release.is_smoke() { "-Znone" } else { "-Zxz" };
    run(pack.args(["--root-owner-group", packing, "--build"]).arg(&root).arg(&file))?;
    fs::remove_dir_all(&root)?;
    let contents = output(Command::new("dpkg-deb").arg("--contents").arg(&file))?;
    for path in EXPECTED {
        let is_there = contents.lines().any(|line| line.split_whitespace().last() == Some(path));
        ensure!(is_there, "{} lacks {path}", file.display());
    }
    Ok(())
}

fn control(version: &str, architecture: &str, glibc: &str, kib: u64) -> String {
    format!(
        "\
Package: ringwell
Version: {version}
Architecture: {architecture}
Maintainer: Ringwell maintainers <maintainers@ringwell.invalid>
Installed-Size: {kib}
Depends: libc6 (>= {glibc}), libgcc-s1, passwd, init-system-helpers
Section: net
Priority: optional
Homepage: https://github.com/ringwell/ringwell
Description: server for ring pools of telephone numbers
 Hands out telephone numbers that no other visitor holds, and identifies the
 visitor when the number is called. Speaks the published RingPool API.
"
    )
}

/// The repository's systemd unit, changed to the path where the package installs the program.
fn unit() -> anyhow::Result<String> {
    let unit = read("deploy/ringwell.service")?.replace("/usr/local/bin/", "/usr/bin/");
    // The first lines of the file describe how to install it by hand.
    let begin = unit.find("[Unit]").context("no [Unit]")?;
    Ok(unit[begin..].to_owned())
}

fn copyright() -> String {
    "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ringwell
Source: https://github.com/ringwell/ringwell

Files: *
Copyright: the Ringwell contributors
License: Apache-2.0
 On Debian systems, the licence is in /usr/share/common-licenses/Apache-2.0.
"
    .to_owned()
}

/// The oldest version of the C library that provides all symbols that the program needs.
fn glibc(program: &Path) -> anyhow::Result<String> {
    let symbols = output(Command::new("objdump").arg("-T").arg(program))?;
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit())?;
        let mut parts = rest[..end].split('.').map(str::parse::<u32>);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    });
    let (major, minor) = versions.max().context("the program requires no version of glibc")?;
    Ok(format!("{major}.{minor}"))
}
