//! The README says what is so.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn file(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

#[test]
fn the_tool_is_shown_whole() {
    let block = format!("```python\n{}```", file("examples/tools/python/word_count.py"));
    assert!(file("README.md").contains(&block), "the README shows another word_count.py than examples/tools/python");
}

#[test]
fn every_link_leads_somewhere() {
    let readme = file("README.md");
    let targets = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    for target in targets.filter(|target| !target.starts_with("https://")) {
        assert!(root().join(target).exists(), "{target} is not there");
    }
}

#[test]
fn every_target_of_make_is_there() {
    let (readme, makefile) = (file("README.md"), file("Makefile"));
    let named = readme.lines().filter_map(|line| line.trim().strip_prefix("make "));
    for target in named.filter_map(|rest| rest.split_whitespace().next()) {
        assert!(makefile.contains(&format!("\n{target}:")), "make {target} is not there");
    }
}
