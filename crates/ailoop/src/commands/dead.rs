//! `ailoop dead`: lists, shows, retries and drops dead letters.

use contract::ErrorCode;
use fleet_connection::client::{self, EdgeClient, SessionsApi, read_answer};
use proto::{DeadRequest, ListDeadRequest};
use serde::Deserialize;
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::table::{Table, TableColumn};
use terminal::{Style, Terminal};

use super::fleet_location::connect;
use super::selection::confirm;
use super::session_reference::{resolve_filter, resolve_session};
use crate::args::{DeadArgs, DeadCommand, DeadListArgs, DeadSelection};
use crate::output::{finish, format_time, print_table};

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
        DeadCommand::Retry(args) => remedy(Remedy::Retry, args, terminal).await,
        DeadCommand::Drop(args) => remedy(Remedy::Drop, args, terminal).await,
    }
}

async fn list_letters(args: &DeadListArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let session_id = resolve_filter(&client, args.session.as_deref()).await?;
    let reply = client.call(ListDeadRequest { session_id }, SessionsApi::list_dead).await?;
    if args.output.is_json() {
        return Ok(finish(terminal.print_data(&format!("{}\n", reply.json))));
    }
    let letters: Vec<DeadLetterSummary> = read_answer(&reply.json)?;
    if letters.is_empty() {
        terminal.note(Style::Good, "no dead letters");
        return Ok(Exit::Done);
    }
    let row = |letter: &DeadLetterSummary| {
        let DeadLetterSummary { code, reason, delivered, stored_at, .. } = letter;
        let stored = format_time(stored_at, terminal);
        vec![letter.name(), stored, code.clone(), delivered.to_string(), reason.clone()]
    };
    let columns = [
        TableColumn::name("LETTER"),
        TableColumn::name("STORED").optional(2),
        TableColumn::name("CODE"),
        TableColumn::number("DELIVERED").optional(1),
        TableColumn::text("REASON"),
    ];
    let printed = print_table(&Table::new(&columns).with_rows(letters.iter().map(row)), &args.output, terminal);
    terminal.note(Style::Faint, "`ailoop dead show <letter>` prints one; retry sends a command again; drop deletes it");
    Ok(finish(printed))
}

async fn show_letter(args: &DeadArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let mut request = parse_letter(&args.letter)?;
    let client = connect(&args.target).await?;
    request.session_id = resolve_session(&client, &request.session_id).await?;
    let letter: serde_json::Value = read_answer(&client.call(request, SessionsApi::show_dead).await?.json)?;
    let text = serde_json::to_string_pretty(&letter).unwrap_or_default();
    Ok(finish(terminal.print_data(&format!("{text}\n"))))
}

/// Action on a dead letter that a person chose.
#[derive(Debug, Clone, Copy)]
enum Remedy {
    Retry,
    Drop,
}

impl Remedy {
    /// Handles one dead letter; returns the outcome, as people read it.
    async fn apply(self, client: &EdgeClient, request: DeadRequest) -> Result<String, CommandFailure> {
        match self {
            Self::Retry => {
                let reply = client.call(request, SessionsApi::retry_dead).await?;
                Ok(format!("sent to session {} again, as command {}", reply.session_id, reply.command_id))
            }
            Self::Drop => {
                let reply = client.call(request, SessionsApi::drop_dead).await?;
                let letter: DeadLetterSummary = read_answer(&reply.json)?;
                Ok(format!("{} is deleted: {}", letter.name(), letter.reason))
            }
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Retry => "retried",
            Self::Drop => "deleted",
        }
    }
}

async fn remedy(remedy: Remedy, args: &DeadSelection, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let Some(letter) = &args.letter else { return remedy_selected(remedy, args, terminal).await };
    let mut request = parse_letter(letter)?;
    let client = connect(&args.target).await?;
    request.session_id = resolve_session(&client, &request.session_id).await?;
    terminal.note(Style::Good, &remedy.apply(&client, request).await?);
    Ok(Exit::Done)
}

/// Handles every selected dead letter. One that is refused stays, and does not keep the others from it.
async fn remedy_selected(remedy: Remedy, args: &DeadSelection, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let session_id = resolve_filter(&client, args.session.as_deref()).await?;
    let reply = client.call(ListDeadRequest { session_id }, SessionsApi::list_dead).await?;
    let mut letters: Vec<DeadLetterSummary> = read_answer(&reply.json)?;
    letters.retain(|letter| args.code.as_ref().is_none_or(|code| letter.code == *code));
    if letters.is_empty() {
        terminal.note(Style::Good, "no dead letter is selected");
        return Ok(Exit::Done);
    }
    let question = format!("{} will be {}.", format::plural(letters.len() as u64, "dead letter"), remedy.done());
    if !confirm(&question, args.yes, terminal)? {
        return Ok(Exit::Failed);
    }
    let mut failed = 0_u64;
    for letter in &letters {
        let DeadLetterSummary { session_id, kind, id, .. } = letter;
        let request = DeadRequest { session_id: session_id.clone(), kind: kind.clone(), id: id.clone() };
        match remedy.apply(&client, request).await {
            Ok(done) => terminal.note(Style::Good, &done),
            Err(failure) if failure.exit() == Exit::Unreachable => return Err(failure),
            Err(failure) => {
                failed += 1;
                terminal.note(Style::Bad, &format!("{}: {failure}", letter.name()));
            }
        }
    }
    Ok(if failed == 0 { Exit::Done } else { Exit::Failed })
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
