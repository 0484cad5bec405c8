//! The example tools of three languages, as processes: their dependencies are found or installed, and each records its
//! effects.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{install, python};

/// Directory of the examples.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/tools");
/// Script that installs the packages of the tools in JavaScript.
const INSTALLER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/javascript.sh");
/// Directory into which the script installs.
const PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.tools/javascript");

/// The language of an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Needs nats-py, which is installed if it is missing.
    Python,
    /// Needs node and two packages.
    JavaScript,
    /// Built with the tests.
    Rust,
}

impl Language {
    /// All languages of the examples.
    pub const ALL: [Self; 3] = [Self::Python, Self::JavaScript, Self::Rust];

    /// Name and arguments of its pure tool.
    pub const fn pure(self) -> (&'static str, &'static str) {
        match self {
            Self::Python => ("word_count", r#"{"text": "one two"}"#),
            Self::JavaScript => ("slugify", r#"{"title": "One, two"}"#),
            Self::Rust => ("letter_count", r#"{"text": "one two", "letter": "o"}"#),
        }
    }

    /// Name of its idempotent tool, with the argument `text`.
    pub const fn note(self) -> &'static str {
        match self {
            Self::Python => "py_note",
            Self::JavaScript => "js_note",
            Self::Rust => "rs_note",
        }
    }

    /// Name of its `at_most_once` tool, with the argument `seconds`.
    pub const fn bell(self) -> &'static str {
        match self {
            Self::Python => "py_bell",
            Self::JavaScript => "js_bell",
            Self::Rust => "rs_bell",
        }
    }
}

/// An effect that a tool recorded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct RecordedEffect {
    /// Name of the tool that took effect.
    pub tool: String,
    /// Call id as tools get it.
    pub call: String,
    /// Process id of the replica.
    pub pid: u32,
}

/// Runs the example tools of one language in a temporary directory.
#[derive(Debug)]
pub struct Examples {
    language: Language,
    program: PathBuf,
    home: TempDir,
    url: String,
}

impl Examples {
    /// Finds or installs the dependencies of a language. `None` if they are missing; then stderr says what to install.
    /// Blocks during an installation.
    pub fn find(language: Language, nats_url: &str) -> anyhow::Result<Option<Self>> {
        let home = TempDir::with_prefix("ailoop-examples-")?;
        let program = match language {
            Language::Python => python::with_nats()?,
            Language::Rust => PathBuf::new(),
            Language::JavaScript => {
                let packages = Path::new(PACKAGES).join("node_modules");
                if !succeeds("node", &["--version"]) {
                    skip("tools in JavaScript are not tested: install Node 18 or newer");
                    return Ok(None);
                }
                let there = || packages.join("@nats-io/transport-node").is_dir();
                let installed = install::exclusively(|| Ok(there() || succeeds(INSTALLER, &[]) && there()))?;
                if !installed {
                    skip("tools in JavaScript are not tested: scripts/javascript.sh could not install their packages");
                    return Ok(None);
                }
                // Node looks for packages beside the file that imports them.
                for entry in std::fs::read_dir(Path::new(EXAMPLES).join("javascript"))? {
                    let entry = entry?;
                    if entry.file_type()?.is_file() {
                        std::fs::copy(entry.path(), home.path().join(entry.file_name()))?;
                    }
                }
                std::os::unix::fs::symlink(packages, home.path().join("node_modules"))?;
                PathBuf::from("node")
            }
        };
        Ok(Some(Self { language, program, home, url: nats_url.to_owned() }))
    }

    /// Starts a replica; it is killed when the value is dropped.
    pub fn start(&self, tool: &str) -> anyhow::Result<Child> {
        let mut command = match self.language {
            Language::Rust => Command::new(built(tool)?),
            Language::Python => {
                let mut command = Command::new(&self.program);
                command.arg(Path::new(EXAMPLES).join(format!("python/{tool}.py")));
                command
            }
            Language::JavaScript => {
                let mut command = Command::new(&self.program);
                command.arg(self.home.path().join(format!("{tool}.js")));
                command
            }
        };
        command.current_dir(self.home.path()).env("NATS_URL", &self.url);
        command.env("NOTES_DIR", self.notes_dir()).env("EFFECTS_FILE", self.effects_file());
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        command.spawn().with_context(|| format!("{tool} does not start"))
    }

    /// All effects so far, in order.
    pub fn effects(&self) -> anyhow::Result<Vec<RecordedEffect>> {
        let text = match std::fs::read_to_string(self.effects_file()) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => bail!(error),
        };
        text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
    }

    /// The text of each note by its call id.
    pub fn notes(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut notes = BTreeMap::new();
        for entry in std::fs::read_dir(self.notes_dir())? {
            let entry = entry?;
            let name = entry.file_name().into_string().unwrap_or_default();
            if let Some(call) = name.strip_suffix(".txt") {
                notes.insert(call.to_owned(), std::fs::read_to_string(entry.path())?);
            }
        }
        Ok(notes)
    }

    fn notes_dir(&self) -> PathBuf {
        self.home.path().join("notes")
    }

    fn effects_file(&self) -> PathBuf {
        self.home.path().join("effects.jsonl")
    }
}

/// Whether a program exits with code 0.
fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let output = std::process::Command::new(program).args(arguments).stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

/// Path of the built example: cargo puts it beside the directory of the test executables, as `<tool>-under-test`.
fn built(tool: &str) -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let dir = test.parent().and_then(Path::parent).context("a test executable is in target/<profile>/deps")?;
    let path = dir.join(format!("{tool}-under-test{}", std::env::consts::EXE_SUFFIX));
    ensure!(path.is_file(), "{} is missing: run `cargo build --workspace --all-targets`", path.display());
    Ok(path)
}

#[allow(clippy::print_stderr, reason = "stderr is where a skipped test can be noticed")]
fn skip(why: &str) {
    eprintln!("{why}");
}
