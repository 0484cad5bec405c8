//! Sessions as files: one header line about the session, then one line for each commit.

mod export;
mod file_format;
mod import;

pub use self::export::export;
pub use self::import::import;
