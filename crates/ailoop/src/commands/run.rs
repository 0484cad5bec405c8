//! `ailoop run`: one prompt to its end, in the running fleet or in a fleet of its own.

use configuration::env;
use configuration::models::is_key_set;
use contract::ErrorCode;

use super::conversation::{Conversation, FleetLifetime};
use super::fleet_location::{HTTP_ADDRESS, find_shared_fleet, http_address_hint};
use crate::args::RunArgs;
use crate::client;
use crate::default_model::ModelChoice;
use crate::failure::{CommandFailure, Exit};
use crate::fleet::{FleetPlan, LocalFleet};
use crate::signals::Interrupts;
use crate::terminal::{Style, Terminal};
use crate::text_argument;

pub(super) async fn run_prompt(args: &RunArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let prompt = text_argument::read_text(&args.prompt, std::io::stdin())?;
    let session = args.session.as_deref().map(client::session_id).transpose()?;
    let mut interrupts = Interrupts::listen()?;
    if let Some(fleet) = find_shared_fleet(&args.target)? {
        refuse_files(args, fleet.url())?;
        if let Some(hint) = fleet.key_hint(is_key_set) {
            terminal.note(Style::Warn, &hint);
        }
        let client = fleet.connect().await?;
        let conversation =
            Conversation { args, prompt, session, client, terminal, fleet_lifetime: FleetLifetime::Independent };
        return conversation.run(&mut interrupts).await;
    }
    let Some(plan) =
        interrupts.run_until_interrupted(FleetPlan::for_one_command(&args.files, args.model.clone())).await
    else {
        return Ok(Exit::Interrupted);
    };
    let plan = plan?;
    if let Some(hint) = http_address_hint(env(HTTP_ADDRESS).as_deref()) {
        terminal.note(Style::Warn, &format!("no fleet was found, so this command starts its own; {hint}"));
    }
    note_model(terminal, plan.choice());
    let files = format!("tools read {} and write {}", plan.root().display(), plan.out().display());
    terminal.note(Style::Faint, &files);
    let Some(fleet) = interrupts.run_until_interrupted(LocalFleet::start(plan)).await else {
        return Ok(Exit::Interrupted);
    };
    let mut fleet = fleet?;
    // Other terminals find the fleet by its run file, and can answer the gates of the session.
    fleet.announce_for_one_session()?;
    if let Some(console) = fleet.console() {
        terminal.note(Style::Faint, &format!("console {console} until this command ends"));
    }
    let exit = match fleet.connect().await {
        Ok(client) => {
            let conversation =
                Conversation { args, prompt, session, client, terminal, fleet_lifetime: FleetLifetime::ThisCommand };
            conversation.run(&mut interrupts).await
        }
        Err(failure) => Err(failure),
    };
    // Another Ctrl-C skips the drain: NATS redelivers unacknowledged messages at the next start.
    let _drained = interrupts.run_until_interrupted(fleet.drain()).await;
    exit
}

/// Refuses --root and --out for a running fleet: they are settings of the process that runs the tools.
fn refuse_files(args: &RunArgs, url: &str) -> Result<(), CommandFailure> {
    if args.files.root.is_none() && args.files.out.is_none() {
        return Ok(());
    }
    let message = "--root and --out belong to the fleet that runs the tools, and one runs already";
    Err(CommandFailure::usage(ErrorCode::BadRequest, message)
        .at(url)
        .help("leave them out, or start the fleet with them: `ailoop up --root DIR --out DIR`"))
}

/// Prints which model is used; as a warning if replies come from a script.
pub(super) fn note_model(terminal: &Terminal, choice: &ModelChoice) {
    let style = if choice.is_rehearsal() { Style::Warn } else { Style::Faint };
    terminal.note(style, &format!("model {}: {}", choice.model, choice.reason));
}
