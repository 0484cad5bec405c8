//! A mistake in the configuration, as people read it.

use std::fmt;

use configuration::ConfigError;
use configuration::TextFile;

use super::tree::TextPosition;

/// A mistake in the configuration, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMistake {
    /// Path of the file, or `the environment`.
    pub origin: String,
    /// Line from 1; 0 if it is unknown.
    pub line: usize,
    /// Column from 1; 0 if it is unknown.
    pub column: usize,
    /// Says what is wrong and what to do.
    pub message: String,
    /// Whether the configuration works in spite of it.
    pub is_warning: bool,
    /// Text of the line.
    source: Option<String>,
}

/// The result of a check.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Checked files in the order of reading. Those that the binary contains begin with `shipped:`.
    pub files: Vec<String>,
    /// Number of agents in agents.yaml.
    pub agents: usize,
    /// Mistakes, sorted by file and line.
    pub mistakes: Vec<ConfigMistake>,
}

impl CheckReport {
    /// Whether the configuration works: all mistakes are warnings.
    pub fn is_usable(&self) -> bool {
        self.mistakes.iter().all(|mistake| mistake.is_warning)
    }
}

impl ConfigMistake {
    /// Creates a mistake without a position.
    pub(super) fn new(origin: &str, message: impl Into<String>) -> Self {
        Self { origin: origin.to_owned(), line: 0, column: 0, message: message.into(), is_warning: false, source: None }
    }

    /// Creates a mistake at a position of a file.
    pub(super) fn at(file: &TextFile, position: TextPosition, message: impl Into<String>) -> Self {
        let source = position.line.checked_sub(1).and_then(|index| file.text.lines().nth(index)).map(str::to_owned);
        Self { line: position.line, column: position.column, source, ..Self::new(&file.origin, message) }
    }

    /// Converts an error of the parser of a file.
    pub(super) fn from_error(file: &TextFile, error: &ConfigError) -> Self {
        let ConfigError::Bad { origin, line, column, message } = error else {
            return Self::new(&file.origin, error.to_string());
        };
        let coordinate = |number: u64| usize::try_from(number).unwrap_or_default();
        let position = TextPosition { line: coordinate(*line), column: coordinate(*column) };
        if *origin == file.origin {
            return Self::at(file, position, message.clone());
        }
        Self { line: position.line, column: position.column, ..Self::new(origin, message.clone()) }
    }

    pub(super) fn into_warning(self) -> Self {
        Self { is_warning: true, ..self }
    }
}

impl fmt::Display for ConfigMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_warning { "warning" } else { "error" };
        write!(f, "{kind}: {}", self.origin)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(source) = &self.source {
            let number = self.line.to_string();
            let pad = " ".repeat(number.len());
            let before: String =
                source.chars().take(self.column.saturating_sub(1)).map(|c| if c == '\t' { c } else { ' ' }).collect();
            write!(f, "\n  {number} | {source}\n  {pad} | {before}^")?;
        }
        Ok(())
    }
}
