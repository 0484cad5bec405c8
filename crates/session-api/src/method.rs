//! The table of methods. Everything about a method that is not code stands in its row.

use std::borrow::Cow;

use contract::client_tool::AnswerToolCall;
use contract::command::{Answer, Configure, ControlReason, SendUserMessage, Start};
use contract::commit::SessionSummary;
use contract::mail::{RepliedMail, SentMail};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::params::{
    CommandFields, DeadLetterParams, DescribeAgentParams, ListDeadLettersParams, ListMailParams, ListPendingParams,
    ListSessionsParams, NewSessionAddress, NoParams, ReplayParams, ReplyMailParams, ResetBudgetParams, SendMailParams,
    SessionParams, StatsParams, TestReplyParams, ToolResultParams, TranscriptParams, TryToolParams, WatchParams,
};
use crate::results::{
    AgentDescription, AgentList, BudgetList, CallList, Caller, CommandReply, DeadLetterInfo, DeadLetterList,
    DeadLetterRetry, FleetStatus, FleetToolList, FullResult, GateList, History, MailboxPage, ModelList, QueueList,
    RepairReport, ReplayReport, ReplyDecision, SessionDescription, SessionPage, SessionTrace, StatsList,
    ToolReplicaList, TranscriptPage, TriedTool,
};
use crate::schema::{join_all_objects, params_schema};
use crate::scope::Scope;
use crate::verb::{HttpVerb, RouteRow};

/// Reach of a method: the data that it shows or changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// It belongs to one session, or is filtered by agent.
    Agents,
    /// It belongs to the whole tenant, or to the fleet.
    Tenant,
}

macro_rules! methods {
    ($(
        #[doc = $about:literal]
        $variant:ident = $name:literal, $($scope:ident)|+, $reach:ident, $params:ty, $result:ty
            $(, $verb:ident $path:literal $(: $route_about:literal)?)*;
    )*) => {
        /// A method of the session API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Method {
            $(#[doc = $about] $variant,)*
        }

        impl Method {
            /// All methods, in the order in which the error for an unknown one lists them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name in JSON-RPC, spans and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns one sentence that says what it does.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => $about.trim_ascii_start(),)* }
            }

            /// Returns the scopes of which a caller needs one. The first one is that of most callers.
            pub const fn scopes(self) -> &'static [Scope] {
                match self { $(Self::$variant => &[$(Scope::$scope),+],)* }
            }

            /// Returns the name of the schema of its result.
            pub(crate) fn result_name(self) -> Cow<'static, str> {
                match self { $(Self::$variant => <$result>::schema_name(),)* }
            }

            /// Adds the schema of its result to those of a generator.
            pub(crate) fn add_result(self, generator: &mut SchemaGenerator) {
                match self { $(Self::$variant => drop(generator.subschema_for::<$result>()),)* }
            }

            const fn reach(self) -> Reach {
                match self { $(Self::$variant => Reach::$reach,)* }
            }

            pub(crate) const fn routes(self) -> &'static [RouteRow] {
                match self {
                    $(Self::$variant => &[$(
                        RouteRow { verb: HttpVerb::$verb, path: $path, about: methods!(@about $($route_about)?) },
                    )*],)*
                }
            }

            /// Returns the schema of its parameters, and adds those that it refers to to a generator.
            pub(crate) fn raw_params(self, generator: &mut SchemaGenerator) -> Schema {
                let mut schema = match self { $(Self::$variant => <$params>::json_schema(generator),)* };
                join_all_objects(&mut schema);
                schema
            }

            /// Returns the name in gRPC.
            pub const fn rpc(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }

            pub(crate) fn params_schema(self) -> Schema {
                match self { $(Self::$variant => params_schema::<$params>(),)* }
            }
        }
    };
    (@about) => { None };
    (@about $about:literal) => { Some($about) };
}

// Name, scopes of which one is needed, reach, parameters, result, and routes over HTTP.
methods! {
    /// Start a new session.
    StartSession = "session.start", Run | Converse, Agents, CommandFields<Start, NewSessionAddress>, CommandReply,
        Post "/v1/sessions";
    /// Send a message of the user.
    SendMessage = "session.send", Run | Converse, Agents, CommandFields<SendUserMessage>, CommandReply,
        Post "/v1/sessions/{session_id}/messages";
    /// Pause: open no new call.
    PauseSession = "session.pause", Run, Agents, CommandFields<ControlReason>, CommandReply,
        Post "/v1/sessions/{session_id}/pause";
    /// Resume a paused session.
    ResumeSession = "session.resume", Run, Agents, CommandFields<ControlReason>, CommandReply,
        Post "/v1/sessions/{session_id}/resume";
    /// Cancel open calls, and end.
    StopSession = "session.stop", Run, Agents, CommandFields<ControlReason>, CommandReply,
        Post "/v1/sessions/{session_id}/stop";
    /// Cancel the running turn. The session stays open; one that takes no more messages ends.
    CancelTurn = "session.cancel_turn", Run | Converse, Agents, CommandFields<ControlReason>, CommandReply,
        Post "/v1/sessions/{session_id}/cancel";
    /// Answer a gate: approve or deny a call, or answer a question.
    AnswerGate = "session.answer", Approve, Agents, CommandFields<Answer>, CommandReply,
        Post "/v1/sessions/{session_id}/gates/{gate}";
    /// Answer a call of a tool that the client brought.
    AnswerToolCall = "session.answer_call", Run | Converse, Agents, CommandFields<AnswerToolCall>, CommandReply,
        Post "/v1/sessions/{session_id}/calls/{call}";
    /// Clear the transcript of a session.
    ClearSession = "session.clear", Run, Agents, CommandFields<ControlReason>, CommandReply,
        Post "/v1/sessions/{session_id}/clear";
    /// Change the settings of a session.
    ConfigureSession = "session.configure", Run, Agents, CommandFields<Configure>, CommandReply,
        Post "/v1/sessions/{session_id}/configure";
    /// Get the messages, as a model reads them.
    GetHistory = "session.history", Observe, Agents, SessionParams, History,
        Get "/v1/sessions/{session_id}/history";
    /// Get the transcript by turns, as people read it.
    GetTranscript = "session.transcript", Observe | Converse, Agents, TranscriptParams, TranscriptPage,
        Get "/v1/sessions/{session_id}/transcript";
    /// Get the summary of a session.
    GetSession = "session.get", Observe | Converse, Agents, SessionParams, SessionSummary,
        Get "/v1/sessions/{session_id}";
    /// List sessions, newest first.
    ListSessions = "session.list", Observe, Agents, ListSessionsParams, SessionPage,
        Get "/v1/sessions";
    /// Fold the log again, and compare.
    ReplaySession = "session.replay", Observe, Agents, ReplayParams, ReplayReport,
        Get "/v1/sessions/{session_id}/replay";
    /// Get the spans of a session.
    TraceSession = "session.trace", Observe, Agents, SessionParams, SessionTrace,
        Get "/v1/sessions/{session_id}/trace";
    /// Get what a session waits for, and what to do about it.
    DescribeSession = "session.describe", Observe, Agents, SessionParams, SessionDescription,
        Get "/v1/sessions/{session_id}/describe";
    /// Get statistics of sessions by agent and model, and by time.
    GetStats = "session.stats", Observe, Agents, StatsParams, StatsList,
        Get "/v1/stats";
    /// Perform the effects of a session again, after a stream lost messages.
    RepairSession = "session.repair", Administer, Agents, SessionParams, RepairReport,
        Post "/v1/sessions/{session_id}/repair";
    /// Follow a session as server-sent events.
    WatchSession = "session.watch", Observe | Converse, Agents, WatchParams, (),
        Get "/v1/sessions/{session_id}/events";
    /// Stop following a session.
    UnwatchSession = "session.unwatch", Observe | Converse, Agents, SessionParams, ();
    /// Get whose credential this is, and what it grants.
    GetCaller = "caller.get", Observe | Converse, Agents, NoParams, Caller,
        Get "/v1/caller";
    /// List the agents, by key.
    ListAgents = "agents.list", Observe | Converse, Agents, NoParams, AgentList,
        Get "/v1/agents";
    /// Get an agent with its composed prompt.
    DescribeAgent = "agents.describe", Observe, Agents, DescribeAgentParams, AgentDescription,
        Get "/v1/agents/{agent}";
    /// Decide about a reply as the loop would.
    TestReply = "agents.test_reply", Observe, Agents, TestReplyParams, ReplyDecision,
        Post "/v1/agents/{agent}/test";
    /// List the models, by id.
    ListModels = "models.list", Observe, Agents, NoParams, ModelList,
        Get "/v1/models";
    /// List the tools, by name.
    ListTools = "tools.list", Observe, Agents, NoParams, FleetToolList,
        Get "/v1/tools";
    /// List the processes that serve the tools, and how their calls went.
    ListToolReplicas = "tools.replicas", Administer, Tenant, NoParams, ToolReplicaList,
        Get "/v1/tools/replicas";
    /// Call a tool once, outside of a session.
    TryTool = "tools.try", Administer, Tenant, TryToolParams, TriedTool,
        Post "/v1/tools/try";
    /// Get a whole tool result, of which the model read only parts.
    GetFullResult = "tools.result", Observe, Agents, ToolResultParams, FullResult,
        Get "/v1/sessions/{session_id}/calls/{call}/result";
    /// List the open gates of a session.
    ListGates = "gates.list", Observe, Agents, ListPendingParams, GateList,
        Get "/v1/sessions/{session_id}/gates",
        Get "/v1/gates": "List the open gates of all sessions, the most urgent first.";
    /// List the calls of a session that wait for the client.
    ListClientCalls = "calls.list", Observe, Agents, ListPendingParams, CallList,
        Get "/v1/sessions/{session_id}/calls",
        Get "/v1/calls": "List the calls of all sessions that wait for clients.";
    /// List the mail of a mailbox.
    ListMail = "mail.list", Observe, Tenant, ListMailParams, MailboxPage,
        Get "/v1/mail";
    /// Send mail to an agent or to people.
    SendMail = "mail.send", Run, Tenant, SendMailParams, SentMail,
        Post "/v1/mail";
    /// Reply to mail, or close it with an empty text.
    ReplyMail = "mail.reply", Run, Tenant, ReplyMailParams, RepliedMail,
        Post "/v1/mail/{id}/reply";
    /// List the budgets of the tenant.
    ListBudgets = "budgets.list", Observe, Tenant, NoParams, BudgetList,
        Get "/v1/budgets";
    /// Forget what was spent of a budget.
    ResetBudget = "budgets.reset", Operate, Tenant, ResetBudgetParams, BudgetList,
        Post "/v1/budgets/reset";
    /// Get the depth of each queue.
    GetQueues = "fleet.queues", Operate, Tenant, NoParams, QueueList,
        Get "/v1/queues";
    /// Get the processes of the fleet, its queues and its storage.
    GetStatus = "fleet.status", Operate, Tenant, NoParams, FleetStatus,
        Get "/v1/status";
    /// List the dead letters of the tenant.
    ListDeadLetters = "dead.list", Administer, Tenant, ListDeadLettersParams, DeadLetterList,
        Get "/v1/dead-letters";
    /// Get a dead letter with its body.
    GetDeadLetter = "dead.show", Administer, Tenant, DeadLetterParams, DeadLetterInfo,
        Get "/v1/sessions/{session_id}/dead-letters/{kind}/{id}";
    /// Send the command of a dead letter again.
    RetryDeadLetter = "dead.retry", Administer, Tenant, DeadLetterParams, DeadLetterRetry,
        Post "/v1/sessions/{session_id}/dead-letters/{kind}/{id}/retry";
    /// Remove a dead letter.
    DropDeadLetter = "dead.drop", Administer, Tenant, DeadLetterParams, DeadLetterInfo,
        Delete "/v1/sessions/{session_id}/dead-letters/{kind}/{id}";
}

impl Method {
    /// Returns the first of the scopes.
    pub const fn scope(self) -> Scope {
        self.scopes()[0]
    }

    /// Lists the scopes for people.
    pub fn list_scopes(self) -> String {
        self.scopes().iter().map(|scope| format!("`{scope}`")).collect::<Vec<_>>().join(" or ")
    }

    /// Whether a caller that is limited to some agents may use it.
    pub fn is_of_agents(self) -> bool {
        self.reach() == Reach::Agents
    }

    /// Whether it sends a command to a session, or starts one.
    pub fn is_command(self) -> bool {
        self.result_name() == CommandReply::schema_name()
    }

    /// Returns the name of the schema of its result; `None` for a method that streams, or returns nothing of interest.
    pub fn result(self) -> Option<Cow<'static, str>> {
        Some(self.result_name()).filter(|name| *name != <()>::schema_name())
    }

    /// Whether its answer is a stream of events.
    pub fn is_stream(self) -> bool {
        self == Self::WatchSession
    }

    /// Whether it is a method in gRPC. A stream ends there with its call.
    pub fn has_rpc(self) -> bool {
        self != Self::UnwatchSession
    }

    /// Finds a method by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.name() == name)
    }

    /// Lists the names of all methods as one text.
    pub fn list_names() -> String {
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
