//! `ailoop send`, `pause`, `resume`, `stop`, `cancel`, `fork` and `configure`.

use contract::ErrorCode;
use fleet_connection::client::{self, EdgeClient, SessionsApi, command_id, control_request, request_of};
use proto::{CommandReply, ConfigureSessionRequest, ResumeFrom, SendMessageRequest, StartSessionRequest};
use serde_json::Value;
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::text_argument;
use terminal::{Style, Terminal};

use super::fleet_location::connect;
use super::selection::{confirm, list_selected};
use super::session_reference::connect_to_session;
use super::settings::session_options;
use crate::args::{ConfigureArgs, ControlArgs, ForkArgs, SendArgs, SessionRef, api_name};
use crate::output::finish;

/// A command without content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlVerb {
    Pause,
    Resume,
    Stop,
    CancelTurn,
}

pub(super) async fn control_session(
    verb: ControlVerb,
    args: &ControlArgs,
    terminal: &Terminal,
) -> Result<Exit, CommandFailure> {
    if args.all {
        return control_selected(verb, args, terminal).await;
    }
    let reference = SessionRef { session: args.session.clone(), last: args.last };
    let (client, session_id) = connect_to_session(&args.target, &reference).await?;
    let reply = verb.send(&client, &session_id, &args.reason).await?;
    note_result(terminal, &session_id, verb.done(), &reply);
    Ok(Exit::Done)
}

/// Sends the command to every selected session that can take it. Each one is handled by itself: one that refuses does
/// not keep the others from it.
async fn control_selected(verb: ControlVerb, args: &ControlArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let mut selected = list_selected(&client, &args.filter).await?;
    selected.retain(|session| verb.is_for(&session.phase));
    if selected.is_empty() {
        terminal.note(Style::Plain, "no session is selected");
        return Ok(Exit::Done);
    }
    let count = format::plural(selected.len() as u64, "session");
    if !confirm(&format!("{count} will be {}.", verb.done()), args.yes, terminal)? {
        return Ok(Exit::Failed);
    }
    let mut failed = 0_u64;
    for session in &selected {
        match verb.send(&client, &session.session_id, &args.reason).await {
            Ok(reply) => note_result(terminal, &session.session_id, verb.done(), &reply),
            // Without the fleet the others would fail in the same way, and later.
            Err(failure) if failure.exit() == Exit::Unreachable => return Err(failure),
            Err(failure) => {
                failed += 1;
                terminal.note(Style::Bad, &format!("session {}: {failure}", session.session_id));
            }
        }
    }
    Ok(if failed == 0 { Exit::Done } else { Exit::Failed })
}

impl ControlVerb {
    /// Returns the outcome of the command for the session, as people read it.
    fn done(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Stop => "stopped",
            Self::CancelTurn => "cancelled",
        }
    }

    /// Whether a session in this phase can take the command.
    fn is_for(self, phase: &str) -> bool {
        match self {
            Self::Pause => ["idle", "running"].contains(&phase),
            Self::Resume => phase == "paused",
            Self::Stop => phase != "ended",
            // A session that is paused, or waits for a person, may have a turn.
            Self::CancelTurn => !["ended", "idle"].contains(&phase),
        }
    }

    async fn send(self, client: &EdgeClient, session: &str, reason: &str) -> Result<CommandReply, CommandFailure> {
        match self {
            Self::Pause => client.call(control_request(session, reason), SessionsApi::pause_session).await,
            Self::Resume => client.call(control_request(session, reason), SessionsApi::resume_session).await,
            Self::Stop => client.call(control_request(session, reason), SessionsApi::stop_session).await,
            Self::CancelTurn => client.call(control_request(session, reason), SessionsApi::cancel_turn).await,
        }
    }
}

pub(super) async fn send_message(args: &SendArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let text = text_argument::read_text(&args.text, std::io::stdin())?;
    let (client, session_id) = connect_to_session(&args.target, &args.session).await?;
    let request = SendMessageRequest {
        session_id: session_id.clone(),
        command_id: Some(command_id()),
        content: Some(text.into()),
        mode: api_name(&args.mode),
        ..SendMessageRequest::default()
    };
    let reply = client.call(request, SessionsApi::send_message).await?;
    note_result(terminal, &session_id, "accepted", &reply);
    Ok(Exit::Done)
}

/// Starts a session with the transcript of another one, and prints the id of the new session.
pub(super) async fn fork_session(args: &ForkArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let session_id = args.name.as_deref().map_or_else(|| Ok(command_id()), client::session_id)?;
    let prompt = args.prompt.as_deref().map(|prompt| text_argument::read_text(prompt, std::io::stdin())).transpose()?;
    let (client, from) = connect_to_session(&args.target, &args.session).await?;
    let request = StartSessionRequest {
        session_id: Some(session_id.clone()),
        command_id: Some(command_id()),
        agent: args.agent.as_deref().map(str::to_lowercase),
        model: args.model.clone(),
        prompt: prompt.map(Into::into),
        interactive: Some(true),
        resume_from: Some(ResumeFrom { session_id: from.clone(), at: args.at }),
        ..StartSessionRequest::default()
    };
    client.call(request, SessionsApi::start_session).await?;
    let next = if args.prompt.is_some() { "watch" } else { "send" };
    terminal.note(Style::Good, &format!("session {session_id} goes on from {from}; now: ailoop {next} {session_id}"));
    Ok(finish(terminal.print_data(&format!("{session_id}\n"))))
}

pub(super) async fn configure_session(args: &ConfigureArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let mut options = session_options(&args.settings, args.max_iterations, args.timeout)?;
    if let Some(agent) = &args.agent {
        options.insert("agent".to_owned(), agent.to_lowercase().into());
    }
    if options.is_empty() && args.model.is_none() {
        let message = "nothing to change: give --agent, --model, --max-iterations, --timeout or another option";
        return Err(CommandFailure::usage(ErrorCode::BadRequest, message));
    }
    let (client, session_id) = connect_to_session(&args.target, &args.session).await?;
    let request = ConfigureSessionRequest {
        session_id: session_id.clone(),
        command_id: Some(command_id()),
        model: args.model.clone(),
        ..request_of(Value::Object(options))?
    };
    let reply = client.call(request, SessionsApi::configure_session).await?;
    note_result(terminal, &session_id, "configured", &reply);
    Ok(Exit::Done)
}

/// Prints whether a command was handled, or was only stored so far.
pub(super) fn note_result(terminal: &Terminal, session: &str, done: &str, reply: &CommandReply) {
    if reply.done {
        terminal.note(Style::Good, &format!("session {session}: {done}"));
    } else {
        terminal.note(Style::Warn, &format!("session {session}: accepted, not handled yet"));
    }
}
