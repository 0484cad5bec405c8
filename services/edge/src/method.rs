//! The methods of the client API by name, and what a caller needs for each.

use crate::access::Scope;

/// Scope of the data that a method shows or changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// It belongs to one session, or is filtered by agent.
    Agents,
    /// It belongs to the whole tenant, or to the fleet.
    Tenant,
}

macro_rules! methods {
    ($($variant:ident = $name:literal, $($scope:ident)|+, $reach:ident;)*) => {
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

            /// Returns the scopes of which a caller needs one. The first one is that of most callers.
            pub(crate) const fn scopes(self) -> &'static [Scope] {
                match self {
                    $(Self::$variant => &[$(Scope::$scope),+],)*
                }
            }

            const fn reach(self) -> Reach {
                match self {
                    $(Self::$variant => Reach::$reach,)*
                }
            }
        }
    };
}

methods! {
    StartSession = "session.start", Run | Converse, Agents;
    SendMessage = "session.send", Run | Converse, Agents;
    PauseSession = "session.pause", Run, Agents;
    ResumeSession = "session.resume", Run, Agents;
    StopSession = "session.stop", Run, Agents;
    CancelTurn = "session.cancel_turn", Run | Converse, Agents;
    AnswerGate = "session.answer", Approve, Agents;
    AnswerToolCall = "session.answer_call", Run | Converse, Agents;
    ClearSession = "session.clear", Run, Agents;
    ConfigureSession = "session.configure", Run, Agents;
    GetHistory = "session.history", Observe, Agents;
    GetTranscript = "session.transcript", Observe | Converse, Agents;
    GetSession = "session.get", Observe | Converse, Agents;
    ListSessions = "session.list", Observe, Agents;
    ReplaySession = "session.replay", Observe, Agents;
    TraceSession = "session.trace", Observe, Agents;
    DescribeSession = "session.describe", Observe, Agents;
    GetStats = "session.stats", Observe, Agents;
    RepairSession = "session.repair", Administer, Agents;
    WatchSession = "session.watch", Observe | Converse, Agents;
    UnwatchSession = "session.unwatch", Observe | Converse, Agents;
    GetCaller = "caller.get", Observe | Converse, Agents;
    ListAgents = "agents.list", Observe | Converse, Agents;
    DescribeAgent = "agents.describe", Observe, Agents;
    TestReply = "agents.test_reply", Observe, Agents;
    ListModels = "models.list", Observe, Agents;
    ListTools = "tools.list", Observe, Agents;
    ListToolReplicas = "tools.replicas", Administer, Tenant;
    TryTool = "tools.try", Administer, Tenant;
    GetFullResult = "tools.result", Observe, Agents;
    ListGates = "gates.list", Observe, Agents;
    ListClientCalls = "calls.list", Observe, Agents;
    ListMail = "mail.list", Observe, Tenant;
    SendMail = "mail.send", Run, Tenant;
    ReplyMail = "mail.reply", Run, Tenant;
    ListBudgets = "budgets.list", Observe, Tenant;
    ResetBudget = "budgets.reset", Operate, Tenant;
    GetQueues = "fleet.queues", Operate, Tenant;
    GetStatus = "fleet.status", Operate, Tenant;
    ListDeadLetters = "dead.list", Administer, Tenant;
    GetDeadLetter = "dead.show", Administer, Tenant;
    RetryDeadLetter = "dead.retry", Administer, Tenant;
    DropDeadLetter = "dead.drop", Administer, Tenant;
}

impl Method {
    /// Returns the first of the scopes.
    pub(crate) const fn scope(self) -> Scope {
        self.scopes()[0]
    }

    /// Lists the scopes for people.
    pub(crate) fn list_scopes(self) -> String {
        self.scopes().iter().map(|scope| format!("`{scope}`")).collect::<Vec<_>>().join(" or ")
    }

    /// Whether a caller that is limited to some agents may use it.
    pub(crate) fn is_of_agents(self) -> bool {
        self.reach() == Reach::Agents
    }

    /// Whether it sends a command to a session, or starts one.
    pub(crate) const fn is_command(self) -> bool {
        matches!(
            self,
            Self::StartSession
                | Self::SendMessage
                | Self::PauseSession
                | Self::ResumeSession
                | Self::StopSession
                | Self::CancelTurn
                | Self::AnswerGate
                | Self::AnswerToolCall
                | Self::ClearSession
                | Self::ConfigureSession
        )
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
