//! Stable error codes: the same word in JSON-RPC, gRPC, events, logs and at the command line.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// An error with a stable code, which tells users and clients apart what they can do.
pub trait Coded: std::error::Error {
    /// Returns the code that users see.
    fn code(&self) -> ErrorCode;

    /// Returns advice for people, where the usual one for the code does not fit.
    fn advice(&self) -> Option<String> {
        None
    }
}

/// Class of an error: what a protocol that has few codes of its own says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The request is wrong in itself.
    Invalid,
    /// The request lacks what the state of the session asks for.
    Precondition,
    /// The request, or a part of it, is over a limit.
    TooLarge,
    /// The caller is unknown.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// There is no such method.
    UnknownMethod,
    /// There is such a thing already.
    Exists,
    /// The state of the session does not permit it.
    Conflict,
    /// It was there, and is there no more.
    Gone,
    /// Committed data is lost.
    Lost,
    /// A limit of requests or of costs is reached.
    Exhausted,
    /// A part of the fleet does not answer now.
    Unavailable,
    /// A provider of models failed.
    Upstream,
    /// A fault of the fleet, or an error that no request of a client has.
    Internal,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $class:ident;)*) => {
        /// A stable error code. Unknown codes of newer writers are kept as they are.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
            /// A code that this version does not know.
            Other(String),
        }

        impl ErrorCode {
            /// Every code that this version knows.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as text.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Other(text) => text,
                }
            }

            /// The class of the error. A code of a newer writer counts as a fault of the fleet.
            pub const fn class(&self) -> ErrorClass {
                match self {
                    $(Self::$name => ErrorClass::$class,)*
                    Self::Other(_) => ErrorClass::Internal,
                }
            }
        }

        impl From<String> for ErrorCode {
            fn from(text: String) -> Self {
                match text.as_str() {
                    $($text => Self::$name,)*
                    _ => Self::Other(text),
                }
            }
        }
    };
}

codes! {
    /// The request is not what the contract says.
    BadRequest = "bad_request", Invalid;
    /// A message or prompt over its limit.
    TooLarge = "too_large", TooLarge;
    /// A prompt or message without text.
    EmptyMessage = "empty_message", Invalid;
    /// No agent of that name or alias.
    UnknownAgent = "unknown_agent", NotFound;
    /// No model of that name, and no provider that takes any name.
    UnknownModel = "unknown_model", NotFound;
    /// No prompt feature of that name.
    UnknownFeature = "unknown_feature", NotFound;
    /// There is no budget of this name.
    UnknownBudget = "unknown_budget", NotFound;
    /// There is no dead letter of this name.
    UnknownDeadLetter = "unknown_dead_letter", NotFound;
    /// There is no session of this id.
    UnknownSession = "unknown_session", NotFound;
    /// The session has ended.
    SessionEnded = "session_ended", Conflict;
    /// The session id is in use.
    SessionExists = "session_exists", Exists;
    /// The session was moved to another cell, or is being moved.
    SessionMoved = "session_moved", Unavailable;
    /// A command repeated after its id was forgotten.
    StaleCommand = "stale_command", Conflict;
    /// The command does not fit the session's state.
    NotNow = "not_now", Conflict;
    /// The gate was answered before, or is not there.
    GateClosed = "gate_closed", Conflict;
    /// A person must answer, and the command has nobody to ask.
    ApprovalNeeded = "approval_needed", Conflict;
    /// The session waits for the approval of a person, which the request does not bring.
    ApprovalRequired = "approval_required", Precondition;
    /// No such method or verb.
    UnknownMethod = "unknown_method", UnknownMethod;
    /// No credential, a wrong one, or one that is no longer valid.
    Unauthorized = "unauthorized", Unauthenticated;
    /// The credential does not grant this.
    Forbidden = "forbidden", Forbidden;
    /// A limit of the fleet is reached; try again later.
    Overloaded = "overloaded", Exhausted;
    /// Too many commands wait for this session.
    TooManyWaiting = "too_many_waiting", Exhausted;
    /// A part of the fleet does not answer.
    Unavailable = "unavailable", Unavailable;
    /// NATS cannot be reached.
    NatsUnreachable = "nats_unreachable", Unavailable;
    /// The nats-server is too old.
    NatsTooOld = "nats_too_old", Internal;
    /// There is no nats-server to start.
    NatsMissing = "nats_missing", Internal;
    /// The nats-server has no JetStream.
    NatsNoJetStream = "nats_no_jetstream", Internal;
    /// A stream's settings differ from what ailoop needs.
    StreamDrift = "stream_drift", Internal;
    /// A port is taken.
    PortInUse = "port_in_use", Internal;
    /// Configuration cannot be used.
    BadConfig = "bad_config", Internal;
    /// The model's server cannot be reached.
    ModelUnreachable = "model_unreachable", Unavailable;
    /// The provider asks to slow down.
    ModelRateLimited = "model_rate_limited", Exhausted;
    /// The provider's quota is used up.
    ModelQuota = "model_quota", Exhausted;
    /// The provider is overloaded.
    ModelOverloaded = "model_overloaded", Unavailable;
    /// The transcript does not fit the model.
    ModelContextLength = "model_context_length", Invalid;
    /// The provider refuses the content.
    ModelRefused = "model_refused", Upstream;
    /// The provider refuses the request.
    ModelBadRequest = "model_bad_request", Invalid;
    /// The provider refuses the key.
    ModelAuth = "model_auth", Upstream;
    /// The reply broke off.
    ModelTruncated = "model_truncated", Upstream;
    /// The model fell silent.
    ModelHung = "model_hung", Upstream;
    /// The reply is not what the provider's protocol says.
    ModelGarbage = "model_garbage", Upstream;
    /// Several replies without content.
    ModelEmptyReply = "model_empty_reply", Upstream;
    /// Nobody serves the tool.
    NoToolAvailable = "no_tool_available", Internal;
    /// The tool is not among the session's tools.
    UnknownTool = "unknown_tool", NotFound;
    /// An agent may not ask this agent: it would ask itself in the end, or too many stand above it.
    DelegationRefused = "delegation_refused", Internal;
    /// No such call, or no stored result of it.
    UnknownCall = "unknown_call", NotFound;
    /// No such mail in the mailbox.
    UnknownMail = "unknown_mail", NotFound;
    /// The arguments are not JSON, or not what the schema says.
    InvalidArguments = "invalid_arguments", Invalid;
    /// The tool answered with an error.
    ToolError = "tool_error", Internal;
    /// The answer of a tool is over its limit.
    OutputTooLarge = "output_too_large", Internal;
    /// An input that makes the loop panic.
    Poison = "poison", Internal;
    /// An item or input that failed too often.
    TooManyDeliveries = "too_many_deliveries", Internal;
    /// A cursor that is gone.
    Resync = "resync", Gone;
    /// The server was put back to an older state: a part of the session's history is gone.
    HistoryLost = "history_lost", Lost;
    /// A client that does not read.
    SlowClient = "slow_client", Exhausted;
    /// The replica is going down.
    Draining = "draining", Unavailable;
    /// A fault of ailoop itself.
    Internal = "internal", Internal;
}

impl JsonSchema for ErrorCode {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ErrorCode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

impl From<ErrorCode> for String {
    fn from(code: ErrorCode) -> Self {
        code.as_str().to_owned()
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
