//! Reads the pages of documentation, and what they are held against.

pub(crate) mod examples;
pub(crate) mod limits;

use std::path::{Path, PathBuf};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of the repository.
pub(crate) fn page(name: &str) -> String {
    let path = root().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every page of documentation by name; the README has tests of its own.
pub(crate) fn pages() -> Vec<(String, String)> {
    let mut names = ["ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md"].map(str::to_owned).to_vec();
    for dir in ["docs", "docs/reference", "docs/adr"] {
        for entry in std::fs::read_dir(root().join(dir)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                names.push(format!("{dir}/{}", path.file_name().unwrap().to_str().unwrap()));
            }
        }
    }
    names.sort();
    names.into_iter().map(|name| (name.clone(), page(&name))).collect()
}

/// The cells of every table's rows.
pub(crate) fn rows(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| line.starts_with("| ") && line.ends_with(" |"));
    lines.map(|line| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// Every link as its text and its target; code blocks have none.
pub(crate) fn links(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        }
        let mut rest = line;
        while let (false, Some(at)) = (in_code, rest.find("](")) {
            let label = rest[..at].rsplit('[').next().unwrap_or_default();
            let target = rest[at + 2..].split(')').next().unwrap_or_default();
            found.push((label.to_owned(), target.to_owned()));
            rest = &rest[at + 2..];
        }
    }
    found
}
