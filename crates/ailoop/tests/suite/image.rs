//! The container image of the tested binary: it is built twice and run once.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The image of a debug binary is larger than one for users may be.
const SIZE_MAX: &str = "2000000000";

fn image(arguments: &[&str]) -> Output {
    let output = Command::new("python3").arg("scripts/image").args(arguments).current_dir(root()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}:\n{}{}", text(&output.stdout), text(&output.stderr));
    output
}

fn build(out: &Path) -> String {
    let (binary, out) = (env!("CARGO_BIN_EXE_ailoop"), out.to_str().unwrap());
    image(&["build", "--binary", binary, "--out", out, "--size-max", SIZE_MAX]);
    std::fs::read_to_string(format!("{out}/oci/index.json")).unwrap()
}

/// Whether this process may make mounts, and the system is one whose libraries the image can have.
fn can_build_and_run() -> bool {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let may_mount = Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success());
    let has_dpkg = Command::new("dpkg-query").arg("--version").output().is_ok_and(|output| output.status.success());
    is_root && may_mount && has_dpkg
}

#[allow(clippy::print_stderr, reason = "a check that is left out must be seen")]
#[test]
fn image_built_twice_is_the_same_and_runs_as_nobody_with_a_read_only_root() {
    if !can_build_and_run() {
        eprintln!("NOT checked: the image is built on Debian or Ubuntu, and run by root");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let (first, second) = (scratch.path().join("first"), scratch.path().join("second"));
    assert_eq!(build(&first), build(&second), "the same binary gave two images");
    let checked = image(&["check", first.join("oci").to_str().unwrap()]);
    let lines = String::from_utf8(checked.stdout).unwrap();
    for seen in ["--version: ailoop ", "config check: ok: ", "/healthz and /readyz answer 200"] {
        assert!(lines.contains(seen), "{seen:?} is not in:\n{lines}");
    }
}
