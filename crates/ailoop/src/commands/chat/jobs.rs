//! Requests to the fleet, made one after the other while the chat stays usable.

use std::collections::VecDeque;
use std::fmt;

use futures::future::LocalBoxFuture;
use proto::{
    AnswerRequest, ConfigureRequest, ControlRequest, ListAgentsRequest, ListModelsRequest, ListRequest, SendRequest,
    SessionInfo, SessionRequest, StartRequest,
};
use serde_json::json;

use crate::chat::slash_command::CompletionValues;
use crate::client::{EdgeClient, bounded, command_id};
use crate::commands::lists::fetch_tools_of;
use crate::commands::output::first_line;
use crate::failure::CommandFailure;
use crate::format;
use crate::table::{Table, TableColumn};
use crate::tool_summary::to_line;

/// Sessions that `/sessions` lists.
const SESSIONS_SHOWN_MAX: u32 = 10;

/// What became of a request.
#[derive(Debug)]
pub(super) enum JobOutcome {
    /// The answer, as text to show.
    Text(String),
    /// The answer, as a table to show.
    Table(Table),
    /// Nothing to show: the events of the session show it.
    Done,
    /// A session was started.
    Started(String),
    /// The session was ended.
    Stopped,
    /// What commands can be completed to.
    Values(CompletionValues),
    /// The request failed, and nothing follows from it.
    Failed(CommandFailure),
    /// The answer to a gate was refused.
    Refused { gate: String, failure: CommandFailure },
    /// A message did not arrive.
    NotSent { message_id: String, failure: CommandFailure },
}

/// The requests that wait, and the one that runs.
#[derive(Default)]
pub(super) struct Jobs {
    queue: VecDeque<LocalBoxFuture<'static, JobOutcome>>,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("waiting", &self.queue.len()).finish()
    }
}

impl Jobs {
    pub(super) fn push(&mut self, job: impl Future<Output = JobOutcome> + 'static) {
        self.queue.push_back(Box::pin(job));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Waits for the first request. It is safe to drop the future: the request goes on with the next call.
    pub(super) async fn next(&mut self) -> JobOutcome {
        let Some(job) = self.queue.front_mut() else { return std::future::pending().await };
        let outcome = job.await;
        self.queue.pop_front();
        outcome
    }
}

/// A command without content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    Pause,
    Resume,
    Cancel,
    Stop,
    Clear,
}

pub(super) async fn control(client: EdgeClient, session_id: String, what: Control) -> JobOutcome {
    let reason = "ailoop chat".to_owned();
    let request = ControlRequest { session_id, command_id: command_id(), reason, no_wait: false };
    let sent = client
        .call(
            |_| {},
            async |mut api| {
                let request = bounded(request.clone());
                match what {
                    Control::Pause => api.pause(request).await,
                    Control::Resume => api.resume(request).await,
                    Control::Cancel => api.cancel_turn(request).await,
                    Control::Stop => api.stop(request).await,
                    Control::Clear => api.clear(request).await,
                }
            },
        )
        .await;
    match sent {
        Ok(_) if what == Control::Stop => JobOutcome::Stopped,
        Ok(_) => JobOutcome::Done,
        Err(failure) => JobOutcome::Failed(failure),
    }
}

pub(super) async fn send(client: EdgeClient, session_id: String, message_id: String, text: String) -> JobOutcome {
    let (command_id, mode) = (message_id.clone(), "steer".to_owned());
    let request = SendRequest { session_id, command_id, text, mode, ..SendRequest::default() };
    match client.call(|_| {}, async |mut api| api.send(bounded(request.clone())).await).await {
        Ok(_) => JobOutcome::Done,
        Err(failure) => JobOutcome::NotSent { message_id, failure },
    }
}

/// The session that a chat begins.
#[derive(Debug, Default, Clone)]
pub(super) struct NewSession {
    pub(super) agent: Option<String>,
    pub(super) model: Option<String>,
    pub(super) prompt: String,
    /// The session whose transcript is copied.
    pub(super) fork_of: Option<String>,
}

pub(super) async fn start(client: EdgeClient, new: NewSession) -> JobOutcome {
    let session_id = command_id();
    let options = new.fork_of.map(|from| json!({"resume_from": {"session_id": from}}).to_string());
    let request = StartRequest {
        session_id: session_id.clone(),
        command_id: command_id(),
        // Keys and aliases of agents are lower case, while people write names with a capital letter.
        agent: new.agent.unwrap_or_default().to_lowercase(),
        model: new.model.unwrap_or_default(),
        prompt: new.prompt,
        interactive: true,
        options_json: options.unwrap_or_default(),
        no_wait: false,
    };
    match client.call(|_| {}, async |mut api| api.start(bounded(request.clone())).await).await {
        Ok(_) => JobOutcome::Started(session_id),
        Err(failure) => JobOutcome::Failed(failure),
    }
}

pub(super) async fn configure(
    client: EdgeClient,
    session_id: String,
    model: Option<String>,
    agent: Option<String>,
) -> JobOutcome {
    let options = agent.map(|agent| json!({"agent": agent.to_lowercase()}).to_string());
    let request = ConfigureRequest {
        session_id,
        command_id: command_id(),
        model: model.unwrap_or_default(),
        options_json: options.unwrap_or_default(),
        no_wait: false,
    };
    match client.call(|_| {}, async |mut api| api.configure(bounded(request.clone())).await).await {
        Ok(_) => JobOutcome::Done,
        Err(failure) => JobOutcome::Failed(failure),
    }
}

pub(super) async fn answer(client: EdgeClient, session_id: String, answer: AnswerRequest) -> JobOutcome {
    let request = AnswerRequest { session_id, command_id: command_id(), ..answer };
    match client.call(|_| {}, async |mut api| api.answer(bounded(request.clone())).await).await {
        Ok(_) => JobOutcome::Done,
        Err(failure) => JobOutcome::Refused { gate: request.gate, failure },
    }
}

/// Fetches what commands can be completed to.
pub(super) async fn fetch_values(client: EdgeClient) -> JobOutcome {
    match values_of(&client).await {
        Ok(values) => JobOutcome::Values(values),
        // Completion is a help: without it, commands work as well.
        Err(_unavailable) => JobOutcome::Done,
    }
}

/// Lists the models, or the agents.
pub(super) async fn list_values(client: EdgeClient, wants_models: bool) -> JobOutcome {
    match values_of(&client).await {
        Ok(values) => {
            let names = if wants_models { values.models } else { values.agents };
            JobOutcome::Text(names.iter().map(|name| format!("  {}", to_line(name))).collect::<Vec<_>>().join("\n"))
        }
        Err(failure) => JobOutcome::Failed(failure),
    }
}

async fn values_of(client: &EdgeClient) -> Result<CompletionValues, CommandFailure> {
    let models = client.sessions().list_models(bounded(ListModelsRequest {})).await;
    let models = models.map_err(|status| client.failure(&status))?.into_inner().models;
    let agents = client.sessions().list_agents(bounded(ListAgentsRequest {})).await;
    let agents = agents.map_err(|status| client.failure(&status))?.into_inner().agents;
    Ok(CompletionValues {
        models: models.into_iter().map(|model| model.id).collect(),
        agents: agents.into_iter().map(|agent| agent.id).collect(),
    })
}

pub(super) async fn show_cost(client: EdgeClient, session_id: String) -> JobOutcome {
    match client.sessions().get(bounded(SessionRequest { session_id })).await {
        Ok(info) => {
            let info = info.into_inner();
            JobOutcome::Text(format_cost(&info))
        }
        Err(status) => JobOutcome::Failed(client.failure(&status)),
    }
}

/// Formats what a session used with the work that it delegated, and its own part where that is another figure.
fn format_cost(info: &SessionInfo) -> String {
    let (input, output) = (format::plural(info.input_tokens, "token"), format::count(info.output_tokens));
    let (cost, turns) = (info.cost_usd, format::plural(info.turn.into(), "turn"));
    let all = format!("  {input} in, {output} out · ${cost:.4} · {turns}");
    match &info.spent_own {
        Some(own) if (own.input_tokens, own.output_tokens) == (info.input_tokens, info.output_tokens) => all,
        Some(own) => {
            let (input, output) = (format::count(own.input_tokens), format::count(own.output_tokens));
            let cost = own.cost_usd;
            format!("{all} · delegated work included; without it {input} in, {output} out, ${cost:.4}")
        }
        None => format!("{all} · delegated work included; an older version did not count it apart"),
    }
}

pub(super) async fn list_sessions(client: EdgeClient) -> JobOutcome {
    let request = ListRequest { limit: SESSIONS_SHOWN_MAX, ..ListRequest::default() };
    match client.sessions().list(bounded(request)).await {
        Ok(reply) => {
            let rows: Vec<Vec<String>> = reply
                .into_inner()
                .sessions
                .into_iter()
                .map(|session| vec![session.session_id, session.phase, session.agent, session.title])
                .collect();
            let columns = [
                TableColumn::name("SESSION"),
                TableColumn::name("PHASE").optional(1),
                TableColumn::name("AGENT").optional(2),
                TableColumn::text("TITLE"),
            ];
            JobOutcome::Table(Table::new(&columns).with_rows(rows))
        }
        Err(status) => JobOutcome::Failed(client.failure(&status)),
    }
}

pub(super) async fn list_tools(client: EdgeClient) -> JobOutcome {
    match fetch_tools_of(&client).await {
        Ok(tools) => {
            let rows: Vec<Vec<String>> =
                tools.into_iter().map(|tool| vec![tool.name, first_line(&tool.description).to_owned()]).collect();
            JobOutcome::Table(
                Table::new(&[TableColumn::name("TOOL"), TableColumn::text("DESCRIPTION")]).with_rows(rows),
            )
        }
        Err(failure) => JobOutcome::Failed(failure),
    }
}
