//! The files of the image: every path that the Dockerfile copies exists, and every source of the binary is copied.

use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Paths that are copied from the repository, without those of another build stage.
fn copied() -> anyhow::Result<Vec<String>> {
    let file = std::fs::read_to_string(repository().join("deploy/Dockerfile"))?;
    let copies = file.lines().filter_map(|line| line.strip_prefix("COPY "));
    let copies = copies.filter(|rest| !rest.starts_with("--from="));
    let sources = copies.flat_map(|rest| {
        let all: Vec<&str> = rest.split_whitespace().collect();
        all[..all.len() - 1].iter().map(|source| (*source).to_owned()).collect::<Vec<_>>()
    });
    Ok(sources.collect())
}

#[test]
fn copied_path_exists_and_is_sent_to_the_builder() -> anyhow::Result<()> {
    let ignore = std::fs::read_to_string(repository().join(".dockerignore"))?;
    let copied = copied()?;
    assert!(copied.len() > 5, "{copied:?}");
    for source in &copied {
        assert!(repository().join(source).exists(), "{source} does not exist");
        assert!(ignore.lines().any(|line| line == format!("!{source}")), "{source} is not in .dockerignore");
    }
    for line in ignore.lines().filter_map(|line| line.strip_prefix('!')) {
        assert!(copied.iter().any(|source| source == line), "{line} is sent to the builder and not copied");
    }
    Ok(())
}

#[test]
fn workspace_member_is_copied_into_the_image() -> anyhow::Result<()> {
    let manifest = std::fs::read_to_string(repository().join("Cargo.toml"))?;
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).unwrap_or_default();
    let members: Vec<&str> = members.split('"').filter(|text| text.starts_with(char::is_alphanumeric)).collect();
    assert!(members.len() > 3, "{members:?}");
    let copied = copied()?;
    for member in members {
        let inside = |source: &String| member == source || member.starts_with(&format!("{source}/"));
        assert!(copied.iter().any(inside), "{member} is not copied");
    }
    Ok(())
}
