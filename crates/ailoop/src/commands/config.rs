//! `ailoop config`: checks and explains the configuration of this directory, without a fleet.

use contract::ErrorCode;
use contract::command::Features;
use serde_json::{Value, json};

use super::output::finish;
use crate::args::{AgentArgs, ConfigCommand, SchemaArgs};
use crate::compose::{compose_agent, read_catalog};
use crate::config_check;
use crate::failure::{CommandFailure, Exit};
use crate::format;
use crate::schemas::ConfigFile;
use crate::terminal::{Style, Terminal};

pub(super) fn run(command: &ConfigCommand, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match command {
        ConfigCommand::Check => check_config(terminal),
        ConfigCommand::Explain(args) => explain_agent(args, terminal),
        ConfigCommand::Schema(args) => Ok(print_schema(args, terminal)),
    }
}

fn check_config(terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let report = config_check::check_config(&config_check::read_variables());
    for mistake in &report.mistakes {
        let style = if mistake.is_warning { Style::Warn } else { Style::Bad };
        terminal.note(style, &mistake.to_string());
    }
    terminal.note(Style::Faint, &format!("looked at the environment and at {}", report.files.join(", ")));
    if !report.is_usable() {
        let count = report.mistakes.iter().filter(|mistake| !mistake.is_warning).count();
        let message = format!("{} in the configuration", format::plural(count as u64, "mistake"));
        return Err(CommandFailure::new(ErrorCode::BadConfig, message).help("correct what is shown above"));
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

fn explain_agent(args: &AgentArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let composed = compose_agent(&read_catalog()?, args, Features::default())?;
    let components: Vec<Value> =
        composed.components.iter().map(|part| json!({"name": part.name, "bytes": part.bytes})).collect();
    let explanation = json!({
        "agent": composed.agent, "model": composed.model, "fallbacks": composed.fallbacks,
        "fingerprint": composed.fingerprint,
        "components": components, "warnings": composed.warnings,
    });
    let text = serde_json::to_string_pretty(&explanation).unwrap_or_default();
    Ok(finish(terminal.print_data(&format!("{text}\n"))))
}
