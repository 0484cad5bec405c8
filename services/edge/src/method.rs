//! The methods of the client API by name, and what a caller needs for each.

use crate::access::Scope;

macro_rules! methods {
    ($($variant:ident = $name:literal,)*) => {
        /// A method of the client API, by JSON-RPC or by gRPC.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Method {
            $($variant,)*
        }

        impl Method {
            /// All methods, in the order in which the error for an unknown one lists them.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name in JSON-RPC, spans and metrics.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

methods! {
    StartSession = "session.start",
    SendMessage = "session.send",
    PauseSession = "session.pause",
    ResumeSession = "session.resume",
    StopSession = "session.stop",
    AnswerGate = "session.answer",
    AnswerToolCall = "session.answer_call",
    ClearSession = "session.clear",
    ConfigureSession = "session.configure",
    GetHistory = "session.history",
    GetTranscript = "session.transcript",
    GetSession = "session.get",
    ListSessions = "session.list",
    ReplaySession = "session.replay",
    TraceSession = "session.trace",
    DescribeSession = "session.describe",
    GetStats = "session.stats",
    RepairSession = "session.repair",
    WatchSession = "session.watch",
    UnwatchSession = "session.unwatch",
    ListAgents = "agents.list",
    ListModels = "models.list",
    ListTools = "tools.list",
    GetFullResult = "tools.result",
    ListGates = "gates.list",
    ListClientCalls = "calls.list",
    ListMail = "mail.list",
    SendMail = "mail.send",
    ReplyMail = "mail.reply",
    ListBudgets = "budgets.list",
    ResetBudget = "budgets.reset",
    GetQueues = "fleet.queues",
    GetStatus = "fleet.status",
    ListDeadLetters = "dead.list",
    GetDeadLetter = "dead.show",
    RetryDeadLetter = "dead.retry",
    DropDeadLetter = "dead.drop",
}

impl Method {
    /// Returns the scope that a caller needs.
    pub(crate) const fn scope(self) -> Scope {
        match self {
            Self::StartSession
            | Self::SendMessage
            | Self::PauseSession
            | Self::ResumeSession
            | Self::StopSession
            | Self::ClearSession
            | Self::ConfigureSession
            | Self::AnswerToolCall
            | Self::SendMail
            | Self::ReplyMail => Scope::Run,
            Self::AnswerGate => Scope::Approve,
            Self::GetHistory
            | Self::GetTranscript
            | Self::GetSession
            | Self::ListSessions
            | Self::ReplaySession
            | Self::TraceSession
            | Self::DescribeSession
            | Self::GetStats
            | Self::WatchSession
            | Self::UnwatchSession
            | Self::ListAgents
            | Self::ListModels
            | Self::ListTools
            | Self::GetFullResult
            | Self::ListGates
            | Self::ListClientCalls
            | Self::ListMail
            | Self::ListBudgets => Scope::Observe,
            Self::RepairSession
            | Self::ResetBudget
            | Self::GetQueues
            | Self::GetStatus
            | Self::ListDeadLetters
            | Self::GetDeadLetter
            | Self::RetryDeadLetter
            | Self::DropDeadLetter => Scope::Administer,
        }
    }

    /// Whether a caller that is limited to some agents may use it: what it shows or changes belongs to one session, or
    /// is filtered by agent.
    pub(crate) const fn is_of_agents(self) -> bool {
        match self {
            Self::StartSession
            | Self::SendMessage
            | Self::PauseSession
            | Self::ResumeSession
            | Self::StopSession
            | Self::ClearSession
            | Self::ConfigureSession
            | Self::AnswerGate
            | Self::GetHistory
            | Self::GetTranscript
            | Self::GetSession
            | Self::ListSessions
            | Self::ReplaySession
            | Self::TraceSession
            | Self::DescribeSession
            | Self::GetStats
            | Self::WatchSession
            | Self::UnwatchSession
            | Self::ListAgents
            | Self::ListModels
            | Self::ListTools
            | Self::GetFullResult
            | Self::ListGates
            | Self::AnswerToolCall
            | Self::ListClientCalls
            | Self::RepairSession => true,
            Self::SendMail
            | Self::ReplyMail
            | Self::ListMail
            | Self::ListBudgets
            | Self::ResetBudget
            | Self::GetQueues
            | Self::GetStatus
            | Self::ListDeadLetters
            | Self::GetDeadLetter
            | Self::RetryDeadLetter
            | Self::DropDeadLetter => false,
        }
    }

    /// Finds a method by its name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.name() == name)
    }

    /// Lists the names of all methods as one text.
    pub(crate) fn list_names() -> String {
        Self::ALL.iter().map(|method| method.name()).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_found_by_its_name_is_the_same() {
        for method in Method::ALL {
            assert_eq!(Method::from_name(method.name()), Some(*method));
        }
        assert_eq!(Method::from_name("session.dance"), None);
    }
}
