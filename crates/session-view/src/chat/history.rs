//! The messages that a person typed before, in a file of the state directory.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Entries that are kept.
const ENTRIES_MAX: usize = 1_000;
/// Bytes of an entry; a longer text is not kept.
const ENTRY_BYTES_MAX: usize = 8 << 10;
/// Bytes of the file that are read, more than all entries need.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// Entries of the history, the newest last, and the position in it.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// None: the history is not stored.
    path: Option<PathBuf>,
    entries: Vec<String>,
    /// Index of the entry that is shown; none: the draft.
    position: Option<usize>,
    /// The text before an entry was shown.
    draft: String,
}

impl History {
    /// Reads the history of the user. A file that cannot be read is an empty history.
    pub(crate) fn load() -> Self {
        let directory = state_directory(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"));
        directory.map(|directory| Self::load_from(directory.join("ailoop/chat_history"))).unwrap_or_default()
    }

    fn load_from(path: PathBuf) -> Self {
        let mut entries = read_entries(&path);
        if entries.len() > ENTRIES_MAX {
            entries.drain(..entries.len() - ENTRIES_MAX);
            // If it cannot be rewritten, it is only longer than it should be.
            let _longer = rewrite(&path, &entries);
        }
        Self { path: Some(path), entries, ..Self::default() }
    }

    /// Adds an entry. A text that begins with a space is not kept, nor is one that repeats the last one.
    pub(crate) fn add(&mut self, text: &str) {
        self.position = None;
        let is_kept = !text.starts_with(' ') && !text.trim().is_empty() && text.len() <= ENTRY_BYTES_MAX;
        if !is_kept || self.entries.last().is_some_and(|last| last == text) {
            return;
        }
        self.entries.push(text.to_owned());
        if self.entries.len() > ENTRIES_MAX {
            self.entries.remove(0);
        }
        if let Some(path) = &self.path {
            // A history that cannot be stored ends with the chat.
            let _not_stored = append(path, text);
        }
    }

    /// Returns the entry before the shown one.
    pub(crate) fn previous(&mut self, current: &str) -> Option<&str> {
        let index = self.position.unwrap_or(self.entries.len()).checked_sub(1)?;
        if self.position.is_none() {
            current.clone_into(&mut self.draft);
        }
        self.position = Some(index);
        self.entries.get(index).map(String::as_str)
    }

    /// Returns the entry after the shown one; after the newest one, the draft.
    pub(crate) fn next(&mut self) -> Option<&str> {
        let index = self.position? + 1;
        self.position = (index < self.entries.len()).then_some(index);
        Some(self.position.and_then(|index| self.entries.get(index)).map_or(self.draft.as_str(), String::as_str))
    }
}

/// Returns `$XDG_STATE_HOME`, else `~/.local/state`.
fn state_directory(state: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let set = |value: Option<OsString>| value.filter(|value| !value.is_empty()).map(PathBuf::from);
    set(state).or_else(|| set(home).map(|home| home.join(".local/state")))
}

fn read_entries(path: &Path) -> Vec<String> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let lines = BufReader::new(file.take(FILE_BYTES_MAX)).lines().map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()
}

fn append(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    // One write, so that two chats do not mix their lines.
    file.write_all(format!("{}\n", serde_json::Value::from(text)).as_bytes())
}

fn rewrite(path: &Path, entries: &[String]) -> std::io::Result<()> {
    let lines: Vec<String> = entries.iter().map(|entry| serde_json::Value::from(entry.as_str()).to_string()).collect();
    let text = lines.join("\n") + "\n";
    let unfinished = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn entries_are_found_again_and_the_draft_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ailoop/chat_history");
        let mut history = History::load_from(path.clone());
        for text in ["one", "two\nlines", "two\nlines", " secret", ""] {
            history.add(text);
        }
        let mut again = History::load_from(path.clone());
        assert_eq!(again.previous("draft"), Some("two\nlines"));
        assert_eq!(again.previous("two\nlines"), Some("one"));
        assert_eq!(again.previous("one"), None);
        assert_eq!(again.next(), Some("two\nlines"));
        assert_eq!(again.next(), Some("draft"));
        assert_eq!(again.next(), None);
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn history_has_a_bound_in_memory_and_in_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("chat_history");
        let mut history = History::load_from(path.clone());
        for index in 0..ENTRIES_MAX + 10 {
            history.add(&format!("entry {index}"));
        }
        assert_eq!(history.entries.len(), ENTRIES_MAX);
        assert_eq!(History::load_from(path.clone()).entries.first().map(String::as_str), Some("entry 10"));
        assert_eq!(read_entries(&path).len(), ENTRIES_MAX);
    }

    #[test]
    fn state_directory_follows_the_environment() {
        let path = |text: &str| Some(OsString::from(text));
        assert_eq!(state_directory(path("/s"), path("/h")), Some("/s".into()));
        assert_eq!(state_directory(path(""), path("/h")), Some("/h/.local/state".into()));
        assert_eq!(state_directory(None, None), None);
    }
}
