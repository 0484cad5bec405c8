//! The failure of a command: a stable code, a message, the place and help.

use std::fmt;

use contract::{Coded, ErrorCode};

/// The result of a command, as an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command did what it was asked to do.
    Done,
    /// The session ended with an error, or the fleet refused.
    Failed,
    /// The command line cannot be used.
    Usage,
    /// The fleet or NATS cannot be reached.
    Unreachable,
    /// A person must answer, and there is no terminal to ask at.
    ApprovalNeeded,
    /// A limit was reached: iterations, the turn's time, or `--timeout`.
    Limit,
    /// A signal ended the command.
    Interrupted,
}

impl Exit {
    /// Returns the exit code of the process.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::ApprovalNeeded => 4,
            Self::Limit => 124,
            Self::Interrupted => 130,
        }
    }
}

/// The failure of a command, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandFailure {
    code: ErrorCode,
    message: String,
    place: Option<String>,
    help: Option<String>,
    exit: Exit,
}

impl CommandFailure {
    /// Makes a failure with the usual exit and help of its code.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let is_unreachable = matches!(code, ErrorCode::Unavailable | ErrorCode::NatsUnreachable | ErrorCode::Draining);
        let exit = if code == ErrorCode::ApprovalNeeded {
            Exit::ApprovalNeeded
        } else if is_unreachable {
            Exit::Unreachable
        } else {
            Exit::Failed
        };
        let help = default_help(&code).map(str::to_owned);
        Self { code, message: message.into(), place: None, help, exit }
    }

    /// Makes a failure for a command line that cannot be used; nothing was started yet.
    pub fn usage(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(code, message) }
    }

    /// Sets the place of the failure.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Self { place: Some(place.to_string()), ..self }
    }

    /// Adds the cell in which it failed.
    #[must_use]
    pub fn in_cell(self, cell: &contract::CellName) -> Self {
        let place = self.place.map_or_else(|| format!("cell {cell}"), |place| format!("cell {cell}, {place}"));
        Self { place: Some(place), ..self }
    }

    /// Replaces the usual help.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Returns the stable error code.
    pub fn code(&self) -> &ErrorCode {
        &self.code
    }

    /// Returns the description of the failure, for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns advice for people, if there is any.
    pub fn advice(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Returns the exit of the command.
    pub fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        if let Some(place) = &self.place {
            write!(f, "\n  where: {place}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CommandFailure {}

impl<E: Coded> From<E> for CommandFailure {
    fn from(error: E) -> Self {
        let failure = Self::new(error.code(), error.to_string());
        match error.advice() {
            Some(advice) => failure.help(advice),
            None => failure,
        }
    }
}

/// Returns the usual help for an error code.
fn default_help(code: &ErrorCode) -> Option<&'static str> {
    HELP.iter().find(|(known, _)| known == code).map(|(_, text)| *text)
}

const NATS_SERVER_HELP: &str =
    "put nats-server 2.15 or newer on PATH, or set AILOOP_NATS_SERVER to its path; `make setup` brings it to .tools/";
const HELP: &[(ErrorCode, &str)] = &[
    (ErrorCode::EmptyMessage, "pass a text, such as: ailoop run \"What is in this directory?\""),
    (ErrorCode::TooLarge, "a message holds at most 1 MiB; put the text into a file below --root and name it"),
    (ErrorCode::UnknownAgent, "the agents are those of config/agents.yaml"),
    (ErrorCode::UnknownModel, "the models are those of config/models.yaml, and <provider>/<model> for its providers"),
    (ErrorCode::UnknownFeature, "the features are the files of prompts/shared, without `_protocol.md`"),
    (ErrorCode::UnknownSession, "`ailoop sessions` lists the sessions"),
    (ErrorCode::SessionEnded, "start another session with `ailoop run`"),
    (
        ErrorCode::Unauthorized,
        "pass an API key or the edge's token with --token or AILOOP_TOKEN; `ailoop up` prints its own as AILOOP_API_KEY",
    ),
    (ErrorCode::Forbidden, "use a key with the scope that the message names; `ailoop api-key new` makes one"),
    (ErrorCode::Overloaded, "the fleet is at its limit of waiting calls; try again later"),
    (ErrorCode::Unavailable, "see that the fleet runs (`ailoop up`), or pass --url"),
    (
        ErrorCode::NatsUnreachable,
        "start the nats-server, and check that nats.url (AILOOP__NATS__URL) or --nats names it",
    ),
    (ErrorCode::NatsTooOld, NATS_SERVER_HELP),
    (ErrorCode::NatsMissing, NATS_SERVER_HELP),
    (ErrorCode::NatsNoJetStream, "start the nats-server with -js"),
    (ErrorCode::StreamDrift, "`ailoop bootstrap --fix` changes the setting"),
    (ErrorCode::PortInUse, "end the process that listens on the port, or choose another port (0: any free one)"),
    (ErrorCode::ModelAuth, "see that the provider's key in the environment is right"),
    (
        ErrorCode::ModelUnreachable,
        "see that the model's server runs and that its base_url in config/models.yaml is right",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_shows_message_place_and_help() {
        let failure = CommandFailure::new(ErrorCode::NatsNoJetStream, "no JetStream").at("nats://127.0.0.1:4222");
        assert_eq!(
            failure.to_string(),
            "error[nats_no_jetstream]: no JetStream\n  where: nats://127.0.0.1:4222\n  help: start the nats-server with -js"
        );
        assert_eq!(failure.exit().code(), 1);
    }

    #[test]
    fn exit_depends_on_error_code() {
        assert_eq!(CommandFailure::new(ErrorCode::Unavailable, "x").exit().code(), 3);
        assert_eq!(CommandFailure::new(ErrorCode::Internal, "x").exit().code(), 1);
        assert_eq!(CommandFailure::usage(ErrorCode::EmptyMessage, "x").exit().code(), 2);
    }
}
