//! Reading the parameters of requests: each is parsed and validated once. An unknown field is an error.

mod command;
mod parse;
#[cfg(test)]
mod tests;

pub(crate) use command::CommandRequest;
pub use command::{CommandBody, UnvalidatedCommand};
pub use parse::{check_size, generate_id, parse, parse_object, parse_session_id, parse_word};

/// Maximum number of entries of one list.
pub const LIST_MAX: usize = 1_000;

/// Number of entries of one list if the client gives no limit.
pub(crate) const LIST_DEFAULT: usize = 100;

/// Returns the number of entries for a limit that a client gives.
pub(crate) fn clamp_limit(limit: usize) -> usize {
    if limit == 0 { LIST_DEFAULT } else { limit.min(LIST_MAX) }
}
