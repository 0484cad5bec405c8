//! Stable error codes: the same word in JSON-RPC, gRPC, events, logs and at the command line.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
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
    BadRequest = "bad_request",
    /// A message or prompt over its limit.
    TooLarge = "too_large",
    /// A prompt or message without text.
    EmptyMessage = "empty_message",
    /// No agent of that name or alias.
    UnknownAgent = "unknown_agent",
    /// No model of that name, and no provider that takes any name.
    UnknownModel = "unknown_model",
    /// No prompt feature of that name.
    UnknownFeature = "unknown_feature",
    /// There is no budget of this name.
    UnknownBudget = "unknown_budget",
    /// There is no dead letter of this name.
    UnknownDeadLetter = "unknown_dead_letter",
    /// There is no session of this id.
    UnknownSession = "unknown_session",
    /// The session has ended.
    SessionEnded = "session_ended",
    /// The session id is in use.
    SessionExists = "session_exists",
    /// The session was moved to another cell, or is being moved.
    SessionMoved = "session_moved",
    /// A command repeated after its id was forgotten.
    StaleCommand = "stale_command",
    /// The command does not fit the session's state.
    NotNow = "not_now",
    /// The gate was answered before, or is not there.
    GateClosed = "gate_closed",
    /// A person must answer, and the command has nobody to ask.
    ApprovalNeeded = "approval_needed",
    /// The session waits for the approval of a person, which the request does not bring.
    ApprovalRequired = "approval_required",
    /// No such method or verb.
    UnknownMethod = "unknown_method",
    /// No credential, a wrong one, or one that is no longer valid.
    Unauthorized = "unauthorized",
    /// The credential does not grant this.
    Forbidden = "forbidden",
    /// A limit of the fleet is reached; try again later.
    Overloaded = "overloaded",
    /// Too many commands wait for this session.
    TooManyWaiting = "too_many_waiting",
    /// A part of the fleet does not answer.
    Unavailable = "unavailable",
    /// NATS cannot be reached.
    NatsUnreachable = "nats_unreachable",
    /// The nats-server is too old.
    NatsTooOld = "nats_too_old",
    /// There is no nats-server to start.
    NatsMissing = "nats_missing",
    /// The nats-server has no JetStream.
    NatsNoJetStream = "nats_no_jetstream",
    /// A stream's settings differ from what ailoop needs.
    StreamDrift = "stream_drift",
    /// A port is taken.
    PortInUse = "port_in_use",
    /// Configuration cannot be used.
    BadConfig = "bad_config",
    /// The model's server cannot be reached.
    ModelUnreachable = "model_unreachable",
    /// The provider asks to slow down.
    ModelRateLimited = "model_rate_limited",
    /// The provider's quota is used up.
    ModelQuota = "model_quota",
    /// The provider is overloaded.
    ModelOverloaded = "model_overloaded",
    /// The transcript does not fit the model.
    ModelContextLength = "model_context_length",
    /// The provider refuses the content.
    ModelRefused = "model_refused",
    /// The provider refuses the request.
    ModelBadRequest = "model_bad_request",
    /// The provider refuses the key.
    ModelAuth = "model_auth",
    /// The reply broke off.
    ModelTruncated = "model_truncated",
    /// The model fell silent.
    ModelHung = "model_hung",
    /// The reply is not what the provider's protocol says.
    ModelGarbage = "model_garbage",
    /// Several replies without content.
    ModelEmptyReply = "model_empty_reply",
    /// Nobody serves the tool.
    NoToolAvailable = "no_tool_available",
    /// The tool is not among the session's tools.
    UnknownTool = "unknown_tool",
    /// An agent may not ask this agent: it would ask itself in the end, or too many stand above it.
    DelegationRefused = "delegation_refused",
    /// No such call, or no stored result of it.
    UnknownCall = "unknown_call",
    /// No such mail in the mailbox.
    UnknownMail = "unknown_mail",
    /// The arguments are not JSON, or not what the schema says.
    InvalidArguments = "invalid_arguments",
    /// The tool answered with an error.
    ToolError = "tool_error",
    /// The answer of a tool is over its limit.
    OutputTooLarge = "output_too_large",
    /// An input that makes the loop panic.
    Poison = "poison",
    /// An item or input that failed too often.
    TooManyDeliveries = "too_many_deliveries",
    /// A cursor that is gone.
    Resync = "resync",
    /// The server was put back to an older state: a part of the session's history is gone.
    HistoryLost = "history_lost",
    /// A client that does not read.
    SlowClient = "slow_client",
    /// The replica is going down.
    Draining = "draining",
    /// A fault of ailoop itself.
    Internal = "internal",
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
