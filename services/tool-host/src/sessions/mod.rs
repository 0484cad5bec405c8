//! `list_sessions`, `read_session` and `read_decisions`: read the messages, calls and decisions of other sessions of
//! the tenant. They change nothing, and an agent that has them can read every session of the tenant.

mod entries;

use ailoop_tool::{Call, Effect, Reply, Tool, ToolError};
use bus::{Bus, Read};
use contract::commit::{Commit, Phase, SessionSummary};
use contract::limits::SLOTS_PER_PAGE;
use contract::subject::SessionKey;
use contract::{SessionId, TenantId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::connect::Login;
use super::truncate::take_fitting;

/// Sessions of one list.
const SESSIONS_MAX: usize = 100;
/// Default of the argument `limit`.
const SESSIONS_DEFAULT: usize = 20;
/// Pages of a log that are read, from its end.
const PAGES_MAX: u64 = 8;

/// Settings of the tools that read sessions.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "sessions")]
pub struct SessionsConfig {
    /// The NATS user of these tools, where users have permissions.
    pub login: Option<Login>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ListArguments {
    agent: Option<String>,
    phase: Option<Phase>,
    title: Option<String>,
    limit: usize,
}

impl Default for ListArguments {
    fn default() -> Self {
        Self { agent: None, phase: None, title: None, limit: SESSIONS_DEFAULT }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    session: String,
    #[serde(default)]
    from: usize,
}

/// Builds the tools for the sessions of one tenant.
pub(super) fn tools(bus: &Bus, tenant: &TenantId) -> Vec<Tool> {
    let reader = SessionReader { bus: bus.clone(), tenant: tenant.clone() };
    let one = json!({"type": "object", "additionalProperties": false, "properties": {
        "session": {"type": "string", "description": "The session's id, as `list_sessions` gives it."},
        "from": {"type": "integer", "minimum": 0, "description": "Where to begin: `next` of the result before. Default 0."},
    }, "required": ["session"]});
    let read = |name: &str, list_entries: fn(&[Commit]) -> Vec<Value>| {
        let reader = reader.clone();
        Tool::new(name).effect(Effect::Pure).parameters(one.clone()).handler(move |call: Call| {
            let reader = reader.clone();
            async move { Ok::<_, ToolError>(Reply::from(reader.read(&call.arguments()?, list_entries).await?)) }
        })
    };
    let messages = read("read_session", entries::list_messages).description(
        "Reads what was said and done in a session: user messages, replies, tool calls with arguments and results.",
    );
    let decisions = read("read_decisions", entries::list_decisions).description(
        "Reads what the loop decided in a session, step by step: whether it went on, by what and why; failed model \
         calls, errors, limits, and how turns ended.",
    );
    let list = Tool::new("list_sessions")
        .description("Lists sessions, the newest first: agent, model, phase, title, last turn, how it ended, cost.")
        .effect(Effect::Pure)
        .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
            "agent": {"type": "string", "description": "Only sessions of this agent, by its id."},
            "phase": {"enum": ["idle", "running", "paused", "ended"], "description": "Only sessions in this phase."},
            "title": {"type": "string", "description": "Only sessions whose title holds this text."},
            "limit": {"type": "integer", "minimum": 1, "maximum": SESSIONS_MAX, "description": "At most this many. Default 20."},
        }}))
        .handler(move |call: Call| {
            let reader = reader.clone();
            async move { Ok::<_, ToolError>(Reply::from(reader.list(&call.arguments()?).await?)) }
        });
    vec![list, messages, decisions]
}

#[derive(Clone)]
struct SessionReader {
    bus: Bus,
    tenant: TenantId,
}

impl SessionReader {
    async fn list(&self, wanted: &ListArguments) -> Result<Value, ToolError> {
        let is_match = |summary: &SessionSummary| {
            let title = wanted.title.as_ref().map(|title| title.to_lowercase());
            wanted.agent.as_ref().is_none_or(|agent| summary.agent == *agent)
                && wanted.phase.is_none_or(|phase| summary.phase == phase)
                && title.is_none_or(|title| summary.title.to_lowercase().contains(&title))
        };
        let mut found = self.bus.summaries(&self.tenant).await.map_err(unreadable_error)?;
        found.retain(is_match);
        found.sort_by_cached_key(SessionSummary::place);
        let all = found.len();
        let sessions =
            take_fitting(found.iter().take(wanted.limit.clamp(1, SESSIONS_MAX)).map(entries::summarize_session));
        Ok(json!({"more": all - sessions.len(), "sessions": sessions}))
    }

    /// Returns as many entries as fit into a result, from `from` on.
    async fn read(
        &self,
        wanted: &ReadArguments,
        list_entries: fn(&[Commit]) -> Vec<Value>,
    ) -> Result<Value, ToolError> {
        let unknown = || {
            let id: String = wanted.session.chars().take(80).collect();
            ToolError::new(format!("there is no session {id:?}; `list_sessions` has those that there are"))
        };
        let session = SessionId::new(&wanted.session).map_err(|_| unknown())?;
        let key = SessionKey { tenant: self.tenant.clone(), session };
        let head = self.bus.head(&key, Read::Any).await.map_err(unreadable_error)?.ok_or_else(unknown)?;
        let from_page = (head.slot / SLOTS_PER_PAGE).saturating_sub(PAGES_MAX - 1);
        let commits = self.bus.history(&key, from_page).await.map_err(unreadable_error)?;
        let commits: Vec<Commit> = commits.into_iter().map(|(_, commit)| commit).collect();
        let all = list_entries(&commits);
        let count = all.len();
        let mut fitting = take_fitting(all.into_iter().skip(wanted.from));
        if fitting.is_empty() && wanted.from < count {
            fitting.push(json!({"left_out": "this entry is too long to be shown"}));
        }
        let next = wanted.from + fitting.len();
        let mut answer = json!({"session": key.session, "entries": fitting, "next": (next < count).then_some(next)});
        if from_page > 0 {
            answer["left_out"] = "the session is long: what is older is not shown".into();
        }
        Ok(answer)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable_error(error: bus::BusError) -> ToolError {
    ToolError::new(format!("sessions cannot be read now: {error}"))
}
