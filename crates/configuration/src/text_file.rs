//! A text and its origin, for messages that name a line.

/// A text file and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile {
    /// Its path, or `shipped:<name>`.
    pub origin: String,
    /// The contents of the file.
    pub text: String,
}
