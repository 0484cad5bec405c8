//! `ailoop up`: the whole fleet in this process, until it is told to end.

use std::fmt::Write as _;
use std::path::Path;

use super::run::tell_model;
use crate::args::UpArgs;
use crate::failure::{Exit, Failure};
use crate::fleet::{Fleet, Plan};
use crate::instance::RunFile;
use crate::signals::Interrupts;
use crate::terminal::{Style, Terminal};

pub(super) async fn up(args: &UpArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let Some(plan) = interrupts.unless(Plan::up(args)).await else { return Ok(Exit::Interrupted) };
    let plan = plan?;
    tell_model(terminal, plan.choice());
    let rest = plan.clone();
    let Some(fleet) = interrupts.unless(Fleet::start(plan)).await else { return Ok(Exit::Interrupted) };
    let mut fleet = fleet?;
    fleet.announce()?;
    let shown = terminal.data(&block(fleet.addresses(), &rest));
    let ended = match shown {
        Ok(()) => interrupts.unless(fleet.broken()).await,
        Err(_unread) => None,
    };
    terminal.note(Style::Faint, "ending; a second Ctrl-C ends at once");
    let drained = interrupts.unless(fleet.drain()).await;
    match (ended, drained) {
        (Some(failure), _) => Err(failure),
        (None, Some(())) => Ok(Exit::Done),
        (None, None) => Ok(Exit::Interrupted),
    }
}

/// Where everything is: always the same lines, so that scripts may read them.
fn block(run: &RunFile, plan: &Plan) -> String {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    let data = plan.data().map_or_else(|| "in that nats-server".to_owned(), |dir| absolute(&dir));
    let mut text = format!("ailoop {} is up\n", run.version);
    for (name, value) in [
        ("WebSocket", run.ws.as_str()),
        ("gRPC", &run.grpc),
        ("NATS", &run.nats),
        ("data", &data),
        ("model", &plan.choice().model),
        ("tools read", &absolute(plan.root())),
        ("tools write", &absolute(plan.out())),
    ] {
        let _ = writeln!(text, "  {name:<12} {value}");
    }
    text + "Ctrl-C ends it.\n"
}
