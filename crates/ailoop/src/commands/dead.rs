//! `ailoop dead`: lists, shows, retries and drops dead letters.

use contract::ErrorCode;
use fleet_connection::client::{self, EdgeClient, SessionsApi, answer_json};
use proto::{DeadLetter, DropDeadLetterRequest, GetDeadLetterRequest, ListDeadLettersRequest, RetryDeadLetterRequest};
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::table::{Table, TableColumn};
use terminal::{Style, Terminal};

use super::fleet_location::connect;
use super::selection::confirm;
use super::session_reference::{resolve_filter, resolve_session};
use crate::args::{DeadArgs, DeadCommand, DeadListArgs, DeadSelection};
use crate::output::{finish, format_time, print_table};

fn name_of(letter: &DeadLetter) -> String {
    format!("{}/{}/{}", letter.session_id, letter.kind, letter.id)
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
    let reply = client.call(ListDeadLettersRequest { session_id }, SessionsApi::list_dead_letters).await?;
    if args.output.is_json() {
        return Ok(finish(terminal.print_data(&format!("{}\n", answer_json(&reply)?["dead"]))));
    }
    let letters = &reply.dead;
    if letters.is_empty() {
        terminal.note(Style::Good, "no dead letters");
        return Ok(Exit::Done);
    }
    let row = |letter: &DeadLetter| {
        let DeadLetter { code, reason, delivered, stored_at, .. } = letter;
        let stored = format_time(stored_at, terminal);
        vec![name_of(letter), stored, code.clone(), delivered.to_string(), reason.clone()]
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
    let letter = answer_json(&client.call(request, SessionsApi::get_dead_letter).await?)?;
    Ok(finish(terminal.print_data(&format!("{letter:#}\n"))))
}

/// Action on a dead letter that a person chose.
#[derive(Debug, Clone, Copy)]
enum Remedy {
    Retry,
    Drop,
}

impl Remedy {
    /// Handles one dead letter; returns the outcome, as people read it.
    async fn apply(self, client: &EdgeClient, letter: GetDeadLetterRequest) -> Result<String, CommandFailure> {
        let GetDeadLetterRequest { session_id, kind, id } = letter;
        match self {
            Self::Retry => {
                let request = RetryDeadLetterRequest { session_id, kind, id };
                let reply = client.call(request, SessionsApi::retry_dead_letter).await?;
                Ok(format!("sent to session {} again, as command {}", reply.session_id, reply.command_id))
            }
            Self::Drop => {
                let request = DropDeadLetterRequest { session_id, kind, id };
                let letter = client.call(request, SessionsApi::drop_dead_letter).await?;
                Ok(format!("{} is deleted: {}", name_of(&letter), letter.reason))
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
    let reply = client.call(ListDeadLettersRequest { session_id }, SessionsApi::list_dead_letters).await?;
    let mut letters = reply.dead;
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
        let DeadLetter { session_id, kind, id, .. } = letter.clone();
        let request = GetDeadLetterRequest { session_id, kind, id };
        match remedy.apply(&client, request).await {
            Ok(done) => terminal.note(Style::Good, &done),
            Err(failure) if failure.exit() == Exit::Unreachable => return Err(failure),
            Err(failure) => {
                failed += 1;
                terminal.note(Style::Bad, &format!("{}: {failure}", name_of(letter)));
            }
        }
    }
    Ok(if failed == 0 { Exit::Done } else { Exit::Failed })
}

/// Parses a name of the form `<session>/<kind>/<id>`.
fn parse_letter(letter: &str) -> Result<GetDeadLetterRequest, CommandFailure> {
    let parts: Vec<&str> = letter.split('/').collect();
    let [session, kind, id] = parts[..] else {
        let message = format!(
            "{letter:?} is not the name of a dead letter, which is <session>/<kind>/<id>: see `ailoop dead list`"
        );
        return Err(CommandFailure::usage(ErrorCode::BadRequest, message));
    };
    Ok(GetDeadLetterRequest { session_id: client::session_id(session)?, kind: kind.to_owned(), id: id.to_owned() })
}
