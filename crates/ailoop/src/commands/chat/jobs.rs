//! Requests to the fleet, made one after the other while the chat stays usable.

use std::collections::VecDeque;
use std::fmt;

use contract::tool::ToolSpec;
use fleet_connection::client::{EdgeClient, SessionsApi, chosen, command_id, control_request};
use futures::future::LocalBoxFuture;
use proto::{
    AnswerGateRequest, CommandReply, ConfigureSessionRequest, ControlRequest, GetSessionRequest, ListAgentsRequest,
    ListModelsRequest, ListSessionsRequest, ResumeFrom, SendMessageRequest, SessionSummary, StartSessionRequest,
};
use session_view::chat::slash_command::CompletionValues;
use session_view::tool_summary::to_line;
use terminal::failure::CommandFailure;
use terminal::format;
use terminal::table::{Table, TableColumn};
use tonic::{Request, Response, Status};

use crate::commands::control::ControlVerb;
use crate::commands::lists::fetch_tools;
use crate::output::first_line;

/// Sessions that `/sessions` lists.
const SESSIONS_SHOWN_MAX: u32 = 10;
/// Reason of commands without content, for the log.
const REASON: &str = "ailoop chat";

/// Outcome of a request.
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
    /// Values for the completion of commands.
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
    queue: VecDeque<LocalBoxFuture<'static, Result<JobOutcome, CommandFailure>>>,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("waiting", &self.queue.len()).finish()
    }
}

impl Jobs {
    pub(super) fn push(&mut self, job: impl Future<Output = Result<JobOutcome, CommandFailure>> + 'static) {
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
        outcome.unwrap_or_else(JobOutcome::Failed)
    }
}

pub(super) async fn control(
    client: EdgeClient,
    session: String,
    verb: ControlVerb,
) -> Result<JobOutcome, CommandFailure> {
    let (session, reason) = (session.as_str(), REASON);
    match verb {
        ControlVerb::Pause => command(&client, session, reason, SessionsApi::pause_session).await?,
        ControlVerb::Resume => command(&client, session, reason, SessionsApi::resume_session).await?,
        ControlVerb::Stop => command(&client, session, reason, SessionsApi::stop_session).await?,
        ControlVerb::CancelTurn => command(&client, session, reason, SessionsApi::cancel_turn).await?,
    }
    Ok(if verb == ControlVerb::Stop { JobOutcome::Stopped } else { JobOutcome::Done })
}

pub(super) async fn clear(client: EdgeClient, session: String) -> Result<JobOutcome, CommandFailure> {
    command(&client, &session, REASON, SessionsApi::clear_session).await?;
    Ok(JobOutcome::Done)
}

/// Sends a command that has nothing but a reason.
async fn command<R: ControlRequest + Clone>(
    client: &EdgeClient,
    session: &str,
    reason: &str,
    method: impl AsyncFn(&mut SessionsApi, Request<R>) -> Result<Response<CommandReply>, Status>,
) -> Result<(), CommandFailure> {
    client.call_with_retries(control_request(session, reason), |_| {}, method).await.map(drop)
}

pub(super) async fn send(
    client: EdgeClient,
    session_id: String,
    message_id: String,
    text: String,
) -> Result<JobOutcome, CommandFailure> {
    let request = SendMessageRequest {
        session_id,
        command_id: Some(message_id.clone()),
        content: Some(text.into()),
        mode: Some("steer".to_owned()),
        ..SendMessageRequest::default()
    };
    let sent = client.call_with_retries(request, |_| {}, SessionsApi::send_message).await;
    Ok(sent.map_or_else(|failure| JobOutcome::NotSent { message_id, failure }, |_| JobOutcome::Done))
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

pub(super) async fn start(client: EdgeClient, new: NewSession) -> Result<JobOutcome, CommandFailure> {
    let session_id = command_id();
    let request = StartSessionRequest {
        session_id: Some(session_id.clone()),
        command_id: Some(command_id()),
        // Keys and aliases of agents are lower case, while people write names with a capital letter.
        agent: new.agent.as_deref().map(str::to_lowercase),
        model: new.model,
        prompt: chosen(&new.prompt).map(|prompt| prompt.to_owned().into()),
        interactive: Some(true),
        resume_from: new.fork_of.map(|session_id| ResumeFrom { session_id, at: None }),
        ..StartSessionRequest::default()
    };
    client.call_with_retries(request, |_| {}, SessionsApi::start_session).await?;
    Ok(JobOutcome::Started(session_id))
}

pub(super) async fn configure(
    client: EdgeClient,
    session_id: String,
    model: Option<String>,
    agent: Option<String>,
) -> Result<JobOutcome, CommandFailure> {
    let request = ConfigureSessionRequest {
        session_id,
        command_id: Some(command_id()),
        model,
        agent: agent.as_deref().map(str::to_lowercase),
        ..ConfigureSessionRequest::default()
    };
    client.call_with_retries(request, |_| {}, SessionsApi::configure_session).await?;
    Ok(JobOutcome::Done)
}

pub(super) async fn answer(
    client: EdgeClient,
    session_id: String,
    answer: AnswerGateRequest,
) -> Result<JobOutcome, CommandFailure> {
    let gate = answer.gate.clone();
    let request = AnswerGateRequest { session_id, command_id: Some(command_id()), ..answer };
    let sent = client.call_with_retries(request, |_| {}, SessionsApi::answer_gate).await;
    Ok(sent.map_or_else(|failure| JobOutcome::Refused { gate, failure }, |_| JobOutcome::Done))
}

/// Fetches the values for the completion of commands.
pub(super) async fn fetch_values(client: EdgeClient) -> Result<JobOutcome, CommandFailure> {
    // Completion is a help: without it, commands work as well.
    Ok(values_of(&client).await.map_or(JobOutcome::Done, JobOutcome::Values))
}

/// Lists the models, or the agents.
pub(super) async fn list_values(client: EdgeClient, wants_models: bool) -> Result<JobOutcome, CommandFailure> {
    let values = values_of(&client).await?;
    let names = if wants_models { values.models } else { values.agents };
    let lines: Vec<String> = names.iter().map(|name| format!("  {}", to_line(name))).collect();
    Ok(JobOutcome::Text(lines.join("\n")))
}

async fn values_of(client: &EdgeClient) -> Result<CompletionValues, CommandFailure> {
    let models = client.call(ListModelsRequest {}, SessionsApi::list_models).await?.models;
    let agents = client.call(ListAgentsRequest {}, SessionsApi::list_agents).await?.agents;
    Ok(CompletionValues {
        models: models.into_iter().map(|model| model.id).collect(),
        agents: agents.into_iter().map(|agent| agent.id).collect(),
    })
}

pub(super) async fn show_cost(client: EdgeClient, session_id: String) -> Result<JobOutcome, CommandFailure> {
    let info = client.call(GetSessionRequest { session_id }, SessionsApi::get_session).await?;
    Ok(JobOutcome::Text(format_cost(&info)))
}

/// Formats what a session used with the work that it delegated, and its own part where that is another figure.
fn format_cost(info: &SessionSummary) -> String {
    let spent = info.spent.unwrap_or_default();
    let usage = spent.usage.unwrap_or_default();
    let (input, output) = (format::plural(usage.input, "token"), format::count(usage.output));
    let (cost, turns) = (spent.cost_usd, format::plural(info.turn.into(), "turn"));
    let all = format!("  {input} in, {output} out · ${cost:.4} · {turns}");
    match &info.spent_own {
        Some(own) if own.usage == spent.usage => all,
        Some(own) => {
            let usage = own.usage.unwrap_or_default();
            let (input, output) = (format::count(usage.input), format::count(usage.output));
            let cost = own.cost_usd;
            format!("{all} · delegated work included; without it {input} in, {output} out, ${cost:.4}")
        }
        None => format!("{all} · delegated work included; an older version did not count it apart"),
    }
}

pub(super) async fn list_sessions(client: EdgeClient) -> Result<JobOutcome, CommandFailure> {
    let request = ListSessionsRequest { limit: Some(SESSIONS_SHOWN_MAX), ..ListSessionsRequest::default() };
    let sessions = client.call(request, SessionsApi::list_sessions).await?.sessions;
    let row = |session: SessionSummary| vec![session.session_id, session.phase, session.agent, session.title];
    let columns = [
        TableColumn::name("SESSION"),
        TableColumn::name("PHASE").optional(1),
        TableColumn::name("AGENT").optional(2),
        TableColumn::text("TITLE"),
    ];
    Ok(JobOutcome::Table(Table::new(&columns).with_rows(sessions.into_iter().map(row))))
}

pub(super) async fn list_tools(client: EdgeClient) -> Result<JobOutcome, CommandFailure> {
    let tools = fetch_tools(&client).await?;
    let row = |tool: ToolSpec| vec![tool.name.to_string(), first_line(&tool.description).to_owned()];
    let columns = [TableColumn::name("TOOL"), TableColumn::text("DESCRIPTION")];
    Ok(JobOutcome::Table(Table::new(&columns).with_rows(tools.into_iter().map(row))))
}
