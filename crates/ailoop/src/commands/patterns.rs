//! `ailoop patterns`: tests the patterns of an agent on replies, and suggests new ones.

use std::path::Path;

use contract::ErrorCode;
use contract::command::Features;
use contract::event::{Event, StopReason};
use contract::model::{FinishReason, SignalForm, ToolCall};
use contract::settings::ContinuationSettings;
use fleet_connection::client::SessionsApi;
use proto::ListSessionsRequest;
use reply::Patterns;
use serde::Deserialize;
use serde_json::json;
use session::continuation::{self, ContinuationVerdict, decide_sample};
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::{Style, Terminal};

use super::fleet_location::connect;
use super::history::fetch_events;
use crate::args::{PatternsSuggestArgs, PatternsTestArgs};
use crate::compose::{compose_agent, read_catalog};
use crate::output::finish;

/// Sessions whose replies are read for suggestions, the newest first.
const SESSIONS_MAX: u32 = 200;

/// A reply whose decision is tested: a line of `--file`, or the text of the command line.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SampleReply {
    id: String,
    text: String,
    calls: Vec<SampleCall>,
    finish: Option<FinishReason>,
    step: Option<u32>,
    /// The form in which the session asked for signals.
    signal: SignalForm,
    /// The expected decision; another one fails the test.
    continues: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SampleCall {
    name: String,
    arguments: String,
}

/// `ailoop patterns test`: decides about replies as the loop would.
pub(super) fn test_patterns(args: &PatternsTestArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let composed = compose_agent(&read_catalog(terminal)?, &args.agent, Features::default())?;
    let settings = composed.agent.continuation;
    let samples = match (&args.file, &args.text) {
        (Some(file), _) => read_samples(file)?,
        (None, Some(text)) => vec![SampleReply { text: text.clone(), ..SampleReply::default() }],
        (None, None) => {
            let message = "no reply to decide about: give its text, or --file with one reply per line";
            return Err(CommandFailure::usage(ErrorCode::BadRequest, message));
        }
    };
    let mut mismatches = 0;
    for sample in &samples {
        let (verdict, visible) = decide_about(&settings, sample)?;
        let agrees = sample.continues.is_none_or(|wanted| wanted == verdict.continues);
        mismatches += usize::from(!agrees);
        let line = if args.json {
            sample_json(sample, &verdict, &visible, agrees)
        } else {
            sample_text(sample, &verdict, agrees)
        };
        if terminal.print_data(&line).is_err() {
            return Ok(Exit::Done);
        }
    }
    if mismatches > 0 {
        let message = format!("{mismatches} of {} replies have another decision than the expected one", samples.len());
        return Err(CommandFailure::new(ErrorCode::BadConfig, message).help("see the lines that say `wanted`"));
    }
    Ok(Exit::Done)
}

fn read_samples(file: &Path) -> Result<Vec<SampleReply>, CommandFailure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| CommandFailure::usage(ErrorCode::BadRequest, format!("{}: {error}", file.display())))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            // A line is an object, or a string.
            serde_json::from_str::<SampleReply>(line)
                .or_else(|error| {
                    serde_json::from_str(line)
                        .map(|text| SampleReply { text, ..SampleReply::default() })
                        .map_err(|_| error)
                })
                .map_err(|error| {
                    let message = format!("{}:{}: {error}", file.display(), number + 1);
                    CommandFailure::usage(ErrorCode::BadRequest, message)
                        .help("a line is a JSON object with `text`, or a JSON string")
                })
        })
        .collect()
}

fn decide_about(
    settings: &ContinuationSettings,
    sample: &SampleReply,
) -> Result<(ContinuationVerdict, String), CommandFailure> {
    let calls: Vec<ToolCall> = sample.calls.iter().map(|call| ToolCall::new("", &call.name, &call.arguments)).collect();
    let reply = continuation::SampleReply {
        text: &sample.text,
        calls: &calls,
        finish: sample.finish.unwrap_or(FinishReason::Stop),
        step: sample.step.unwrap_or(1),
        signal: sample.signal,
    };
    decide_sample(settings, reply).map_err(|error| CommandFailure::new(ErrorCode::BadConfig, error.to_string()))
}

fn sample_json(sample: &SampleReply, verdict: &ContinuationVerdict, visible: &str, agrees: bool) -> String {
    let line = json!({
        "id": sample.id, "continues": verdict.continues, "source": verdict.source.to_string(),
        "reason": verdict.reason, "visible": visible, "agrees": agrees,
    });
    format!("{line}\n")
}

fn sample_text(sample: &SampleReply, verdict: &ContinuationVerdict, agrees: bool) -> String {
    let word = |continues: bool| if continues { "goes on" } else { "ends" };
    let id = if sample.id.is_empty() { String::new() } else { format!("{}  ", sample.id) };
    let wanted = if agrees { String::new() } else { format!("  wanted: {}", word(!verdict.continues)) };
    format!("{id}{}  {}  {}{wanted}\n", word(verdict.continues), verdict.source, verdict.reason)
}

/// The last replies of turns, by what the user did next.
#[derive(Default)]
struct TurnReplies {
    /// After these the user had to ask the agent to go on.
    nudged: Vec<String>,
    /// These were the end of the work.
    ended: Vec<String>,
}

impl TurnReplies {
    #[allow(clippy::wildcard_enum_match_arm, reason = "a reader names the events that it reads")]
    fn add_session(&mut self, events: impl Iterator<Item = Event>) {
        let mut last: Option<String> = None;
        for event in events {
            match event {
                Event::TurnCompleted(turn) => {
                    let is_reply = turn.stop_reason == StopReason::Completed && !turn.final_response.is_empty();
                    last = is_reply.then_some(turn.final_response);
                }
                Event::UserProcessed(message) => {
                    let Some(reply) = last.take() else { continue };
                    let is_nudge = reply::is_nudge(&message.content.text());
                    let replies = if is_nudge { &mut self.nudged } else { &mut self.ended };
                    replies.push(reply);
                }
                _ => {}
            }
        }
        self.ended.extend(last);
    }
}

/// `ailoop patterns suggest`: proposes patterns and applies none.
pub(super) async fn suggest_patterns(args: &PatternsSuggestArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let composed = compose_agent(&read_catalog(terminal)?, &args.agent, Features::default())?;
    let (agent, settings) = (composed.agent.id.to_string(), composed.agent.continuation);
    let client = connect(&args.target).await?;
    let request = ListSessionsRequest { limit: Some(SESSIONS_MAX), ..ListSessionsRequest::default() };
    let list = client.call(request, SessionsApi::list_sessions).await?;
    let mut replies = TurnReplies::default();
    let sessions: Vec<_> = list.sessions.into_iter().filter(|session| session.agent == agent).collect();
    for session in &sessions {
        let events = fetch_events(&client, &session.session_id).await?;
        replies.add_session(events.into_iter().map(|(_, event)| event));
    }
    let patterns =
        Patterns::compile(&settings).map_err(|error| CommandFailure::new(ErrorCode::BadConfig, error.to_string()))?;
    let found = reply::suggest(&replies.nudged, &replies.ended, &patterns);
    let read = format!(
        "{} of agent {agent} read: {} after which the user had to ask to go on",
        format::plural(sessions.len() as u64, "session"),
        format::plural(replies.nudged.len() as u64, "turn")
    );
    if args.json {
        let list: Vec<_> =
            found.iter().map(|s| json!({"pattern": s.pattern, "replies": s.replies, "example": s.example})).collect();
        let line = json!({"agent": agent, "nudged": replies.nudged.len(), "suggestions": list});
        return Ok(finish(terminal.print_data(&format!("{line}\n"))));
    }
    terminal.note(Style::Plain, &read);
    if found.is_empty() {
        terminal.note(Style::Good, "nothing to suggest");
        return Ok(Exit::Done);
    }
    let mut text =
        "# nothing is applied: add the right ones to the agent's list in agents.yaml\ncontinuation_patterns:\n"
            .to_owned();
    for suggestion in &found {
        let example: String = suggestion.example.chars().take(100).collect();
        let quoted = suggestion.pattern.replace('\'', "''");
        text.extend([format!("  - '{quoted}' # {}: {example}\n", plural_replies(suggestion.replies))]);
    }
    if settings.require_explicit_signal {
        terminal.note(
            Style::Warn,
            "this agent goes on by explicit signal only: patterns count with require_explicit_signal: false",
        );
    }
    Ok(finish(terminal.print_data(&text)))
}

fn plural_replies(count: usize) -> String {
    if count == 1 { "1 reply".to_owned() } else { format!("{count} replies") }
}
