//! `ailoop dead`: what failed for good.

use contract::ErrorCode;
use proto::{DeadRequest, ListDeadRequest};
use serde::Deserialize;

use super::lists::table;
use crate::args::{DeadArgs, DeadCommand, DeadListArgs};
use crate::client::{self, bounded};
use crate::failure::{Exit, Failure};
use crate::terminal::{Style, Terminal};

/// A letter, as far as it is printed.
#[derive(Deserialize)]
struct Letter {
    session_id: String,
    kind: String,
    id: String,
    code: String,
    reason: String,
    delivered: u64,
    stored_at: String,
}

impl Letter {
    fn name(&self) -> String {
        format!("{}/{}/{}", self.session_id, self.kind, self.id)
    }
}

pub(super) async fn dead(command: &DeadCommand, terminal: &Terminal) -> Result<Exit, Failure> {
    match command {
        DeadCommand::List(args) => list(args, terminal).await,
        DeadCommand::Show(args) => show(args, terminal).await,
        DeadCommand::Retry(args) => retry(args, terminal).await,
        DeadCommand::Drop(args) => drop_one(args, terminal).await,
    }
}

async fn list(args: &DeadListArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let session_id = args.session.as_deref().map(client::session_id).transpose()?.unwrap_or_default();
    let client = super::connect(&args.target).await?;
    let request = bounded(ListDeadRequest { session_id });
    let reply = client.sessions().list_dead(request).await.map_err(|status| client.failure(&status))?.into_inner();
    if args.json {
        return Ok(super::finish(terminal.data(&format!("{}\n", reply.json))));
    }
    let letters: Vec<Letter> = read(&reply.json)?;
    if letters.is_empty() {
        terminal.note(Style::Good, "no dead letters");
        return Ok(Exit::Done);
    }
    let row = |letter: &Letter| {
        let Letter { code, reason, delivered, stored_at, .. } = letter;
        vec![letter.name(), stored_at.clone(), code.clone(), delivered.to_string(), reason.clone()]
    };
    let rows: Vec<Vec<String>> = letters.iter().map(row).collect();
    let printed = terminal.data(&table(&["LETTER", "STORED", "CODE", "DELIVERED", "REASON"], &rows));
    terminal
        .note(Style::Faint, "`ailoop dead show <letter>` prints one; retry sends a command again; drop throws it away");
    Ok(super::finish(printed))
}

async fn show(args: &DeadArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let request = which(&args.letter)?;
    let client = super::connect(&args.target).await?;
    let reply = client.sessions().show_dead(bounded(request)).await.map_err(|status| client.failure(&status))?;
    let letter: serde_json::Value = read(&reply.into_inner().json)?;
    let text = serde_json::to_string_pretty(&letter).unwrap_or_default();
    Ok(super::finish(terminal.data(&format!("{text}\n"))))
}

async fn retry(args: &DeadArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let request = which(&args.letter)?;
    let client = super::connect(&args.target).await?;
    let reply = client.sessions().retry_dead(bounded(request)).await.map_err(|status| client.failure(&status))?;
    let reply = reply.into_inner();
    let told = format!("sent to session {} again, as command {}", reply.session_id, reply.command_id);
    terminal.note(Style::Good, &told);
    Ok(Exit::Done)
}

async fn drop_one(args: &DeadArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let request = which(&args.letter)?;
    let client = super::connect(&args.target).await?;
    let reply = client.sessions().drop_dead(bounded(request)).await.map_err(|status| client.failure(&status))?;
    let letter: Letter = read(&reply.into_inner().json)?;
    terminal.note(Style::Good, &format!("{} is gone: {}", letter.name(), letter.reason));
    Ok(Exit::Done)
}

/// `<session>/<kind>/<id>`
fn which(letter: &str) -> Result<DeadRequest, Failure> {
    let parts: Vec<&str> = letter.split('/').collect();
    let [session, kind, id] = parts[..] else {
        let message = format!("{letter:?} is no dead letter: they are <session>/<kind>/<id>, see `ailoop dead list`");
        return Err(Failure::usage(ErrorCode::BadRequest, message));
    };
    Ok(DeadRequest { session_id: client::session_id(session)?, kind: kind.to_owned(), id: id.to_owned() })
}

fn read<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(|error| Failure::new(ErrorCode::Internal, format!("the answer: {error}")))
}
