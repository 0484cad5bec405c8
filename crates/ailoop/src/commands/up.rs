//! `ailoop up`: runs the whole fleet in this process until a signal ends it.

use std::fmt::Write as _;
use std::path::Path;

use ailoop_client::RunFile;
use fleet_connection::local_credentials::CredentialSource;
use local_fleet::{FleetOptions, FleetPlan, ListenOverrides, LocalFleet};
use nats_credentials::hide_login;
use terminal::failure::{CommandFailure, Exit};
use terminal::{Style, Terminal};

use super::own_fleet::note_plan;
use crate::args::UpArgs;
use crate::signals::Interrupts;

pub(super) async fn run_fleet(args: &UpArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let mut interrupts = Interrupts::listen()?;
    let Some(plan) = interrupts.run_until_interrupted(FleetPlan::for_up(fleet_options(args))).await else {
        return Ok(Exit::Interrupted);
    };
    let plan = plan?;
    note_plan(terminal, &plan);
    let started_plan = plan.clone();
    let Some(fleet) = interrupts.run_until_interrupted(LocalFleet::start(plan)).await else {
        return Ok(Exit::Interrupted);
    };
    let mut fleet = fleet?;
    fleet.announce()?;
    let printed = terminal.print_data(&format_addresses(fleet.addresses(), fleet.console(), &started_plan));
    let failure = match printed {
        Ok(()) => interrupts.run_until_interrupted(fleet.wait_for_failure()).await,
        Err(_closed) => None,
    };
    terminal.note(Style::Faint, "ending; a second Ctrl-C ends at once");
    let drained = interrupts.run_until_interrupted(fleet.drain()).await;
    match (failure, drained) {
        (Some(failure), _) => Err(failure),
        (None, Some(())) => Ok(Exit::Done),
        (None, None) => Ok(Exit::Interrupted),
    }
}

/// Returns the choices of the command line.
fn fleet_options(args: &UpArgs) -> FleetOptions {
    FleetOptions {
        root: args.files.root.clone(),
        out: args.files.out.clone(),
        model: args.model.clone(),
        nats: args.nats.clone(),
        nats_port: args.nats_port,
        listen: ListenOverrides { host: args.host, ws: args.ws_port, grpc: args.grpc_port },
        credentials: match (args.no_credentials, args.new_token) {
            (true, _) => CredentialSource::None,
            (false, true) => CredentialSource::New,
            (false, false) => CredentialSource::Kept,
        },
    }
}

/// Formats the addresses and directories of the fleet. The lines are always the same, so that scripts can read them.
fn format_addresses(run: &RunFile, console: Option<&str>, plan: &FleetPlan) -> String {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    let data = plan.data().map_or_else(|| "in that nats-server".to_owned(), |dir| absolute(&dir));
    let mut text = format!("ailoop {} is up\n", run.version);
    for (name, value) in [
        ("WebSocket", run.ws.as_str()),
        ("gRPC", &run.grpc),
        ("console", console.unwrap_or("off")),
        ("NATS", &hide_login(&run.nats)),
        ("data", &data),
        ("model", &plan.choice.model),
        ("tools read", &absolute(&plan.root)),
        ("tools write", &absolute(&plan.out)),
    ] {
        let _ = writeln!(text, "  {name:<12} {value}");
    }
    if let Some(token) = &run.token {
        let _ = writeln!(text, "For programs that do not read .ailoop/run.json:");
        let _ = writeln!(text, "  export AILOOP_URL={} AILOOP_API_KEY={token}", run.http);
    }
    text + "Ctrl-C ends it.\n"
}
