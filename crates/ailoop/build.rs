//! Records which commit, compiler and target the binary is built from. `src/version.rs` reads what this script sets.
//!
//! Without git, for example in a source archive, `AILOOP_COMMIT` and `AILOOP_COMMIT_DATE` say it.

#![allow(clippy::disallowed_methods, reason = "cargo talks to build scripts by environment variables")]
#![allow(clippy::print_stdout, reason = "and by stdout")]

use std::env::var;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sources of the binary. A change elsewhere, such as in pages and tests, does not change the binary.
const SOURCES: &[&str] =
    &[".cargo", "Cargo.lock", "Cargo.toml", "config", "crates", "prompts", "proto", "rust-toolchain.toml", "services"];
/// Files of git that change with every commit and checkout.
const HEAD_FILES: &[&str] = &["HEAD", "logs/HEAD", "packed-refs"];
/// Digits of a commit that people read.
const SHORT: usize = 8;

/// A commit, with `-dirty` behind it if the sources differ from it.
#[derive(Default)]
struct Commit {
    id: String,
    /// `2026-01-31` or `2026-01-31T12:00:00Z`; empty if unknown.
    date: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=AILOOP_COMMIT");
    println!("cargo:rerun-if-env-changed=AILOOP_COMMIT_DATE");
    let root = Path::new(&var("CARGO_MANIFEST_DIR")?).join("../..").canonicalize()?;
    let commit = match var("AILOOP_COMMIT") {
        Ok(id) if !id.is_empty() => given_commit(id, var("AILOOP_COMMIT_DATE").unwrap_or_default())?,
        _ => git_commit(&root).unwrap_or_default(),
    };
    let rustc = Command::new(var("RUSTC")?).arg("--version").output()?;
    set("COMMIT", &commit.id);
    set("COMMIT_DATE", &commit.date);
    set("RUSTC", String::from_utf8(rustc.stdout)?.trim());
    set("TARGET", &var("TARGET")?);
    set("PROFILE", &profile()?);
    set("TEXT", &text(&var("CARGO_PKG_VERSION")?, &commit));
    if var("CARGO_CFG_TARGET_OS")? == "linux" {
        // By this id a debugger finds the data that scripts/image.sh takes out of the binary.
        println!("cargo:rustc-link-arg-bins=-Wl,--build-id=sha1");
    }
    Ok(())
}

fn set(name: &str, value: &str) {
    println!("cargo:rustc-env=AILOOP_BUILD_{name}={value}");
}

/// As `rustc --version` shows its commit: `0.1.0 (a96bb824 2026-11-25)`.
fn text(version: &str, commit: &Commit) -> String {
    if commit.id.is_empty() {
        return format!("{version} (unknown commit)");
    }
    let (id, dirty) = commit.id.split_once('-').map_or((commit.id.as_str(), ""), |(id, _)| (id, "-dirty"));
    let short = &id[..id.len().min(SHORT)];
    let day = commit.date.get(..10).map(|day| format!(" {day}")).unwrap_or_default();
    format!("{version} ({short}{dirty}{day})")
}

/// Checks a commit that the environment names.
fn given_commit(id: String, date: String) -> Result<Commit, String> {
    let digits = id.strip_suffix("-dirty").unwrap_or(&id);
    if !(7..=40).contains(&digits.len()) || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(format!("AILOOP_COMMIT is {id:?}: expected 7 to 40 hexadecimal digits, and -dirty behind them"));
    }
    let is_day = |day: &str| day.len() == 10 && day.chars().all(|c| c.is_ascii_digit() || c == '-');
    if !date.is_empty() && !date.get(..10).is_some_and(is_day) {
        return Err(format!("AILOOP_COMMIT_DATE is {date:?}: expected a date such as 2026-01-31"));
    }
    Ok(Commit { id, date })
}

/// Asks git, and lets cargo run this script again when the answer may change.
fn git_commit(root: &Path) -> Option<Commit> {
    // A source archive may lie within a repository of somebody else.
    if Path::new(&git(root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    let head_files = HEAD_FILES.iter().filter_map(|file| git(root, &["rev-parse", "--git-path", file]));
    let watched = SOURCES.iter().map(|source| root.join(source)).chain(head_files.map(|file| root.join(file)));
    // Cargo runs a script in every build if it watches a file that does not exist.
    for path in watched.filter(|path: &PathBuf| path.exists()) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let mut id = git(root, &["rev-parse", "HEAD"])?;
    let status = [&["status", "--porcelain", "--"], SOURCES].concat();
    if !git(root, &status)?.is_empty() {
        id.push_str("-dirty");
    }
    let date = git(root, &["show", "--no-patch", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd", "HEAD"])?;
    Some(Commit { id, date })
}

/// The output of a git command, without its last line end. None if there is no git, or no repository.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    // Optional locks would change files that are watched.
    let git =
        Command::new("git").arg("--no-optional-locks").args(arguments).current_dir(root).env("TZ", "UTC").output();
    let output = git.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}

/// The name of the profile. Cargo tells scripts only whether it inherits `release`; its directory has its name.
fn profile() -> Result<String, Box<dyn Error>> {
    let out = PathBuf::from(var("OUT_DIR")?);
    let directory =
        out.ancestors().nth(3).and_then(Path::file_name).ok_or("OUT_DIR is not in a directory of a profile")?;
    Ok(directory.to_string_lossy().into_owned())
}
