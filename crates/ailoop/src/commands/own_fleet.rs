//! The fleet of a command that has a conversation: one that runs, or one that ends with the command.

use configuration::env;
use configuration::models::is_key_set;
use contract::ErrorCode;
use fleet_connection::client::EdgeClient;
use local_fleet::{FleetOptions, FleetPlan, LocalFleet};
use terminal::failure::CommandFailure;
use terminal::{Style, Terminal};

use super::fleet_location::{HTTP_ADDRESS, find_shared_fleet, http_address_hint};
use crate::args::{Files, FleetTarget};
use crate::compose::note_untrusted;
use crate::signals::Interrupts;

/// Connects to a fleet that runs, if there is one.
pub(super) async fn connect_to_shared_fleet(
    target: &FleetTarget,
    files: &Files,
    terminal: &Terminal,
) -> Result<Option<EdgeClient>, CommandFailure> {
    let Some(fleet) = find_shared_fleet(target)? else { return Ok(None) };
    refuse_files(files, fleet.url())?;
    if let Some(hint) = fleet.key_hint(is_key_set) {
        terminal.note(Style::Warn, &hint);
    }
    fleet.connect().await.map(Some)
}

/// Starts a fleet for one session; none if a signal came first.
pub(super) async fn start_own_fleet(
    files: &Files,
    model: Option<String>,
    terminal: &Terminal,
    interrupts: &mut Interrupts,
) -> Result<Option<LocalFleet>, CommandFailure> {
    let (root, out) = (files.root.clone(), files.out.clone());
    let options = FleetOptions { root, out, model, ..FleetOptions::default() };
    let Some(plan) = interrupts.run_until_interrupted(FleetPlan::for_one_command(options)).await else {
        return Ok(None);
    };
    let plan = plan?;
    if let Some(hint) = http_address_hint(env(HTTP_ADDRESS).as_deref()) {
        terminal.note(Style::Warn, &format!("no fleet was found, so this command starts its own; {hint}"));
    }
    note_plan(terminal, &plan);
    let files = format!("tools read {} and write {}", plan.root.display(), plan.out.display());
    terminal.note(Style::Faint, &files);
    let Some(fleet) = interrupts.run_until_interrupted(LocalFleet::start(plan)).await else { return Ok(None) };
    let mut fleet = fleet?;
    // Other terminals find the fleet by its run file, and can answer the gates of the session.
    fleet.announce_for_one_session()?;
    if let Some(console) = fleet.console() {
        terminal.note(Style::Faint, &format!("console {console} until this command ends"));
    }
    Ok(Some(fleet))
}

/// Refuses --root and --out for a running fleet: they are settings of the process that runs the tools.
fn refuse_files(files: &Files, url: &str) -> Result<(), CommandFailure> {
    if files.root.is_none() && files.out.is_none() {
        return Ok(());
    }
    let message = "--root and --out belong to the fleet that runs the tools, and one runs already";
    Err(CommandFailure::usage(ErrorCode::BadRequest, message)
        .at(url)
        .help("leave them out, or start the fleet with them: `ailoop up --root DIR --out DIR`"))
}

/// Prints whether the configuration of this directory is left out, and which model is used; as a warning if replies
/// come from a script that nobody asked for.
pub(super) fn note_plan(terminal: &Terminal, plan: &FleetPlan) {
    note_untrusted(terminal, plan.untrusted.as_ref());
    let choice = &plan.choice;
    let style = if choice.is_rehearsal() && !choice.is_requested() { Style::Warn } else { Style::Faint };
    terminal.note(style, &format!("model {}: {}", choice.model, choice.reason));
}
