//! Parameters of the methods, parsed and validated once. An unknown field is an error.

mod command;
mod cursor;
mod parse;
#[cfg(test)]
mod tests;

use contract::commit::{Phase, SessionSummary};
use contract::event::StopReason;
use contract::subject::DeadKind;
use contract::{AgentId, CallId, CommandId, Json, SessionId, Timestamp, ToolName};
use serde::Deserialize;

use crate::api_error::ApiError;

pub(crate) use command::{CommandBody, CommandRequest, UnvalidatedCommand};
pub(crate) use cursor::ListCursor;
pub(crate) use parse::{
    check_size, generate_id, parse, parse_object, parse_optional, parse_optional_word, parse_session_id, parse_word,
};

/// Maximum number of entries of one list.
pub(crate) const LIST_MAX: usize = 1_000;

/// Shortest interval of statistics, in seconds.
const INTERVAL_SECONDS_MIN: u32 = 60;

/// Number of entries of one list if the client gives no limit.
pub(crate) const LIST_DEFAULT: usize = 100;

/// Parameters of the methods that take nothing but a session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionParams {
    pub(crate) session_id: SessionId,
}

/// Parameters of the method `tools.result`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolResultParams {
    pub(crate) session_id: SessionId,
    pub(crate) call: CallId,
}

/// Parameters of the method `tools.try`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TryToolParams {
    pub(crate) tool: ToolName,
    /// An object; empty if none is given.
    #[serde(default = "no_arguments")]
    pub(crate) arguments: Json,
    /// Approves a call with exactly these arguments.
    #[serde(default)]
    pub(crate) arguments_sha256: Option<String>,
}

pub(crate) fn no_arguments() -> Json {
    Json::of(&serde_json::Map::new())
}

/// Parameters of the method `agents.describe`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DescribeAgentParams {
    /// Key or alias; the default agent if none is given.
    pub(crate) agent: Option<AgentId>,
    /// Id of a model in place of the agent's.
    pub(crate) model: Option<String>,
}

/// Parameters of the method `agents.test_reply`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TestReplyParams {
    pub(crate) agent: AgentId,
    /// The reply as the model writes it.
    pub(crate) text: String,
    /// Names of the tools that it calls.
    #[serde(default)]
    pub(crate) calls: Vec<ToolName>,
    /// Whether it was cut at the output limit.
    #[serde(default)]
    pub(crate) is_cut: bool,
    /// The step of its turn, from 1.
    #[serde(default)]
    pub(crate) step: Option<u32>,
}

/// Parameters of the methods `gates.list` and `calls.list`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListPendingParams {
    /// All sessions if none is given.
    pub(crate) session_id: Option<SessionId>,
    /// Maximum number of entries; 0 means 100.
    pub(crate) limit: usize,
}

/// Parameters of the method `session.list`.
#[derive(Debug, Clone, PartialEq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListSessionsParams {
    /// All phases if none is given.
    pub(crate) phase: Option<Phase>,
    /// Maximum number of entries; 0 means 100.
    pub(crate) limit: usize,
    /// The list continues after this position, which an earlier list returned.
    pub(crate) cursor: Option<ListCursor>,
    /// Only sessions of this agent, by key.
    pub(crate) agent: Option<AgentId>,
    /// Only sessions of this model, by id.
    pub(crate) model: Option<String>,
    /// Only sessions that started at or after this time.
    pub(crate) since: Option<Timestamp>,
    /// Only sessions whose last turn ended for this reason.
    pub(crate) stop_reason: Option<StopReason>,
    /// Only sessions whose title has this text, in upper or lower case, or whose id or short id begins with it.
    pub(crate) text: Option<String>,
    /// Only sessions that wait for a person or a client.
    pub(crate) is_waiting: bool,
    /// Only sessions whose last turn failed or ended at a limit.
    pub(crate) is_failed: bool,
    /// Only sessions that have cost at least so many dollars.
    pub(crate) cost_usd_min: Option<f64>,
    /// Only sessions that this one started.
    pub(crate) parent: Option<SessionId>,
    /// Whether the answer has the number of all sessions that are selected, on every page.
    pub(crate) has_total: bool,
}

impl ListSessionsParams {
    /// Whether a session is one of those that are asked for.
    pub(crate) fn selects(&self, summary: &SessionSummary) -> bool {
        let Self { phase, agent, model, since, stop_reason, text, .. } = self;
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
            && stop_reason.is_none_or(|reason| summary.stop_reason == Some(reason))
            && (!is_waiting || waits())
            && (!is_failed || summary.stop_reason.is_some_and(StopReason::is_failure))
            && cost_usd_min.is_none_or(|least| summary.spent.cost_usd >= least)
            && parent.as_ref().is_none_or(|parent| summary.parent.as_ref() == Some(parent))
            && text.as_deref().is_none_or(has_text)
    }
}

/// Returns the number of entries for a limit that a client gives.
pub(crate) fn clamp_limit(limit: usize) -> usize {
    if limit == 0 { LIST_DEFAULT } else { limit.min(LIST_MAX) }
}

/// Parameters of the method `session.transcript`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TranscriptParams {
    pub(crate) session_id: SessionId,
    #[serde(default)]
    pub(crate) after: u32,
    /// Maximum number of entries; 0 means 100.
    #[serde(default)]
    pub(crate) limit: usize,
}

/// Parameters of the method `session.replay`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayParams {
    pub(crate) session_id: SessionId,
    /// The last slot to fold; the end of the log if none is given.
    #[serde(default)]
    pub(crate) at: Option<u64>,
    /// Whether the list of commits is left out.
    #[serde(default)]
    pub(crate) no_commits: bool,
}

/// Parameters of the method `dead.list`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListDeadLettersParams {
    /// All sessions if none is given.
    pub(crate) session_id: Option<SessionId>,
}

/// Parameters of the methods for one dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadLetterParams {
    pub(crate) session_id: SessionId,
    pub(crate) kind: DeadKind,
    /// Id as `dead.list` returns it.
    pub(crate) id: CommandId,
}

/// Parameters of the method `mail.list`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListMailParams {
    /// Key or alias of an agent, or a mailbox of people; `user` if none is given.
    pub(crate) mailbox: Option<AgentId>,
}

/// Parameters of the method `mail.send`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendMailParams {
    /// Mailbox of the sender, which must not be an agent's; `user` if none is given.
    #[serde(default)]
    pub(crate) mailbox: Option<AgentId>,
    /// Idempotency key of the client; generated if none is given.
    #[serde(default)]
    pub(crate) command_id: Option<CommandId>,
    /// An agent's key, alias or name, or `user` for people.
    pub(crate) to: String,
    /// One line, at most 1 KiB as JSON; not empty.
    pub(crate) subject: String,
    /// At most 32 KiB as JSON; not empty.
    pub(crate) text: String,
}

/// Parameters of the method `mail.reply`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplyMailParams {
    /// Mailbox that has the mail, which must not be an agent's; `user` if none is given.
    #[serde(default)]
    pub(crate) mailbox: Option<AgentId>,
    /// Idempotency key of the client; generated if none is given.
    #[serde(default)]
    pub(crate) command_id: Option<CommandId>,
    /// Id as `mail.list` returns it.
    pub(crate) id: String,
    /// The answer, at most 32 KiB as JSON. It is required; an empty text closes the mail without an answer.
    pub(crate) text: String,
}

/// Parameters of the method `session.stats`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StatsParams {
    /// Only sessions that started at or after this time.
    pub(crate) since: Option<Timestamp>,
    /// Seconds of the intervals in which the sessions since `since` are counted too; without it there are none.
    pub(crate) interval: Option<u32>,
}

impl StatsParams {
    /// Returns the beginnings of the intervals up to now, whole multiples of their length; none if none are asked for.
    pub(crate) fn intervals(&self, now: Timestamp) -> Result<Option<Intervals>, ApiError> {
        let Some(seconds) = self.interval else { return Ok(None) };
        let Some(since) = self.since else {
            return Err(ApiError::bad_request("`interval` needs `since`: the first interval begins there"));
        };
        if seconds < INTERVAL_SECONDS_MIN {
            let message = format!("`interval` is {seconds}, it must be at least {INTERVAL_SECONDS_MIN} seconds");
            return Err(ApiError::bad_request(message));
        }
        let length_ms = u64::from(seconds) * 1_000;
        let first = since.as_millis() / length_ms;
        let count = (now.as_millis() / length_ms + 1).saturating_sub(first);
        match usize::try_from(count) {
            Ok(count) if count <= LIST_MAX => Ok(Some(Intervals { length_ms, first, count })),
            Ok(_) | Err(_) => {
                let message =
                    format!("`interval` gives {count} intervals since `since`, at most {LIST_MAX} are allowed");
                Err(ApiError::bad_request(message))
            }
        }
    }
}

/// Intervals of equal length, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intervals {
    pub(crate) length_ms: u64,
    /// Number of the first interval, where that of the epoch is 0.
    pub(crate) first: u64,
    pub(crate) count: usize,
}

/// Parameters of the method `session.watch`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchParams {
    pub(crate) session_id: SessionId,
    /// The first `seq` to send; 0 and 1 mean from the beginning.
    #[serde(default, alias = "seq")]
    pub(crate) from_seq: u64,
    #[serde(default)]
    pub(crate) no_chunks: bool,
}

/// Parameters of the method `budgets.reset`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResetBudgetParams {
    /// Name as `budgets.list` returns it.
    pub(crate) budget: String,
}

/// Parameters of the methods that take none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}
