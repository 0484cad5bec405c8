//! `ailoop dead`: lists, shows, retries and drops dead letters.

use contract::ErrorCode;
use proto::{DeadRequest, ListDeadRequest};
use serde::Deserialize;

use super::fleet_location::connect;
use super::output::{finish, format_table};
use crate::args::{DeadArgs, DeadCommand, DeadListArgs};
use crate::client::{self, bounded};
use crate::failure::{CommandFailure, Exit};
use crate::terminal::{Style, Terminal};

/// The fields of a dead letter that are printed.
#[derive(Deserialize)]
struct DeadLetterSummary {
    session_id: String,
    kind: String,
    id: String,
    code: String,
    reason: String,
    delivered: u64,
    stored_at: String,
}

impl DeadLetterSummary {
    fn name(&self) -> String {
        format!("{}/{}/{}", self.session_id, self.kind, self.id)
    }
}

pub(super) async fn run(command: &DeadCommand, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match command {
        DeadCommand::List(args) => list_letters(args, terminal).await,
        DeadCommand::Show(args) => show_letter(args, terminal).await,
        DeadCommand::Retry(args) => retry_letter(args, terminal).await,
        DeadCommand::Drop(args) => drop_letter(args, terminal).await,
    }
}

async fn list_letters(args: &DeadListArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let session_id = args.session.as_deref().map(client::session_id).transpose()?.unwrap_or_default();
    let client = connect(&args.target).await?;
    let request = bounded(ListDeadRequest { session_id });
    let reply = client.sessions().list_dead(request).await.map_err(|status| client.failure(&status))?.into_inner();
    if args.json {
        return Ok(finish(terminal.print_data(&format!("{}\n", reply.json))));
    }
    let letters: Vec<DeadLetterSummary> = parse_reply(&reply.json)?;
    if letters.is_empty() {
        terminal.note(Style::Good, "no dead letters");
        return Ok(Exit::Done);
    }
    let row = |letter: &DeadLetterSummary| {
        let DeadLetterSummary { code, reason, delivered, stored_at, .. } = letter;
        vec![letter.name(), stored_at.clone(), code.clone(), delivered.to_string(), reason.clone()]
    };
    let rows: Vec<Vec<String>> = letters.iter().map(row).collect();
    let printed = terminal.print_data(&format_table(&["LETTER", "STORED", "CODE", "DELIVERED", "REASON"], &rows));
    terminal.note(Style::Faint, "`ailoop dead show <letter>` prints one; retry sends a command again; drop deletes it");
    Ok(finish(printed))
}

async fn show_letter(args: &DeadArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let request = parse_letter(&args.letter)?;
    let client = connect(&args.target).await?;
    let reply = client.sessions().show_dead(bounded(request)).await.map_err(|status| client.failure(&status))?;
    let letter: serde_json::Value = parse_reply(&reply.into_inner().json)?;
    let text = serde_json::to_string_pretty(&letter).unwrap_or_default();
    Ok(finish(terminal.print_data(&format!("{text}\n"))))
}

async fn retry_letter(args: &DeadArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let request = parse_letter(&args.letter)?;
    let client = connect(&args.target).await?;
    let reply = client.sessions().retry_dead(bounded(request)).await.map_err(|status| client.failure(&status))?;
    let reply = reply.into_inner();
    let line = format!("sent to session {} again, as command {}", reply.session_id, reply.command_id);
    terminal.note(Style::Good, &line);
    Ok(Exit::Done)
}

async fn drop_letter(args: &DeadArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let request = parse_letter(&args.letter)?;
    let client = connect(&args.target).await?;
    let reply = client.sessions().drop_dead(bounded(request)).await.map_err(|status| client.failure(&status))?;
    let letter: DeadLetterSummary = parse_reply(&reply.into_inner().json)?;
    terminal.note(Style::Good, &format!("{} is deleted: {}", letter.name(), letter.reason));
    Ok(Exit::Done)
}

/// Parses a name of the form `<session>/<kind>/<id>`.
fn parse_letter(letter: &str) -> Result<DeadRequest, CommandFailure> {
    let parts: Vec<&str> = letter.split('/').collect();
    let [session, kind, id] = parts[..] else {
        let message = format!(
            "{letter:?} is not the name of a dead letter, which is <session>/<kind>/<id>: see `ailoop dead list`"
        );
        return Err(CommandFailure::usage(ErrorCode::BadRequest, message));
    };
    Ok(DeadRequest { session_id: client::session_id(session)?, kind: kind.to_owned(), id: id.to_owned() })
}

fn parse_reply<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, CommandFailure> {
    serde_json::from_str(json).map_err(|error| CommandFailure::new(ErrorCode::Internal, format!("the answer: {error}")))
}
