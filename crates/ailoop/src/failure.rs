//! What is said when a command fails: a stable code, what, where and what to do.

use std::fmt;

use contract::ErrorCode;

/// How the command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// The session ended with an error, or the fleet refused.
    Failed,
    /// The command line cannot be used.
    Usage,
    /// The fleet or NATS cannot be reached.
    Unreachable,
    /// A person must answer, and there is no terminal to ask at.
    ApprovalNeeded,
    /// Iterations, the turn's time, or `--timeout`.
    Limit,
    /// Ctrl-C.
    Interrupted,
}

impl Exit {
    /// The process's exit code.
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

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    code: ErrorCode,
    message: String,
    place: Option<String>,
    help: Option<String>,
    exit: Exit,
}

impl Failure {
    /// A failure with its usual exit code and help.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let unreachable = matches!(code, ErrorCode::Unavailable | ErrorCode::NatsUnreachable | ErrorCode::Draining);
        let exit = if code == ErrorCode::ApprovalNeeded {
            Exit::ApprovalNeeded
        } else if unreachable {
            Exit::Unreachable
        } else {
            Exit::Failed
        };
        let help = help(&code).map(str::to_owned);
        Self { code, message: message.into(), place: None, help, exit }
    }

    /// A command line that cannot be used, found out before anything was started.
    pub fn usage(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(code, message) }
    }

    /// Says where it happened.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Self { place: Some(place.to_string()), ..self }
    }

    /// Says what to do, instead of what is usually said.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// The stable code.
    pub fn code(&self) -> &ErrorCode {
        &self.code
    }

    /// What failed, for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How the command ends.
    pub fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for Failure {
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

impl std::error::Error for Failure {}

impl From<bus::BusError> for Failure {
    fn from(error: bus::BusError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// What is usually to be done.
pub fn help(code: &ErrorCode) -> Option<&'static str> {
    HELP.iter().find(|(known, _)| known == code).map(|(_, text)| *text)
}

const HELP: &[(ErrorCode, &str)] = &[
    (ErrorCode::EmptyMessage, "say what is to be done, such as: ailoop run \"What is in this directory?\""),
    (ErrorCode::TooLarge, "a message holds at most 1 MiB; put the text into a file below --root and name it"),
    (ErrorCode::UnknownAgent, "the agents are those of config/agents.yaml"),
    (ErrorCode::UnknownModel, "the models are those of config/models.yaml, and <provider>/<model> for its providers"),
    (ErrorCode::UnknownFeature, "the features are the files of prompts/shared, without `_protocol.md`"),
    (ErrorCode::UnknownSession, "`ailoop sessions` lists those that there are"),
    (ErrorCode::SessionEnded, "begin another one with `ailoop run`"),
    (ErrorCode::Unauthorized, "pass the edge's token with --token or AILOOP_TOKEN"),
    (ErrorCode::Overloaded, "the fleet has enough to do; try again later"),
    (ErrorCode::Unavailable, "see that the fleet runs (`ailoop up`), or pass --url"),
    (
        ErrorCode::NatsUnreachable,
        "see that the nats-server runs, and that nats.url (AILOOP__NATS__URL) or --nats names it",
    ),
    (ErrorCode::NatsTooOld, "run `make setup`, or put nats-server 2.12 or newer on PATH or into AILOOP_NATS_SERVER"),
    (ErrorCode::NatsMissing, "run `make setup`, or put nats-server 2.12 or newer on PATH or into AILOOP_NATS_SERVER"),
    (ErrorCode::NatsNoJetStream, "start the nats-server with -js"),
    (ErrorCode::StreamDrift, "`ailoop bootstrap --fix` changes the setting"),
    (ErrorCode::PortInUse, "end what listens there, or choose another port (0: any free one)"),
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
    fn says_what_where_and_what_to_do() {
        let failure = Failure::new(ErrorCode::NatsNoJetStream, "no JetStream").at("nats://127.0.0.1:4222");
        assert_eq!(
            failure.to_string(),
            "error[nats_no_jetstream]: no JetStream\n  where: nats://127.0.0.1:4222\n  help: start the nats-server with -js"
        );
        assert_eq!(failure.exit().code(), 1);
    }

    #[test]
    fn exits_by_kind() {
        assert_eq!(Failure::new(ErrorCode::Unavailable, "x").exit().code(), 3);
        assert_eq!(Failure::new(ErrorCode::Internal, "x").exit().code(), 1);
        assert_eq!(Failure::usage(ErrorCode::EmptyMessage, "x").exit().code(), 2);
    }
}
