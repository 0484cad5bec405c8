//! `ailoop run`: one prompt to its end, in the running fleet or in a fleet of its own.

use fleet_connection::client::{self, EdgeClient};
use terminal::failure::{CommandFailure, Exit};
use terminal::text_argument;
use terminal::{Style, Terminal};

use super::conversation::{Conversation, FleetLifetime};
use super::own_fleet::{connect_to_shared_fleet, start_own_fleet};
use super::session_reference::{newest_session, resolve_or_new};
use crate::args::RunArgs;
use crate::signals::Interrupts;

pub(super) async fn run_prompt(args: &RunArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let prompt = text_argument::read_prompt(&args.prompt, terminal)?;
    let quiet = terminal.without_notes();
    let terminal = if args.final_only { &quiet } else { terminal };
    let session = args.session.as_deref().map(client::session_id).transpose()?;
    let mut interrupts = Interrupts::listen()?;
    let converse = async |client, fleet_lifetime, interrupts: &mut Interrupts| {
        let session = find_session(args, session, &client).await?;
        Conversation { args, prompt, session, client, terminal, fleet_lifetime }.run(interrupts).await
    };
    if let Some(client) = connect_to_shared_fleet(&args.target, &args.files, terminal).await? {
        return converse(client, FleetLifetime::Independent, &mut interrupts).await;
    }
    let Some(fleet) = start_own_fleet(&args.files, args.model.clone(), terminal, &mut interrupts).await? else {
        return Ok(Exit::Interrupted);
    };
    let exit = match fleet.connect().await {
        Ok(client) => converse(client, FleetLifetime::ThisCommand, &mut interrupts).await,
        Err(failure) => Err(failure),
    };
    if args.stay && matches!(exit, Ok(code) if code != Exit::Interrupted) {
        let stays =
            fleet.console().map_or_else(|| "the fleet stays".to_owned(), |console| format!("console {console}"));
        terminal.note(Style::Plain, &format!("{stays} until Ctrl-C"));
        interrupts.next().await;
    }
    // Another Ctrl-C skips the drain: NATS redelivers unacknowledged messages at the next start.
    let _drained = interrupts.run_until_interrupted(fleet.drain()).await;
    exit
}

/// Returns the session to continue, if the command line names one.
async fn find_session(
    args: &RunArgs,
    named: Option<String>,
    client: &EdgeClient,
) -> Result<Option<String>, CommandFailure> {
    match named {
        Some(text) => resolve_or_new(client, &text).await.map(Some),
        None if args.last => newest_session(client).await.map(Some),
        None => Ok(None),
    }
}
