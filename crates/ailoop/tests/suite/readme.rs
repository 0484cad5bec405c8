//! Checks the README against the repository.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read_file(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

#[test]
fn readme_links_lead_to_files() {
    let readme = read_file("README.md");
    let targets = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    for target in targets.filter(|target| !target.starts_with("https://")) {
        let file = target.split('#').next().unwrap_or(target);
        assert!(root().join(file).exists(), "{target} does not exist");
    }
}

#[test]
fn readme_make_targets_exist() {
    let (readme, makefile) = (read_file("README.md"), read_file("Makefile"));
    let named = readme.lines().filter_map(|line| line.trim().strip_prefix("make "));
    for target in named.filter_map(|rest| rest.split_whitespace().next()) {
        assert!(makefile.contains(&format!("\n{target}:")), "make {target} does not exist");
    }
}
