//! `ailoop config`: checks and explains the configuration of this directory, without a fleet.

use std::collections::BTreeSet;

use config_check::{CheckReport, ConfigFile};
use configuration::Paths;
use contract::ErrorCode;
use contract::command::Features;
use contract::settings::AgentSettings;
use prompt_composer::Explanation;
use serde_json::{Value, json};
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::table::{Table, TableCell, TableColumn};
use terminal::{Style, Terminal};

use super::config_trust::trust_directory;
use super::fleet_location::connect;
use super::lists::fetch_tools;
use crate::args::{CheckArgs, ConfigCommand, ExplainArgs, OutputArgs, SchemaArgs};
use crate::compose::{agent_request, note_untrusted, read_catalog};
use crate::output::{finish, print_table};

pub(super) async fn run(command: &ConfigCommand, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match command {
        ConfigCommand::Check(args) => check_config(args, terminal).await,
        ConfigCommand::Explain(args) => explain_agent(args, terminal),
        ConfigCommand::Schema(args) => Ok(print_schema(args, terminal)),
        ConfigCommand::Trust(args) => trust_directory(args, terminal),
    }
}

async fn check_config(args: &CheckArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let untrusted = Paths::find(None).ok().and_then(|paths| paths.untrusted);
    note_untrusted(terminal, untrusted.as_ref());
    let tools = if args.fleet { Some(fetch_tools(&connect(&args.target).await?).await?) } else { None };
    let tools = tools.map(|tools| tools.into_iter().map(|tool| tool.name.into()).collect::<BTreeSet<String>>());
    let report = config_check::check_config(tools.as_ref());
    print_mistakes(&report, terminal);
    terminal.note(Style::Faint, &format!("looked at the environment and at {}", report.files.join(", ")));
    if !report.is_usable() {
        return Err(mistakes_failure(&report).help("correct what is shown above"));
    }
    let agents = format::plural(report.agents as u64, "agent");
    Ok(finish(terminal.print_data(&format!("ok: {agents}, their prompts and the models can be used\n"))))
}

fn print_schema(args: &SchemaArgs, terminal: &Terminal) -> Exit {
    let schema = match args.file {
        Some(file) => file.schema(),
        None => ConfigFile::ALL.iter().map(|file| (file.to_string(), file.schema())).collect(),
    };
    finish(terminal.print_data(&format!("{}\n", serde_json::to_string_pretty(&schema).unwrap_or_default())))
}

/// Replaces the failure of a command that cannot use a file of the configuration by all mistakes that `ailoop config
/// check` finds, if that file has some. They are printed.
pub(super) fn explain_failure(failure: CommandFailure, terminal: &Terminal) -> CommandFailure {
    if *failure.code() != ErrorCode::BadConfig {
        return failure;
    }
    let report = config_check::check_config(None);
    let mut mistakes = report.mistakes.iter().filter(|mistake| !mistake.is_warning);
    // Other files, such as that of the contexts, have the same code.
    if !mistakes.any(|mistake| failure.message().contains(&mistake.origin)) {
        return failure;
    }
    print_mistakes(&report, terminal);
    mistakes_failure(&report)
        .help("correct what is shown above; `ailoop config check` shows it without starting anything")
}

fn print_mistakes(report: &CheckReport, terminal: &Terminal) {
    for mistake in &report.mistakes {
        let style = if mistake.is_warning { Style::Warn } else { Style::Bad };
        terminal.note(style, &mistake.to_string());
    }
}

fn mistakes_failure(report: &CheckReport) -> CommandFailure {
    let count = report.mistakes.iter().filter(|mistake| !mistake.is_warning).count();
    let message = format!("{} in the configuration", format::plural(count as u64, "mistake"));
    CommandFailure::new(ErrorCode::BadConfig, message)
}

/// The columns of settings.
const SETTINGS: [TableColumn; 3] =
    [TableColumn::name("SETTING"), TableColumn::text("VALUE"), TableColumn::name("FROM")];

fn explain_agent(args: &ExplainArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let explanation = read_catalog(terminal)?
        .explain(&agent_request(&args.agent, Features::default())?)
        .map_err(|(code, message)| CommandFailure::new(code, message))?;
    let directory = Paths::find(None)?.config;
    let directory = directory.map_or_else(|| "shipped".to_owned(), |dir| dir.display().to_string());
    if args.json {
        let text = serde_json::to_string_pretty(&explanation_json(&explanation, &directory)).unwrap_or_default();
        return Ok(finish(terminal.print_data(&format!("{text}\n"))));
    }
    let Explanation { composed, agent, model, settings } = &explanation;
    let mut table = Table::new(&SETTINGS);
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let parts = composed.components.iter().map(|part| part.name.clone()).collect::<Vec<_>>();
    let fallbacks = composed.fallbacks.iter().map(|model| model.id.clone()).collect::<Vec<_>>();
    for (name, value, origin) in [
        ("configuration", directory, ""),
        ("agent", format!("{}, {}", composed.agent.id, composed.agent.name), agent.as_str()),
        ("model", composed.model.id.clone(), model),
        ("fallbacks", list(&fallbacks), ""),
        ("prompt", list(&parts), ""),
        ("tools.allow", list(&composed.agent.tools.allow), agent),
        ("tools.deny", list(&composed.agent.tools.deny), agent),
    ] {
        table.push(vec![TableCell::from(name), TableCell::from(value), TableCell::from(origin)]);
    }
    for setting in settings {
        table.push(vec![
            TableCell::from(setting.name.as_str()),
            TableCell::from(format_value(&setting.value)),
            TableCell::new(Style::Faint, &setting.origin),
        ]);
    }
    let printed = print_table(&table, &OutputArgs::default(), terminal);
    for warning in &composed.warnings {
        terminal.note(Style::Warn, &format!("warning: {warning}"));
    }
    Ok(finish(printed))
}

/// The explanation for programs. The continuation settings have the names that files give them.
fn explanation_json(explanation: &Explanation, directory: &str) -> Value {
    let Explanation { composed, agent: agent_origin, model: model_origin, settings } = explanation;
    let components: Vec<Value> =
        composed.components.iter().map(|part| json!({"name": part.name, "bytes": part.bytes})).collect();
    let AgentSettings { id, name, continuation: _, tools, approvals } = &composed.agent;
    json!({
        "configuration": directory,
        "agent": {"id": id, "name": name, "tools": tools, "approvals": approvals, "origin": agent_origin},
        "model": composed.model, "model_origin": model_origin, "fallbacks": composed.fallbacks,
        "settings": settings,
        "fingerprint": composed.fingerprint, "components": components, "warnings": composed.warnings,
    })
}

fn format_value(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => value.to_string(),
    }
}
