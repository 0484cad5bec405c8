//! A file in which a server under test notes what it does, since it may be another process, and may be killed.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Clone)]
pub(crate) struct Diary(PathBuf);

impl Diary {
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn note(&self, line: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.0).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        std::fs::read_to_string(&self.0).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    pub(crate) fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|noted| *noted == line).count()
    }
}
