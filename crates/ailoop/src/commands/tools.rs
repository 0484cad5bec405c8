//! `ailoop tools`: the list and the description come from the fleet; trying, watching and verifying speak to NATS itself.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::time::Duration;

use bus::{Bus, BusError, SubscriptionEvent};
use contract::tool::{ASK_USER, DELEGATE, EffectClass};
use contract::{ErrorCode, Json, TenantId, ToolName, subject};
use futures::StreamExt as _;
use loop_orchestrator::{Clock as _, SystemClock};
use service::suggest::did_you_mean;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tool_schema::Schema;
use uuid::Uuid;

use super::lists;
use crate::args::{
    NatsTarget, ToolsArgs, ToolsCommand, ToolsDescribeArgs, ToolsTryArgs, ToolsVerifyArgs, ToolsWatchArgs,
};
use crate::failure::{Exit, Failure};
use crate::figures;
use crate::prompt;
use crate::signals::Interrupts;
use crate::terminal::{Style, Terminal};
use crate::tools::ask::{Asker, Exchange};
use crate::tools::call::{Call, Caller};
use crate::tools::describe;
use crate::tools::reply::{Reply, Wrong};
use crate::tools::verify::{examine, holds, show};
use crate::tools::watch::{Board, Line};

/// How long an answer is waited for by `verify`, whatever the tool says; a tool that is slow on purpose is told with `--timeout`.
const VERIFY_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a tool that was cancelled may take to say so.
const CANCEL_WAIT: Duration = Duration::from_secs(1);
/// How often `watch` looks at the catalogue.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn tools(args: &ToolsArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    match &args.command {
        None => lists::tools(args, terminal).await,
        Some(ToolsCommand::Describe(args)) => described(args, terminal).await,
        Some(ToolsCommand::Try(args)) => {
            let bus = connect(&args.nats).await?;
            let tried = tried(&bus, args, terminal).await;
            bus.close().await;
            tried
        }
        Some(ToolsCommand::Watch(args)) => {
            let bus = connect(&args.nats).await?;
            let watched = watched(&bus, args, terminal).await;
            bus.close().await;
            watched
        }
        Some(ToolsCommand::Verify(args)) => {
            let bus = connect(&args.nats).await?;
            let verified = verified(&bus, args, terminal).await;
            bus.close().await;
            verified
        }
    }
}

async fn connect(target: &NatsTarget) -> Result<Bus, Failure> {
    let nats = super::nats(target.nats.as_ref())?;
    Bus::connect(&nats).await.map_err(|error| Failure::from(error).at(&nats.url))
}

async fn described(args: &ToolsDescribeArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let known = lists::known_tools(&args.target).await?;
    let Some(tool) = known.iter().find(|tool| tool.name == args.tool) else {
        let names: Vec<&str> = known.iter().map(|tool| tool.name.as_str()).collect();
        let suggestion = did_you_mean(&args.tool, names.iter().copied());
        let message = format!("no tool is called {:?}{suggestion}", args.tool);
        let failure = Failure::new(ErrorCode::UnknownTool, message);
        let help =
            format!("there are: {}; of one that runs `ailoop tools verify` says what is wrong", names.join(", "));
        return Err(failure.help(help));
    };
    let text = if args.json { format!("{}\n", describe::json(tool)) } else { describe::text(tool) };
    Ok(super::finish(terminal.data(&text)))
}

async fn tried(bus: &Bus, args: &ToolsTryArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let arguments = arguments(&args.args)?;
    let mut interrupts = Interrupts::listen()?;
    let asker = asker(bus, &args.nats, &args.tool)?;
    let found = asker.find().await?.replicas;
    if let Some(reason) = found.iter().find_map(|replica| replica.said.as_ref().err()) {
        terminal.note(Style::Warn, &format!("warning: no executor takes this tool: {reason}"));
    }
    let spec = found.into_iter().find_map(|replica| replica.said.ok());
    let takes_effect = spec.as_ref().is_none_or(|spec| spec.effect.takes_effect());
    if let (Some(spec), false) = (&spec, args.unchecked) {
        let fits = Schema::compile(&spec.parameters).and_then(|schema| schema.check(&arguments));
        let unfit = |reason| Failure::usage(ErrorCode::InvalidArguments, reason);
        fits.map_err(|reason| {
            unfit(reason).help("`ailoop tools describe` shows the schema; --unchecked sends them anyway")
        })?;
    }
    let within = args.timeout.or(spec.as_ref().map(contract::tool::ToolSpec::timeout));
    let within = within.unwrap_or(contract::limits::TOOL_TIMEOUT_DEFAULT);
    let mut caller = Caller::new(&args.agent, Uuid::now_v7());
    let call = caller.call(arguments.get().to_owned(), SystemClock.now().after(within));
    let mut exchange = asker.call(&call).await?;
    match interrupts.unless(answer(&mut exchange, within, terminal)).await {
        Some(Some(Ok(result))) => {
            let line = if result.ends_with('\n') { result } else { format!("{result}\n") };
            Ok(super::finish(terminal.data(&line)))
        }
        Some(Some(Err(wrong))) if wrong.unknown => {
            let told = format!("nobody knows whether it took effect: {}", wrong.text);
            Err(Failure::new(ErrorCode::ToolError, told).at(asker.subject()).help("find out before calling again"))
        }
        Some(Some(Err(wrong))) => Err(Failure::new(ErrorCode::ToolError, wrong.text).at(asker.subject())),
        Some(None) if exchange.seen.nobody => {
            let failure = Failure::new(ErrorCode::NoToolAvailable, format!("nobody serves {}", args.tool));
            Err(failure
                .at(asker.subject())
                .help("is it running, on this NATS, and for this tenant? `ailoop tools` lists what is"))
        }
        Some(None) => {
            give_up(&asker, &call, &mut exchange).await?;
            let time = figures::duration(exchange.seen.waited.min(within));
            let mut text = format!("no answer within {time}: the tool was told that nobody waits any more");
            if takes_effect {
                text += "; nobody knows whether it took effect";
            }
            terminal.note(Style::Bad, &text);
            Ok(Exit::Limit)
        }
        None => {
            give_up(&asker, &call, &mut exchange).await?;
            let doubt = if takes_effect { "; it may have taken effect" } else { "" };
            terminal.note(Style::Warn, &format!("cancelled: the tool was told{doubt}"));
            Ok(Exit::Interrupted)
        }
    }
}

/// The final reply; progress is shown as it comes.
async fn answer(exchange: &mut Exchange, within: Duration, terminal: &Terminal) -> Option<Result<String, Wrong>> {
    let end = Instant::now() + within;
    loop {
        match exchange.next(end).await? {
            Reply::Progress(progress) => terminal.note(Style::Faint, &format!("  {}", progress.text)),
            Reply::Final(answer) if answer.outcome.is_ok() && !answer.is_text => {
                let text = format!("the tool answered with {} bytes that are not UTF-8 text", answer.bytes);
                return Some(Err(Wrong { text, unknown: false }));
            }
            Reply::Final(answer) => return Some(answer.outcome),
        }
    }
}

/// Tells the tool, and hears what it makes of it.
async fn give_up(asker: &Asker<'_>, call: &Call, exchange: &mut Exchange) -> Result<(), BusError> {
    asker.cancel(call.cancel()).await?;
    exchange.next(Instant::now() + CANCEL_WAIT).await;
    Ok(())
}

async fn watched(bus: &Bus, args: &ToolsWatchArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let (tenant, only) = (super::tenant(&args.nats.tenant)?, args.tool.as_deref().map(tool).transpose()?);
    let mut board = Board::new(only);
    let mut calls = bus.listen(&subject::tool_calls_of(&tenant), None).await?;
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let print = |line: &Line| {
        let text = if args.json { line.json.to_string() } else { line.text.clone() };
        terminal.data(&format!("{text}\n"))
    };
    loop {
        let next = async {
            tokio::select! {
                _ = look.tick() => Ok(look_at(bus, &tenant, &mut board).await?),
                heard = calls.next() => match heard {
                    Some(SubscriptionEvent::Message(message)) => Ok(board.event(&message).into_iter().collect()),
                    Some(SubscriptionEvent::Gap) => {
                        terminal.note(Style::Warn, "the connection was lost: calls may be missing here");
                        Ok(Vec::new())
                    }
                    None => Err(Failure::new(ErrorCode::NatsUnreachable, "the connection is closed")),
                },
            }
        };
        let Some(lines) = interrupts.unless(next).await else { return Ok(Exit::Interrupted) };
        if lines?.iter().any(|line| print(line).is_err()) {
            return Ok(Exit::Done);
        }
    }
}

async fn look_at(bus: &Bus, tenant: &TenantId, board: &mut Board) -> Result<Vec<Line>, BusError> {
    match bus.tools(tenant).await {
        Ok(specs) => Ok(board.catalogue(SystemClock.now(), specs)),
        // Seen at the next look, as soon as there is a server again.
        Err(error) if !error.is_final() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn verified(bus: &Bus, args: &ToolsVerifyArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let given = args.args.as_deref().map(arguments).transpose()?;
    let asker = asker(bus, &args.nats, &args.tool)?;
    let (mut checks, subject) = examine::described(&asker).await?;
    if let Some(subject) = subject {
        let within = args.timeout.unwrap_or(subject.spec.timeout().min(VERIFY_WAIT_MAX));
        let wish = examine::Wish { arguments: given, within };
        let arguments = examine::arguments(&subject, &wish).map_err(|reason| {
            let failure = Failure::usage(ErrorCode::InvalidArguments, reason);
            failure.help("pass arguments that fit, as --args '{…}'; `ailoop tools describe` shows the schema")
        })?;
        if !may_call(args, subject.spec.effect, &arguments, terminal)? {
            return Ok(Exit::Usage);
        }
        let caller = Caller::new("try", Uuid::now_v7());
        checks.extend(examine::called(&asker, &subject, &arguments, &wish, caller, || SystemClock.now()).await?);
    }
    let text = if args.json { format!("{}\n", show::json(&args.tool, &checks)) } else { show::text(&checks) };
    let exit = super::finish(terminal.data(&text));
    Ok(if holds(&checks) { exit } else { Exit::Failed })
}

/// Whether calls may take effect: `--yes`, or a person says so.
fn may_call(
    args: &ToolsVerifyArgs,
    effect: EffectClass,
    arguments: &Json,
    terminal: &Terminal,
) -> Result<bool, Failure> {
    let times = examine::effects(effect);
    if times == 0 || args.yes {
        return Ok(true);
    }
    let (tool, word) = (&args.tool, describe::word(effect));
    let warning =
        format!("{tool} is {word}: its calls are real, and take effect {times} times with {}", arguments.get());
    if !io::stdin().is_terminal() {
        let failure = Failure::usage(ErrorCode::BadRequest, warning);
        return Err(failure.help("pass --yes where that is fine, and --args for what should happen"));
    }
    terminal.note(Style::Warn, &format!("{warning}. Go on? [y/N]"));
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Failure::usage(ErrorCode::BadRequest, format!("stdin cannot be read: {error}")))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

fn asker<'a>(bus: &'a Bus, target: &NatsTarget, name: &str) -> Result<Asker<'a>, Failure> {
    if [DELEGATE, ASK_USER].contains(&name) {
        let message = format!("{name} cannot be called by itself: the loop performs it, as a part of a session");
        return Err(Failure::usage(ErrorCode::BadRequest, message)
            .help("let an agent use it in a session: `ailoop run`; `ailoop tools describe` shows its schema"));
    }
    Ok(Asker::new(bus, super::tenant(&target.tenant)?, tool(name)?))
}

fn tool(name: &str) -> Result<ToolName, Failure> {
    ToolName::new(name).map_err(|error| Failure::usage(ErrorCode::BadRequest, error.to_string()))
}

/// A JSON object, `@file`, or `-` for stdin.
fn arguments(text: &str) -> Result<Json, Failure> {
    let unread = |error: io::Error| Failure::usage(ErrorCode::BadRequest, format!("{text} cannot be read: {error}"));
    let read = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).map_err(unread)?,
        None => prompt::read(text, io::stdin())?,
    };
    let wrong = |error| Failure::usage(ErrorCode::InvalidArguments, format!("the arguments are not JSON: {error}"));
    Json::parse(read.trim()).map_err(wrong)
}
