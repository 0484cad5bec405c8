//! `ailoop chat`: an interactive session, in the running fleet or in a fleet of its own.

mod conversation;
mod display;
mod jobs;

use fleet_connection::client::EdgeClient;
use terminal::Terminal;
use terminal::failure::{CommandFailure, Exit};

use self::conversation::ChatConversation;
use super::conversation::FleetLifetime;
use super::own_fleet::{connect_to_shared_fleet, start_own_fleet};
use super::session_reference::{newest_session, resolve_session};
use crate::args::ChatArgs;
use crate::signals::Interrupts;

pub(super) async fn chat(args: &ChatArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let mut interrupts = Interrupts::listen()?;
    if let Some(client) = connect_to_shared_fleet(&args.target, &args.files, terminal).await? {
        return converse(args, client, terminal, FleetLifetime::Independent, &mut interrupts).await;
    }
    let Some(fleet) = start_own_fleet(&args.files, args.model.clone(), terminal, &mut interrupts).await? else {
        return Ok(Exit::Interrupted);
    };
    let exit = match fleet.connect().await {
        Ok(client) => converse(args, client, terminal, FleetLifetime::ThisCommand, &mut interrupts).await,
        Err(failure) => Err(failure),
    };
    // Another Ctrl-C skips the drain: NATS redelivers unacknowledged messages at the next start.
    let _drained = interrupts.run_until_interrupted(fleet.drain()).await;
    exit
}

async fn converse(
    args: &ChatArgs,
    client: EdgeClient,
    terminal: &Terminal,
    lifetime: FleetLifetime,
    interrupts: &mut Interrupts,
) -> Result<Exit, CommandFailure> {
    let session = match &args.session {
        Some(text) => Some(resolve_session(&client, text).await?),
        None if args.last => Some(newest_session(&client).await?),
        None => None,
    };
    let mut conversation = ChatConversation::open(args, client, terminal, lifetime)?;
    if let Some(session) = session {
        conversation.attach_known(&session).await?;
    }
    conversation.run(interrupts).await
}
