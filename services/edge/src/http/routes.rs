//! The routes of the session API. The `OpenAPI` document is made of them too.

use super::route::FieldKind::{
    Agent, Amount, ClientTools, Content, Count, Cursor, Flag, Id, Messages, Names, Object, OneOf, SessionPoint, Sha256,
    Text, Time, Words,
};
use super::route::HttpVerb::{Delete, Get, Post};
use super::route::{Field, Route, optional, required};
use crate::method::Method;

const COMMAND_ID: Field = optional(
    "command_id",
    Id,
    "Idempotency key: a repeated command with the same one changes nothing. The header `Idempotency-Key` is the same.",
);
const WAIT: Field = optional("wait", Flag, "Whether the response waits for the commit, up to 30 s; true.");
const REASON: Field = optional("reason", Text, "Why, for the log.");
const LIMIT: Field = optional("limit", Count, "Entries, at most 1 000; 100.");
const CONTROL: &[Field] = &[REASON, COMMAND_ID, WAIT];
const DEAD_LETTER: &str = "/v1/sessions/{session_id}/dead-letters/{kind}/{id}";

const STOP_REASONS: &[&str] = &[
    "completed",
    "max_iterations",
    "timeout",
    "token_limit",
    "cost_limit",
    "tool_call_limit",
    "repetition",
    "no_progress",
    "stopped",
    "error",
];

const START: &[Field] = &[
    optional("session_id", Id, "Id of the new session, up to 64 letters, digits, `-` and `_`; generated."),
    optional("agent", Agent, "Key or alias of the agent; the default agent."),
    optional("prompt", Content, "The first message of the user."),
    optional("interactive", Flag, "Whether the session waits for more messages after its first turn."),
    optional(
        "messages",
        Messages,
        "History to begin with: messages with `role` and `content`, replies also with `tool_calls`.",
    ),
    optional("resume_from", SessionPoint, "A session whose transcript this one begins with: `{session_id, at?}`."),
    optional("model", Words, "Id of the model; that of the agent."),
    optional("parameters", Object, "Parameters for the provider, such as `temperature`."),
    optional("ai_config", Object, "Prompt and requests, where they differ from the agent's."),
    optional("continuation", Object, "Continuation settings that replace the agent's."),
    optional("features", Object, "Prompt features to `enable` and `disable`."),
    optional("tools", Names, "Names of the tools that the session may use, of those of its agent."),
    optional("client_tools", ClientTools, "Tools that the client brings, and whose calls it answers."),
    optional("streaming", Object, "How replies are streamed."),
    COMMAND_ID,
    WAIT,
];

const ANSWER: &[Field] = &[
    required("arguments_sha256", Sha256, "Hash of the arguments that the person saw, as the gate has it."),
    required("decision", OneOf(&["approve", "deny", "answer"]), "`answer` is for questions."),
    optional("arguments", Object, "Arguments in place of the model's; with `approve`."),
    optional("content", Text, "The answer to a question; with `answer`."),
    optional("note", Text, "Reason of a denial, for the model."),
    COMMAND_ID,
    WAIT,
];

const LIST: &[Field] = &[
    optional("phase", OneOf(&["idle", "running", "paused", "ended"]), "Only sessions in this phase."),
    optional("agent", Agent, "Only sessions of this agent, by key."),
    optional("model", Text, "Only sessions of this model, by id."),
    optional("since", Time, "Only sessions that started at or after this time."),
    optional("stop_reason", OneOf(STOP_REASONS), "Only sessions whose last turn ended for this reason."),
    optional("text", Text, "Only sessions whose title has this text, or whose id or short id begins with it."),
    optional("is_waiting", Flag, "Only sessions that wait for a person or a client."),
    optional("is_failed", Flag, "Only sessions whose last turn failed or ended at a limit."),
    optional("cost_usd_min", Amount, "Only sessions that have cost at least so many dollars."),
    optional("parent", Id, "Only sessions that this one started."),
    optional("has_total", Flag, "Whether the answer has the number of all sessions that are selected."),
    LIMIT,
    optional("cursor", Cursor, "`next_cursor` of the page before."),
];

const EVENTS: &[Field] = &[
    optional("from_seq", Count, "The first `seq` to send. The header `Last-Event-ID` counts if it is absent."),
    optional("no_chunks", Flag, "Leave out the chunks of replies."),
];

/// Every route, by path.
pub(super) const ROUTES: &[Route] = &[
    route(Post, "/v1/sessions", Method::StartSession, "Start a session.", START),
    route(Get, "/v1/sessions", Method::ListSessions, "List sessions, newest first.", LIST),
    route(Get, "/v1/sessions/{session_id}", Method::GetSession, "Get the summary of a session.", &[]),
    route(
        Post,
        "/v1/sessions/{session_id}/messages",
        Method::SendMessage,
        "Send a message of the user.",
        &[
            required("content", Content, "The message."),
            optional("client_tools", ClientTools, "Tools of the client from now on."),
            optional("mode", OneOf(&["queue", "steer", "interrupt"]), "What it does to a turn that runs; `steer`."),
            COMMAND_ID,
            WAIT,
        ],
    ),
    route(Post, "/v1/sessions/{session_id}/pause", Method::PauseSession, "Pause: open no new call.", CONTROL),
    route(Post, "/v1/sessions/{session_id}/resume", Method::ResumeSession, "Resume a paused session.", CONTROL),
    route(
        Post,
        "/v1/sessions/{session_id}/cancel",
        Method::CancelTurn,
        "Cancel the running turn. The session stays open; one that takes no more messages ends.",
        CONTROL,
    ),
    route(Post, "/v1/sessions/{session_id}/stop", Method::StopSession, "Cancel open calls, and end.", CONTROL),
    route(Post, "/v1/sessions/{session_id}/clear", Method::ClearSession, "Clear the transcript.", CONTROL),
    route(
        Post,
        "/v1/sessions/{session_id}/configure",
        Method::ConfigureSession,
        "Change the settings of a session.",
        &[
            optional("agent", Agent, "The agent that goes on with the session."),
            optional("model", Words, "The model of the next calls."),
            optional("continuation", Object, "Continuation settings that are replaced."),
            optional("features", Object, "Prompt features to `enable` and `disable`."),
            optional("client_tools", ClientTools, "Tools of the client from now on."),
            optional("ai_config", Object, "Prompt and requests, over what the session has."),
            COMMAND_ID,
            WAIT,
        ],
    ),
    route(
        Get,
        "/v1/sessions/{session_id}/events",
        Method::WatchSession,
        "Follow a session as server-sent events.",
        EVENTS,
    ),
    route(
        Get,
        "/v1/sessions/{session_id}/transcript",
        Method::GetTranscript,
        "Get the transcript by turns, as people read it.",
        &[optional("after", Count, "The turn after which the page begins; `next_after` of the page before."), LIMIT],
    ),
    route(
        Get,
        "/v1/sessions/{session_id}/history",
        Method::GetHistory,
        "Get the messages, as a model reads them.",
        &[],
    ),
    route(
        Get,
        "/v1/sessions/{session_id}/describe",
        Method::DescribeSession,
        "Get what a session waits for, and what to do about it.",
        &[],
    ),
    route(Get, "/v1/sessions/{session_id}/trace", Method::TraceSession, "Get the spans of a session.", &[]),
    route(
        Get,
        "/v1/sessions/{session_id}/replay",
        Method::ReplaySession,
        "Fold the log again, and compare.",
        &[
            optional("at", Count, "The last slot to fold; the end of the log."),
            optional("no_commits", Flag, "Leave out the list of commits."),
        ],
    ),
    route(
        Post,
        "/v1/sessions/{session_id}/repair",
        Method::RepairSession,
        "Perform the effects of a session again, after a stream lost messages.",
        &[],
    ),
    route(
        Get,
        "/v1/sessions/{session_id}/calls/{call}/result",
        Method::GetFullResult,
        "Get a whole tool result, of which the model read only parts.",
        &[],
    ),
    route(Get, "/v1/sessions/{session_id}/gates", Method::ListGates, "List the open gates of a session.", &[LIMIT]),
    route(
        Post,
        "/v1/sessions/{session_id}/gates/{gate}",
        Method::AnswerGate,
        "Answer a gate: approve or deny a call, or answer a question.",
        ANSWER,
    ),
    route(
        Get,
        "/v1/sessions/{session_id}/calls",
        Method::ListClientCalls,
        "List the calls of a session that wait for the client.",
        &[LIMIT],
    ),
    route(
        Post,
        "/v1/sessions/{session_id}/calls/{call}",
        Method::AnswerToolCall,
        "Answer a call of a tool that the client brought.",
        &[
            required("outcome", OneOf(&["ok", "error"]), "Whether the tool did what it was asked."),
            required("content", Text, "What the model reads."),
            COMMAND_ID,
            WAIT,
        ],
    ),
    route(Get, "/v1/calls", Method::ListClientCalls, "List the calls of all sessions that wait for clients.", &[LIMIT]),
    route(Get, "/v1/gates", Method::ListGates, "List the open gates of all sessions, the most urgent first.", &[LIMIT]),
    route(
        Get,
        "/v1/stats",
        Method::GetStats,
        "Get statistics of sessions by agent and model, and by time.",
        &[
            optional("since", Time, "Only sessions that started at or after this time."),
            optional("interval", Count, "Seconds of the intervals in which the sessions are counted too, from 60."),
        ],
    ),
    route(Get, "/v1/caller", Method::GetCaller, "Get whose credential this is, and what it grants.", &[]),
    route(Get, "/v1/agents", Method::ListAgents, "List the agents.", &[]),
    route(
        Get,
        "/v1/agents/{agent}",
        Method::DescribeAgent,
        "Get an agent with its composed prompt.",
        &[optional("model", Words, "Id of a model in place of the agent's.")],
    ),
    route(
        Post,
        "/v1/agents/{agent}/test",
        Method::TestReply,
        "Decide about a reply as the loop would.",
        &[
            required("text", Text, "The reply as the model writes it."),
            optional("calls", Names, "Names of the tools that it calls."),
            optional("is_cut", Flag, "Whether it was cut at the output limit."),
            optional("step", Count, "The step of its turn; 1."),
        ],
    ),
    route(Get, "/v1/models", Method::ListModels, "List the models.", &[]),
    route(Get, "/v1/tools", Method::ListTools, "List the tools.", &[]),
    route(
        Get,
        "/v1/tools/replicas",
        Method::ListToolReplicas,
        "List the processes that serve the tools, and how their calls went.",
        &[],
    ),
    route(
        Post,
        "/v1/tools/try",
        Method::TryTool,
        "Call a tool once, outside of a session.",
        &[
            required("tool", Id, "Name of the tool."),
            optional("arguments", Object, "Arguments of the call; none."),
            optional("arguments_sha256", Sha256, "Approves a call with exactly these arguments, where it needs that."),
        ],
    ),
    route(
        Get,
        "/v1/mail",
        Method::ListMail,
        "List the mail of a mailbox.",
        &[optional("mailbox", Agent, "An agent, or a mailbox of people; `user`.")],
    ),
    route(
        Post,
        "/v1/mail",
        Method::SendMail,
        "Send mail to an agent or to people.",
        &[
            required("to", Words, "Key, alias or name of an agent, or `user`."),
            required("subject", Words, "One line."),
            required("text", Words, "The mail."),
            optional("mailbox", Agent, "Mailbox of the sender; `user`."),
            COMMAND_ID,
        ],
    ),
    route(
        Post,
        "/v1/mail/{id}/reply",
        Method::ReplyMail,
        "Reply to mail, or close it with an empty text.",
        &[
            required("text", Text, "The reply."),
            optional("mailbox", Agent, "Mailbox that has the mail; `user`."),
            COMMAND_ID,
        ],
    ),
    route(Get, "/v1/budgets", Method::ListBudgets, "List the budgets of the tenant.", &[]),
    route(
        Post,
        "/v1/budgets/reset",
        Method::ResetBudget,
        "Forget what was spent of a budget.",
        &[required("budget", Words, "Name of the budget, as the list has it.")],
    ),
    route(Get, "/v1/queues", Method::GetQueues, "Get the depth of each queue.", &[]),
    route(Get, "/v1/status", Method::GetStatus, "Get the processes of the fleet, its queues and its storage.", &[]),
    route(
        Get,
        "/v1/dead-letters",
        Method::ListDeadLetters,
        "List dead letters.",
        &[optional("session_id", Id, "Only those of this session.")],
    ),
    route(Get, DEAD_LETTER, Method::GetDeadLetter, "Get a dead letter with its body.", &[]),
    route(Delete, DEAD_LETTER, Method::DropDeadLetter, "Remove a dead letter.", &[]),
    route(
        Post,
        "/v1/sessions/{session_id}/dead-letters/{kind}/{id}/retry",
        Method::RetryDeadLetter,
        "Send the command of a dead letter again.",
        &[],
    ),
];

const fn route(
    verb: super::route::HttpVerb,
    path: &'static str,
    method: Method,
    about: &'static str,
    fields: &'static [Field],
) -> Route {
    Route { verb, path, method, about, fields }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_a_route() {
        for method in Method::ALL {
            let is_routed = ROUTES.iter().any(|route| route.method == *method);
            // A stream ends with its request.
            assert_eq!(is_routed, *method != Method::UnwatchSession, "{}", method.name());
        }
    }
}
