//! The archive of the tested binary: it is packed, installed and run, and a damaged one is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Packs the tested binary, and returns the path of the archive.
fn pack(out: &Path) -> PathBuf {
    let mut pack = Command::new("scripts/dist.sh");
    pack.args(["--binary", env!("CARGO_BIN_EXE_ailoop"), "--out"]).arg(out).current_dir(root());
    let output = pack.output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let beginning = format!("ailoop-{}-", env!("CARGO_PKG_VERSION"));
    let names = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    let mut archives = names.filter(|path| path.extension().is_some_and(|is| is == "gz"));
    let archive = archives.next().unwrap();
    assert!(archive.file_name().unwrap().to_str().unwrap().starts_with(&beginning), "{}", archive.display());
    assert_eq!(archives.next(), None);
    archive
}

fn install(out: &Path, prefix: &Path, archive: &str) -> Output {
    Command::new("sh").arg(out.join("install.sh")).arg("--prefix").arg(prefix).arg(archive).output().unwrap()
}

/// Fails unless the archive is refused for this reason, and nothing was installed.
fn expect_refusal(out: &Path, archive: &Path, why: &str) {
    let prefix = tempfile::tempdir().unwrap();
    let output = install(out, &prefix.path().join("p"), archive.to_str().unwrap());
    let stderr = text(&output.stderr);
    assert!(!output.status.success() && stderr.contains("error: ") && stderr.contains(why), "{stderr}");
    assert!(!prefix.path().join("p").exists(), "something was installed: {stderr}");
}

/// Whether this is a system on which archives are built: Debian or Ubuntu, as for the image.
fn can_build() -> bool {
    ["dpkg-query", "objcopy", "python3"]
        .iter()
        .all(|program| Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success()))
}

#[allow(clippy::print_stderr, reason = "a check that is left out must be seen")]
#[test]
fn archive_is_installed_if_it_is_whole_and_for_this_machine() {
    if !can_build() {
        eprintln!("NOT checked: the archive is built on Debian or Ubuntu");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("dist");
    let archive = pack(&out);
    let path = archive.to_str().unwrap();

    let prefix = scratch.path().join("prefix");
    for source in [path.to_owned(), format!("file://{path}")] {
        let output = install(&out, &prefix, &source);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("add it to your PATH"), "{}", text(&output.stdout));
    }
    let installed = prefix.join("bin/ailoop");
    let version = |binary: &Path| text(&Command::new(binary).arg("--version").output().unwrap().stdout);
    assert_eq!(version(&installed), version(Path::new(env!("CARGO_BIN_EXE_ailoop"))));
    let size = |path: &Path| fs::metadata(path).unwrap().len();
    assert!(size(&installed) < size(Path::new(env!("CARGO_BIN_EXE_ailoop"))), "the binary is not stripped");
    assert!(size(Path::new(&path.replace(".tar.gz", ".debug"))) > 0);
    for (file, expected) in [
        ("share/man/man1/ailoop-run.1", "ailoop run"),
        ("share/bash-completion/completions/ailoop", "_ailoop"),
        ("share/zsh/site-functions/_ailoop", "#compdef ailoop"),
        ("share/fish/vendor_completions.d/ailoop.fish", "ailoop"),
        ("share/doc/ailoop/LICENSE", "Apache License"),
        ("share/doc/ailoop/THIRD_PARTY.txt", "tokio"),
    ] {
        let found = fs::read_to_string(prefix.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(found.contains(expected), "{file}:\n{found}");
    }

    let foreign = out.join(format!("ailoop-{}-riscv64gc-unknown-linux-gnu.tar.gz", env!("CARGO_PKG_VERSION")));
    fs::copy(&archive, &foreign).unwrap();
    fs::copy(format!("{path}.sha256"), format!("{}.sha256", foreign.display())).unwrap();
    expect_refusal(&out, &foreign, "is for another machine: this one is ");

    let mut bytes = fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&archive, bytes).unwrap();
    expect_refusal(&out, &archive, "the checksum of ailoop-");
    fs::remove_file(format!("{path}.sha256")).unwrap();
    expect_refusal(&out, &archive, ".sha256 cannot be read");
}
