//! Places from which configuration and prompts are read: a directory, and behind it the files shipped in the binary.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use crate::environment::env;
use crate::error::ConfigError;
use crate::files::{self, Pass, PathKind};
use crate::regular_file;
use crate::shipped;
use crate::text_file::TextFile;
use crate::trust::{self, UntrustedConfig};

/// Names the configuration directory.
pub const CONFIG_VARIABLE: &str = "AILOOP_CONFIG";

/// Names a directory of prompts: `composer.prompts_dir`.
const PROMPTS_VARIABLE: &str = "AILOOP__COMPOSER__PROMPTS_DIR";
/// Subdirectories of a directory of prompts that contain prompts.
const PROMPT_DIRS: &[&str] = &["", "agents/", "shared/"];

/// Directories in which files are looked for. A file that is in none of them is taken from the binary.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    /// The configuration directory; none when there is nothing but what is shipped.
    pub config: Option<PathBuf>,
    /// The directory that is not used, since nobody named it and the user does not trust it.
    pub untrusted: Option<UntrustedConfig>,
    /// Directories of prompts, first one first.
    pub prompts: Vec<PathBuf>,
    /// Directories that nobody named, each with the variable that names one. Somebody else may have written them, so no
    /// link there may lead to another file of the user.
    pub found: Vec<(PathBuf, &'static str)>,
    /// Notes what is looked at.
    pub pass: Pass,
}

impl Paths {
    /// Looks at `explicit`, else at `AILOOP_CONFIG`, else at `./config`. Only the first two must exist, and the last one
    /// counts only if its settings are harmless or the user trusts it.
    pub fn find(explicit: Option<&Path>) -> Result<Self, ConfigError> {
        Self::find_in(&Pass::default(), explicit)
    }

    /// As [`Paths::find`], as a part of a pass.
    pub fn find_in(pass: &Pass, explicit: Option<&Path>) -> Result<Self, ConfigError> {
        Self::look(pass, explicit, Path::new(""))
    }

    /// As [`Paths::find`] would in another working directory.
    pub fn find_beside(working_dir: &Path) -> Result<Self, ConfigError> {
        Self::look(&Pass::default(), None, working_dir)
    }

    fn look(pass: &Pass, explicit: Option<&Path>, working_dir: &Path) -> Result<Self, ConfigError> {
        let is_there = |dir: &PathBuf| {
            pass.note(dir, PathKind::Directory);
            dir.is_dir()
        };
        let named = explicit
            .map(Path::to_owned)
            .or_else(|| env(CONFIG_VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from));
        if let Some(dir) = named.as_ref().filter(|dir| !is_there(dir)) {
            return Err(ConfigError::NoDirectory(dir.clone()));
        }
        let mut found = vec![(working_dir.join("prompts"), PROMPTS_VARIABLE)];
        let (config, untrusted) = if let Some(dir) = named {
            (Some(dir), None)
        } else {
            let dir = working_dir.join("config");
            found.push((dir.clone(), CONFIG_VARIABLE));
            Self::discover(pass, &dir)
        };
        let beside = config.iter().map(|dir| dir.join("prompts"));
        // The prompts of an untrusted directory are as foreign as its settings.
        let of_project = untrusted.is_none().then(|| working_dir.join("prompts"));
        let prompts = beside.chain(of_project).filter(is_there).collect();
        Ok(Self { config, untrusted, prompts, found, pass: pass.clone() })
    }

    /// Looks at the directory of the project, which nobody named.
    fn discover(pass: &Pass, dir: &Path) -> (Option<PathBuf>, Option<UntrustedConfig>) {
        pass.note(dir, PathKind::TrustedDirectory);
        if !dir.is_dir() {
            return (None, None);
        }
        match trust::find_untrusted(dir) {
            Some(untrusted) => (None, Some(untrusted)),
            None => (Some(dir.to_owned()), None),
        }
    }

    /// Puts a directory of prompts before all others; it must exist.
    pub fn prefer_prompts(&mut self, dir: &Path) -> Result<(), ConfigError> {
        self.pass.note(dir, PathKind::Directory);
        if !dir.is_dir() {
            return Err(ConfigError::NoDirectory(dir.to_owned()));
        }
        // One that was found may be the same directory, by another path.
        let is_same = |found: &Path| found == dir || found.canonicalize().ok() == dir.canonicalize().ok();
        self.found.retain(|(found, _)| !is_same(found));
        self.prompts.insert(0, dir.to_owned());
        Ok(())
    }

    /// Reads a file of the configuration directory, else the shipped one of that name.
    pub fn read(&self, name: &str) -> Result<TextFile, ConfigError> {
        let relative = relative(name)?;
        let found = self.config.as_deref().map(|dir| self.open(&dir.join(relative))).transpose()?.flatten();
        found.or_else(|| shipped::config(name)).ok_or_else(|| ConfigError::Missing { name: name.to_owned() })
    }

    /// Every prompt: one map per directory, the first directory first, what is shipped last. Keys are paths such as
    /// `shared/core.md`.
    pub fn prompts(&self) -> Result<Vec<BTreeMap<String, TextFile>>, ConfigError> {
        let mut roots = self.prompts.iter().map(|dir| self.prompts_of(dir)).collect::<Result<Vec<_>, _>>()?;
        roots.push(shipped::prompts());
        Ok(roots)
    }

    /// The Markdown files of a directory of prompts.
    fn prompts_of(&self, root: &Path) -> Result<BTreeMap<String, TextFile>, ConfigError> {
        let mut found = BTreeMap::new();
        for below in PROMPT_DIRS {
            let dir = root.join(below);
            self.pass.note(&dir, PathKind::Texts);
            let names =
                files::texts_in(&dir).map_err(|source| ConfigError::Unreadable { path: dir.clone(), source })?;
            for name in names.into_iter().flatten() {
                if let Some(file) = self.open(&dir.join(&name))? {
                    found.insert(format!("{below}{name}"), file);
                }
            }
        }
        Ok(found)
    }

    fn open(&self, path: &Path) -> Result<Option<TextFile>, ConfigError> {
        self.pass.note(path, PathKind::File);
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        if let Some((root, variable)) = self.found.iter().find(|(root, _)| path.starts_with(root))
            && regular_file::leads_out(root, path).map_err(unreadable)?
        {
            return Err(ConfigError::LeadsOut { path: path.to_owned(), root: root.clone(), variable });
        }
        match regular_file::read_text(path) {
            Ok(text) => Ok(Some(TextFile { origin: path.display().to_string(), text })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(error)),
        }
    }
}

/// A path below the directory that it is joined to, never beside it.
fn relative(name: &str) -> Result<&Path, ConfigError> {
    let path = Path::new(name);
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || !inside || name.contains('\\') {
        return Err(ConfigError::Outside { name: name.to_owned() });
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_outside_of_the_directory_is_refused() {
        let paths = Paths { config: Some(PathBuf::from("/etc")), ..Paths::default() };
        for name in ["../etc/passwd", "/etc/passwd", "", "a/../../b", "..", "./passwd", "a\\..\\b"] {
            assert!(matches!(paths.read(name), Err(ConfigError::Outside { .. })), "{name}");
        }
    }

    #[test]
    fn file_in_no_directory_is_the_shipped_one() {
        let file = Paths::default().read("models.yaml").unwrap();
        assert_eq!(file.origin, "shipped:models.yaml");
        assert!(Paths::default().prompts().unwrap()[0].contains_key("agents/alice_assistant.md"));
        assert!(matches!(Paths::default().read("nothing.yaml"), Err(ConfigError::Missing { .. })));
    }
}
