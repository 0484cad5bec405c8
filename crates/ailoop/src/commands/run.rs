//! `ailoop run`: one prompt to its end, with the fleet that runs, or with one of its own.

use contract::ErrorCode;

use super::converse::{Conversation, Ends};
use crate::args::RunArgs;
use crate::choose::Choice;
use crate::client;
use crate::failure::{Exit, Failure};
use crate::fleet::{Fleet, Plan, is_set};
use crate::prompt;
use crate::signals::Interrupts;
use crate::terminal::{Style, Terminal};

pub(super) async fn run(args: &RunArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let prompt = prompt::read(&args.prompt, std::io::stdin())?;
    let session = args.session.as_deref().map(client::session_id).transpose()?;
    let mut interrupts = Interrupts::listen()?;
    if let Some(fleet) = super::staying(&args.target) {
        refuse_files(args, fleet.url())?;
        if let Some(hint) = fleet.key_hint(is_set) {
            terminal.note(Style::Warn, &hint);
        }
        let client = fleet.connect(args.target.token.as_deref()).await?;
        let conversation = Conversation { args, prompt, session, client, terminal, ends: Ends::FleetGoesOn };
        return conversation.hold(&mut interrupts).await;
    }
    let Some(plan) = interrupts.unless(Plan::embedded(&args.files, args.model.clone())).await else {
        return Ok(Exit::Interrupted);
    };
    let plan = plan?;
    tell_model(terminal, plan.choice());
    let files = format!("tools read {} and write {}", plan.root().display(), plan.out().display());
    terminal.note(Style::Faint, &files);
    let Some(fleet) = interrupts.unless(Fleet::start(plan)).await else { return Ok(Exit::Interrupted) };
    let mut fleet = fleet?;
    // What it asks may be answered from another terminal.
    fleet.announce_for_one_session()?;
    let exit = match fleet.connect().await {
        Ok(client) => {
            let conversation = Conversation { args, prompt, session, client, terminal, ends: Ends::WithTheFleet };
            conversation.hold(&mut interrupts).await
        }
        Err(failure) => Err(failure),
    };
    // A further Ctrl-C leaves at once: what the fleet holds is then redelivered at its next start.
    let _drained = interrupts.unless(fleet.drain()).await;
    exit
}

/// The files that tools see are a matter of the process that runs them.
fn refuse_files(args: &RunArgs, url: &str) -> Result<(), Failure> {
    if args.files.root.is_none() && args.files.out.is_none() {
        return Ok(());
    }
    let message = "--root and --out belong to the fleet that runs the tools, and one runs already";
    Err(Failure::usage(ErrorCode::BadRequest, message)
        .at(url)
        .help("leave them out, or start the fleet with them: `ailoop up --root DIR --out DIR`"))
}

/// Says which model is used, loudly when it is none.
pub(super) fn tell_model(terminal: &Terminal, choice: &Choice) {
    let style = if choice.is_rehearsal() { Style::Warn } else { Style::Faint };
    terminal.note(style, &format!("model {}: {}", choice.model, choice.why));
}
