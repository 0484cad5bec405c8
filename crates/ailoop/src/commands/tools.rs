//! `ailoop tools`. Listing and describing ask the fleet; `try`, `watch` and `verify` use NATS directly.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::time::Duration;

use bus::{Bus, BusError, SubscriptionEvent};
use configuration::suggest::did_you_mean;
use contract::tool::{ASK_USER, DELEGATE, EffectClass};
use contract::{ErrorCode, Json, TenantId, ToolName, subject};
use futures::StreamExt as _;
use loop_orchestrator::{Clock as _, SystemClock};
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::text_argument;
use terminal::{Style, Terminal};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tool_schema::Schema;
use tool_trial::activity::{ActivityLine, ActivityTracker};
use tool_trial::describe;
use tool_trial::tool_client::{CallExchange, ToolClient};
use tool_trial::tool_reply::{ToolReply, TrialError};
use tool_trial::trial_call::{TrialCall, TrialCaller};
use tool_trial::verify::{examine, has_passed, show};
use uuid::Uuid;

use super::fleet_location::{connect, nats_config, with_bus};
use super::lists;
use crate::args::{
    NatsTarget, ToolsArgs, ToolsCommand, ToolsDescribeArgs, ToolsTryArgs, ToolsVerifyArgs, ToolsWatchArgs,
};
use crate::compose::parse_tenant;
use crate::output::finish;
use crate::signals::Interrupts;

/// Longest wait of `verify` for an answer, whatever the timeout of the tool; `--timeout` overrides it.
const VERIFY_TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// Longest wait for the answer to a cancellation.
const CANCEL_WAIT: Duration = Duration::from_secs(1);
/// Interval at which `watch` reads the catalogue.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &ToolsArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match &args.command {
        None => lists::list_tools(args, terminal).await,
        Some(ToolsCommand::New(args)) => super::init::write_tool(args, terminal),
        Some(ToolsCommand::Describe(args)) => describe_tool(args, terminal).await,
        Some(ToolsCommand::Try(args)) => {
            with_bus(&nats_config(&args.nats.nats)?, async |bus| try_tool(bus, args, terminal).await).await
        }
        Some(ToolsCommand::Watch(args)) => {
            with_bus(&nats_config(&args.nats.nats)?, async |bus| watch_tools(bus, args, terminal).await).await
        }
        Some(ToolsCommand::Verify(args)) => {
            with_bus(&nats_config(&args.nats.nats)?, async |bus| verify_tool(bus, args, terminal).await).await
        }
    }
}

async fn describe_tool(args: &ToolsDescribeArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let known = lists::fetch_tools(&connect(&args.target).await?).await?;
    let Some(tool) = known.iter().find(|tool| tool.name.as_str() == args.tool) else {
        let names: Vec<&str> = known.iter().map(|tool| tool.name.as_str()).collect();
        let suggestion = did_you_mean(&args.tool, names.iter().copied());
        let message = format!("there is no tool {:?}{suggestion}", args.tool);
        let failure = CommandFailure::new(ErrorCode::UnknownTool, message);
        let help = format!(
            "the tools are {}; `ailoop tools verify` says why a running tool is not among them",
            names.join(", ")
        );
        return Err(failure.help(help));
    };
    let text = if args.json { format!("{}\n", describe::to_json(tool)) } else { describe::to_text(tool) };
    Ok(finish(terminal.print_data(&text)))
}

async fn try_tool(bus: &Bus, args: &ToolsTryArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let arguments = read_arguments(&args.args)?;
    let mut interrupts = Interrupts::listen()?;
    let client = make_client(bus, &args.nats, &args.tool)?;
    let replicas = client.find_replicas().await?.replicas;
    if let Some(reason) = replicas.iter().find_map(|replica| replica.spec.as_ref().err()) {
        terminal.note(Style::Warn, &format!("warning: executors refuse this tool: {reason}"));
    }
    let spec = replicas.into_iter().find_map(|replica| replica.spec.ok());
    let takes_effect = spec.as_ref().is_none_or(|spec| spec.effect.takes_effect());
    if let (Some(spec), false) = (&spec, args.unchecked) {
        let checked = Schema::compile(&spec.parameters).and_then(|schema| schema.check(&arguments));
        let refuse = |reason| CommandFailure::usage(ErrorCode::InvalidArguments, reason);
        checked.map_err(|reason| {
            refuse(reason).help("`ailoop tools describe` shows the schema; --unchecked sends them anyway")
        })?;
    }
    let timeout = args.timeout.or(spec.as_ref().map(contract::tool::ToolSpec::timeout));
    let timeout = timeout.unwrap_or(contract::limits::TOOL_TIMEOUT_DEFAULT);
    let mut caller = TrialCaller::new(&args.agent, Uuid::now_v7());
    let call = caller.make_call(arguments.get().to_owned(), SystemClock.now().after(timeout));
    let mut exchange = client.call(&call).await?;
    match interrupts.run_until_interrupted(wait_for_answer(&mut exchange, timeout, terminal)).await {
        Some(Some(Ok(result))) => {
            let line = if result.ends_with('\n') { result } else { format!("{result}\n") };
            Ok(finish(terminal.print_data(&line)))
        }
        Some(Some(Err(error))) if error.is_unknown => {
            let message = format!("it is unknown whether the call took effect: {}", error.text);
            Err(CommandFailure::new(ErrorCode::ToolError, message)
                .at(client.subject())
                .help("find out before you call it again"))
        }
        Some(Some(Err(error))) => Err(CommandFailure::new(ErrorCode::ToolError, error.text).at(client.subject())),
        Some(None) if exchange.record.has_no_subscriber => {
            let failure = CommandFailure::new(ErrorCode::NoToolAvailable, format!("no process serves {}", args.tool));
            Err(failure
                .at(client.subject())
                .help("is it running, on this NATS, and for this tenant? `ailoop tools` lists the known tools"))
        }
        Some(None) => {
            cancel_call(&client, &call, &mut exchange).await?;
            let time = format::duration(exchange.record.waited.min(timeout));
            let mut text = format!("no answer within {time}; the call was cancelled");
            if takes_effect {
                text += "; it is unknown whether it took effect";
            }
            terminal.note(Style::Bad, &text);
            Ok(Exit::Limit)
        }
        None => {
            cancel_call(&client, &call, &mut exchange).await?;
            let doubt = if takes_effect { "; it may have taken effect" } else { "" };
            terminal.note(Style::Warn, &format!("cancelled{doubt}"));
            Ok(Exit::Interrupted)
        }
    }
}

/// Waits for the final reply, and prints progress.
async fn wait_for_answer(
    exchange: &mut CallExchange,
    timeout: Duration,
    terminal: &Terminal,
) -> Option<Result<String, TrialError>> {
    let end = Instant::now() + timeout;
    loop {
        match exchange.next(end).await? {
            ToolReply::Progress(progress) => terminal.note(Style::Faint, &format!("  {}", progress.text)),
            ToolReply::Final(answer) if answer.outcome.is_ok() && !answer.is_text => {
                let text = format!("the tool answered with {} bytes that are not UTF-8 text", answer.bytes);
                return Some(Err(TrialError { text, is_unknown: false }));
            }
            ToolReply::Final(answer) => return Some(answer.outcome),
        }
    }
}

/// Cancels a call, and waits briefly for the answer of the tool.
async fn cancel_call(client: &ToolClient<'_>, call: &TrialCall, exchange: &mut CallExchange) -> Result<(), BusError> {
    client.cancel(call.cancel_headers()).await?;
    exchange.next(Instant::now() + CANCEL_WAIT).await;
    Ok(())
}

async fn watch_tools(bus: &Bus, args: &ToolsWatchArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let mut interrupts = Interrupts::listen()?;
    let (tenant, only) = (parse_tenant(&args.nats.tenant)?, args.tool.as_deref().map(parse_tool_name).transpose()?);
    let mut tracker = ActivityTracker::new(only);
    let mut calls = bus.listen(&subject::tool_calls_of(&tenant), None).await?;
    let mut poll = interval(POLL_INTERVAL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let print = |line: &ActivityLine| {
        let text = if args.json { line.json.to_string() } else { line.text.clone() };
        terminal.print_data(&format!("{text}\n"))
    };
    loop {
        let next = async {
            tokio::select! {
                _ = poll.tick() => Ok(poll_catalogue(bus, &tenant, &mut tracker).await?),
                received = calls.next() => match received {
                    Some(SubscriptionEvent::Message(message)) => Ok(tracker.format_event(&message).into_iter().collect()),
                    Some(SubscriptionEvent::Gap) => {
                        terminal.note(Style::Warn, "the connection was lost: calls may be missing here");
                        Ok(Vec::new())
                    }
                    None => Err(CommandFailure::new(ErrorCode::NatsUnreachable, "the connection is closed")),
                },
            }
        };
        let Some(lines) = interrupts.run_until_interrupted(next).await else { return Ok(Exit::Interrupted) };
        if lines?.iter().any(|line| print(line).is_err()) {
            return Ok(Exit::Done);
        }
    }
}

async fn poll_catalogue(
    bus: &Bus,
    tenant: &TenantId,
    tracker: &mut ActivityTracker,
) -> Result<Vec<ActivityLine>, BusError> {
    match bus.tools(tenant).await {
        Ok(specs) => Ok(tracker.update_catalogue(SystemClock.now(), specs)),
        // A temporary failure: the next poll reads the catalogue.
        Err(error) if !error.is_final() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn verify_tool(bus: &Bus, args: &ToolsVerifyArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let passed_arguments = args.args.as_deref().map(read_arguments).transpose()?;
    let client = make_client(bus, &args.nats, &args.tool)?;
    let (mut checks, tool) = examine::check_description(&client).await?;
    if let Some(tool) = tool {
        let timeout = args.timeout.unwrap_or(tool.spec.timeout().min(VERIFY_TIMEOUT_MAX));
        let options = examine::CallOptions { arguments: passed_arguments, timeout };
        let arguments = examine::choose_arguments(&tool, &options).map_err(|reason| {
            let failure = CommandFailure::usage(ErrorCode::InvalidArguments, reason);
            failure.help("pass valid arguments, as --args '{…}'; `ailoop tools describe` shows the schema")
        })?;
        if !is_call_allowed(args, tool.spec.effect, &arguments, terminal)? {
            return Ok(Exit::Usage);
        }
        let caller = TrialCaller::new("try", Uuid::now_v7());
        checks.extend(examine::check_calls(&client, &tool, &arguments, &options, caller, || SystemClock.now()).await?);
    }
    let text = if args.json { format!("{}\n", show::to_json(&args.tool, &checks)) } else { show::to_text(&checks) };
    let exit = finish(terminal.print_data(&text));
    Ok(if has_passed(&checks) { exit } else { Exit::Failed })
}

/// Whether calls may take effect, by `--yes` or by a person at the terminal.
fn is_call_allowed(
    args: &ToolsVerifyArgs,
    effect: EffectClass,
    arguments: &Json,
    terminal: &Terminal,
) -> Result<bool, CommandFailure> {
    let times = examine::count_effects(effect);
    if times == 0 || args.yes {
        return Ok(true);
    }
    let tool = &args.tool;
    let warning =
        format!("{tool} is {effect}: its calls are real, and take effect {times} times with {}", arguments.get());
    if !io::stdin().is_terminal() {
        let failure = CommandFailure::usage(ErrorCode::BadRequest, warning);
        return Err(failure.help("pass --yes to allow this, and --args for suitable arguments"));
    }
    terminal.note(Style::Warn, &format!("{warning}. Go on? [y/N]"));
    let mut line = String::new();
    let result = io::stdin().lock().read_line(&mut line);
    result.map_err(|error| CommandFailure::usage(ErrorCode::BadRequest, format!("stdin cannot be read: {error}")))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

fn make_client<'a>(bus: &'a Bus, target: &NatsTarget, name: &str) -> Result<ToolClient<'a>, CommandFailure> {
    if [DELEGATE, ASK_USER].contains(&name) {
        let message = format!("{name} cannot be called alone: the loop performs it, as a part of a session");
        return Err(CommandFailure::usage(ErrorCode::BadRequest, message)
            .help("let an agent use it in a session: `ailoop run`; `ailoop tools describe` shows its schema"));
    }
    Ok(ToolClient::new(bus, parse_tenant(&target.tenant)?, parse_tool_name(name)?))
}

fn parse_tool_name(name: &str) -> Result<ToolName, CommandFailure> {
    ToolName::new(name).map_err(|error| CommandFailure::usage(ErrorCode::BadRequest, error.to_string()))
}

/// Reads arguments: a JSON object, `@file`, or `-` for stdin.
fn read_arguments(text: &str) -> Result<Json, CommandFailure> {
    let read_failure =
        |error: io::Error| CommandFailure::usage(ErrorCode::BadRequest, format!("{text} cannot be read: {error}"));
    let read = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).map_err(read_failure)?,
        None => text_argument::read_text(text, io::stdin())?,
    };
    let wrong =
        |error| CommandFailure::usage(ErrorCode::InvalidArguments, format!("the arguments are not JSON: {error}"));
    Json::parse(read.trim()).map_err(wrong)
}
