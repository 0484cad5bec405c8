//! All prompt files, read once. Look-ups are in memory, so that no name can lead out of a directory.

use std::collections::{BTreeMap, BTreeSet};

use configuration::ConfigError;
use configuration::{Paths, TextFile};

/// Longest name of a prompt or feature in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The prompts of all directories by precedence; the shipped ones are last.
#[derive(Debug, Clone)]
pub struct Library {
    roots: Vec<BTreeMap<String, TextFile>>,
}

/// The requested variant of a prompt. The most specific file is preferred: `<name>.<flavour>.<family>.md`,
/// `<name>.<family>.md`, `<name>.<flavour>.md`, `<name>.md`.
#[derive(Debug, Clone, Copy, Default)]
pub struct PromptVariant<'a> {
    /// Use of the part, for example `single`, `multi` or `patterns`.
    pub flavour: Option<&'a str>,
    /// The model's `prompt_variant` in `models.yaml`.
    pub family: Option<&'a str>,
}

impl Library {
    /// Reads all prompts of the directories.
    pub fn read(paths: &Paths) -> Result<Self, ConfigError> {
        Ok(Self { roots: paths.prompts()? })
    }

    /// Returns every prompt with its path, by precedence.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.roots.iter().flatten().map(|(path, file)| (path.as_str(), file.text.as_str()))
    }

    /// Returns the most specific variant in the first directory that has one, with its path.
    pub fn find(&self, dir: &str, name: &str, variant: PromptVariant<'_>) -> Option<(String, &TextFile)> {
        let names = variant.file_names(name);
        let paths: Vec<String> = names.iter().map(|name| format!("{dir}{name}.md")).collect();
        let mut found = self.roots.iter().flat_map(|root| paths.iter().filter_map(|path| root.get_key_value(path)));
        found.next().map(|(path, file)| (path.clone(), file))
    }

    /// Whether any variant of a shared part exists.
    pub fn has_shared(&self, name: &str) -> bool {
        let (plain, variant) = (format!("shared/{name}.md"), format!("shared/{name}."));
        self.roots.iter().any(|root| root.keys().any(|path| *path == plain || path.starts_with(&variant)))
    }

    /// The names of all shared parts, without variant and `.md`.
    pub fn features(&self) -> BTreeSet<&str> {
        let paths = self.roots.iter().flat_map(BTreeMap::keys);
        paths.filter_map(|path| path.strip_prefix("shared/")?.split('.').next()).collect()
    }

    /// The names of all prompts of agents, with variant and without `.md`.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        let paths = self.roots.iter().flat_map(BTreeMap::keys);
        paths.filter_map(|path| path.strip_prefix("agents/")?.strip_suffix(".md"))
    }
}

impl PromptVariant<'_> {
    fn file_names(self, name: &str) -> Vec<String> {
        let mut names = Vec::with_capacity(4);
        if let (Some(flavour), Some(family)) = (self.flavour, self.family) {
            names.push(format!("{name}.{flavour}.{family}"));
        }
        names.extend(self.family.map(|family| format!("{name}.{family}")));
        names.extend(self.flavour.map(|flavour| format!("{name}.{flavour}")));
        names.push(name.to_owned());
        names
    }
}

/// Whether a text can name a prompt or feature: 1 to 64 letters, digits, `_` and `-`.
pub fn is_name(text: &str) -> bool {
    let fits = |b: u8| matches!(b, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}
