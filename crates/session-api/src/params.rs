//! Parameters of the methods. The comment of a field is its description in the `OpenAPI` document.

use std::borrow::Cow;
use std::marker::PhantomData;

use contract::commit::{Phase, SessionSummary};
use contract::event::StopReason;
use contract::subject::DeadKind;
use contract::{AgentId, CallId, CommandId, Json, SessionId, Timestamp, ToolName};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::cursor::ListCursor;

/// Schema of the parameters of a command: the fields of its body, with those of its address.
#[derive(Debug)]
pub struct CommandFields<T, A = SessionAddress>(PhantomData<(T, A)>);

impl<T: JsonSchema, A: JsonSchema> JsonSchema for CommandFields<T, A> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}Command", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (mut schema, mut address) = (T::json_schema(generator), A::json_schema(generator));
        if let (Some(Value::Object(fields)), Some(Value::Object(more))) =
            (schema.get_mut("properties"), address.remove("properties"))
        {
            fields.extend(more);
        }
        if let Some(Value::Array(more)) = address.remove("required") {
            let required = schema.ensure_object().entry("required").or_insert_with(|| json!([]));
            required.as_array_mut().into_iter().for_each(|required| required.extend_from_slice(&more));
        }
        schema
    }
}

/// The fields that every command to a session has beside its body.
#[derive(Debug, JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct SessionAddress {
    /// Id of the session.
    session_id: SessionId,
    #[schemars(flatten)]
    options: CommandOptions,
}

/// The fields that the command which starts a session has beside its body.
#[derive(Debug, JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct NewSessionAddress {
    /// Id of the new session: up to 64 letters, digits, `-` and `_`; it is generated if absent.
    session_id: Option<SessionId>,
    #[schemars(flatten)]
    options: CommandOptions,
}

#[derive(Debug, JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
struct CommandOptions {
    /// Idempotency key: a repeated command with the same one changes nothing. The header `Idempotency-Key` is the same.
    command_id: Option<CommandId>,
    /// Whether the response waits for the commit, up to 30 s; true.
    wait: Option<bool>,
}

/// Parameters of the methods that take none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// Parameters of the methods that take nothing but a session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionParams {
    /// Id of the session.
    pub session_id: SessionId,
}

/// Parameters of the method `session.list`.
#[derive(Debug, Clone, PartialEq, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListSessionsParams {
    /// Only sessions in this phase.
    pub phase: Option<Phase>,
    /// Entries, at most 1 000; 100.
    #[schemars(with = "u32")]
    pub limit: usize,
    /// `next_cursor` of the page before.
    #[schemars(with = "Option<String>")]
    pub cursor: Option<ListCursor>,
    /// Only sessions of this agent, by key.
    pub agent: Option<AgentId>,
    /// Only sessions of this model, by id.
    pub model: Option<String>,
    /// Only sessions that started at or after this time.
    pub since: Option<Timestamp>,
    /// Only sessions that started before this time.
    pub until: Option<Timestamp>,
    /// Only sessions whose last turn ended for this reason.
    pub stop_reason: Option<StopReason>,
    /// Only sessions whose title has this text, in upper or lower case, or whose id or short id begins with it.
    pub text: Option<String>,
    /// Only sessions that wait for a person or a client.
    pub is_waiting: bool,
    /// Only sessions whose last turn failed or ended at a limit.
    pub is_failed: bool,
    /// Only sessions that have cost at least so many dollars.
    #[schemars(range(min = 0))]
    pub cost_usd_min: Option<f64>,
    /// Only sessions that this one started.
    pub parent: Option<SessionId>,
    /// Whether the answer has the number of all sessions that are selected, on every page.
    pub has_total: bool,
}

impl ListSessionsParams {
    /// Whether a session is one of those that are asked for.
    pub fn selects(&self, summary: &SessionSummary) -> bool {
        let Self { phase, agent, model, since, until, stop_reason, text, .. } = self;
        let Self { is_waiting, is_failed, cost_usd_min, parent, .. } = self;
        let waits = || summary.phase != Phase::Ended && summary.waits_for_answer();
        let has_text = |text: &str| {
            summary.session_id.as_str().starts_with(text)
                || summary.session_id.short().is_some_and(|short| short.starts_with(text))
                || summary.title.to_lowercase().contains(&text.to_lowercase())
        };
        phase.is_none_or(|phase| summary.phase == phase)
            && agent.as_ref().is_none_or(|agent| summary.agent == agent.as_str())
            && model.as_ref().is_none_or(|model| summary.model == *model)
            && since.is_none_or(|since| summary.started >= since)
            && until.is_none_or(|until| summary.started < until)
            && stop_reason.is_none_or(|reason| summary.stop_reason == Some(reason))
            && (!is_waiting || waits())
            && (!is_failed || summary.stop_reason.is_some_and(StopReason::is_failure))
            && cost_usd_min.is_none_or(|least| summary.spent.cost_usd >= least)
            && parent.as_ref().is_none_or(|parent| summary.parent.as_ref() == Some(parent))
            && text.as_deref().is_none_or(has_text)
    }
}

/// Parameters of the method `session.watch`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchParams {
    /// Id of the session.
    pub session_id: SessionId,
    /// The first `seq` to send; 0 and 1 mean from the beginning. The header `Last-Event-ID` counts if it is absent.
    #[serde(default, alias = "seq")]
    pub from_seq: u64,
    /// Leave out the chunks of replies.
    #[serde(default)]
    pub no_chunks: bool,
}

/// Parameters of the method `session.transcript`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TranscriptParams {
    /// Id of the session.
    pub session_id: SessionId,
    /// The turn after which the page begins; `next_after` of the page before.
    #[serde(default)]
    pub after: u32,
    /// Entries, at most 1 000; 100.
    #[serde(default)]
    #[schemars(with = "u32")]
    pub limit: usize,
}

/// Parameters of the method `session.replay`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayParams {
    /// Id of the session.
    pub session_id: SessionId,
    /// The last slot to fold; the end of the log.
    #[serde(default)]
    pub at: Option<u64>,
    /// Leave out the list of commits.
    #[serde(default)]
    pub no_commits: bool,
}

/// Parameters of the method `session.stats`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StatsParams {
    /// Only sessions that started at or after this time.
    pub since: Option<Timestamp>,
    /// Seconds of the intervals in which the sessions are counted too, from 60. It needs `since`.
    pub interval: Option<u32>,
}

impl StatsParams {
    /// Whether a session is one of those that are counted.
    pub fn selects(&self, summary: &SessionSummary) -> bool {
        self.since.is_none_or(|since| summary.started >= since)
    }
}

/// Parameters of the methods `gates.list` and `calls.list`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListPendingParams {
    /// Only those of this session; those of all sessions.
    pub session_id: Option<SessionId>,
    /// Entries, at most 1 000; 100.
    #[schemars(with = "u32")]
    pub limit: usize,
}

/// Parameters of the method `agents.describe`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DescribeAgentParams {
    /// Key or alias; the default agent.
    pub agent: Option<AgentId>,
    /// Id of a model in place of the agent's.
    #[schemars(regex(pattern = r"\S"))]
    pub model: Option<String>,
}

/// Parameters of the method `agents.test_reply`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TestReplyParams {
    /// Key or alias of the agent.
    pub agent: AgentId,
    /// The reply as the model writes it.
    pub text: String,
    /// Names of the tools that it calls.
    #[serde(default)]
    pub calls: Vec<ToolName>,
    /// Whether it was cut at the output limit.
    #[serde(default)]
    pub is_cut: bool,
    /// The step of its turn; 1.
    #[serde(default)]
    pub step: Option<u32>,
}

/// Parameters of the method `tools.try`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TryToolParams {
    /// Name of the tool.
    pub tool: ToolName,
    /// Arguments of the call; none.
    #[serde(default = "no_arguments")]
    #[schemars(with = "Map<String, Value>")]
    pub arguments: Json,
    /// Approves a call with exactly these arguments, where it needs that.
    #[serde(default)]
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub arguments_sha256: Option<String>,
}

impl TryToolParams {
    /// Makes the parameters of a call without arguments.
    pub fn new(tool: ToolName) -> Self {
        Self { tool, arguments: no_arguments(), arguments_sha256: None }
    }
}

fn no_arguments() -> Json {
    Json::of(&json!({}))
}

/// Parameters of the method `tools.result`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolResultParams {
    /// Id of the session.
    pub session_id: SessionId,
    /// Id of the call.
    pub call: CallId,
}

/// Parameters of the method `mail.list`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListMailParams {
    /// An agent, or a mailbox of people; `user`.
    pub mailbox: Option<AgentId>,
}

/// Parameters of the method `mail.send`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMailParams {
    /// Mailbox of the sender, which must not be an agent's; `user`.
    #[serde(default)]
    pub mailbox: Option<AgentId>,
    /// Idempotency key: a repeated mail with the same one is stored once. The header `Idempotency-Key` is the same.
    #[serde(default)]
    pub command_id: Option<CommandId>,
    /// Key, alias or name of an agent, or `user`.
    #[schemars(regex(pattern = r"\S"))]
    pub to: String,
    /// One line, at most 1 KiB as JSON.
    #[schemars(regex(pattern = r"\S"))]
    pub subject: String,
    /// The mail, at most 32 KiB as JSON.
    #[schemars(regex(pattern = r"\S"))]
    pub text: String,
}

/// Parameters of the method `mail.reply`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplyMailParams {
    /// Mailbox that has the mail, which must not be an agent's; `user`.
    #[serde(default)]
    pub mailbox: Option<AgentId>,
    /// Idempotency key: a repeated reply with the same one is stored once. The header `Idempotency-Key` is the same.
    #[serde(default)]
    pub command_id: Option<CommandId>,
    /// Id as `mail.list` returns it.
    #[schemars(regex(pattern = r"\S"))]
    pub id: String,
    /// The reply, at most 32 KiB as JSON; an empty text closes the mail without one.
    pub text: String,
}

/// Parameters of the method `budgets.reset`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetBudgetParams {
    /// Name of the budget, as `budgets.list` has it.
    #[schemars(regex(pattern = r"\S"))]
    pub budget: String,
}

/// Parameters of the method `dead.list`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListDeadLettersParams {
    /// Only those of this session.
    pub session_id: Option<SessionId>,
}

/// Parameters of the methods for one dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterParams {
    /// Id of the session.
    pub session_id: SessionId,
    /// Kind of the message.
    pub kind: DeadKind,
    /// Id as `dead.list` returns it.
    pub id: CommandId,
}
