//! What needs no fleet: the configuration on this disk, and what would be made of it.

use std::path::Path;

use contract::ErrorCode;
use contract::command::Features;
use contract::compose::{ComposeReply, Composed};
use contract::event::StopReason;
use contract::ids::AgentId;
use contract::model::{FinishReason, SignalForm, ToolCall};
use contract::settings::ContinuationSettings;
use prompt_composer::Catalog;
use reply::Patterns;
use serde::Deserialize;
use serde_json::{Value, json};
use session::continuation::{ContinuationVerdict, Facts, decide};

use crate::args::{AgentArgs, ConfigCommand, PatternsTestArgs, PromptCommand, PromptShowArgs, SchemaArgs};
use crate::choose::REHEARSAL;
use crate::config_check;
use crate::failure::{Exit, Failure};
use crate::figures;
use crate::schemas::ConfigFile;
use crate::terminal::{Style, Terminal};

/// An agent's id, and the settings that its sessions begin with.
pub(super) fn settings(of: &AgentArgs) -> Result<(String, ContinuationSettings), Failure> {
    let composed = compose(&catalog()?, of, Features::default())?;
    Ok((composed.agent.id.to_string(), composed.agent.continuation))
}

/// `ailoop config`
pub(super) fn config(command: &ConfigCommand, terminal: &Terminal) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Check => check(terminal),
        ConfigCommand::Explain(args) => explain(args, terminal),
        ConfigCommand::Schema(args) => Ok(schema(args, terminal)),
    }
}

/// `ailoop prompt`
pub(super) fn prompt(command: &PromptCommand, terminal: &Terminal) -> Result<Exit, Failure> {
    match command {
        PromptCommand::Show(args) => show(args, terminal),
    }
}

fn catalog() -> Result<Catalog, Failure> {
    let bad = |error: service::ConfigError| Failure::new(error.code(), error.to_string());
    let mut config: prompt_composer::ComposerConfig = service::config::load("composer").map_err(bad)?;
    let catalog = Catalog::read(&config).map_err(bad)?;
    if catalog.has_default_model() {
        return Ok(catalog);
    }
    // Whoever only looks at prompts needs no model.
    config.default_model = Some(REHEARSAL.to_owned());
    Catalog::read(&config).map_err(bad)
}

fn agent_id(name: Option<&str>) -> Result<Option<AgentId>, Failure> {
    let parse = |name: &str| {
        AgentId::new(&name.to_lowercase()).map_err(|error| Failure::usage(ErrorCode::UnknownAgent, error.to_string()))
    };
    name.map(parse).transpose()
}

fn compose(catalog: &Catalog, of: &AgentArgs, features: Features) -> Result<Composed, Failure> {
    let request =
        super::compose_request(super::tenant(&of.tenant)?, agent_id(of.agent.as_deref())?, of.model.clone(), features);
    match catalog.compose(&request) {
        ComposeReply::Composed(composed) => Ok(*composed),
        ComposeReply::Refused { code, message } => Err(Failure::new(code, message)),
    }
}

fn check(terminal: &Terminal) -> Result<Exit, Failure> {
    let report = config_check::check(&config_check::variables());
    for mistake in &report.mistakes {
        let style = if mistake.is_warning { Style::Warn } else { Style::Bad };
        terminal.note(style, &mistake.to_string());
    }
    terminal.note(Style::Faint, &format!("looked at the environment and at {}", report.files.join(", ")));
    if !report.is_good() {
        let count = report.mistakes.iter().filter(|mistake| !mistake.is_warning).count();
        let message = format!("{} in the configuration", figures::plural(count as u64, "mistake"));
        return Err(Failure::new(ErrorCode::BadConfig, message).help("correct what is shown above"));
    }
    let agents = report.agents;
    Ok(super::finish(terminal.data(&format!("ok: {agents} agents, their prompts and the models can be used\n"))))
}

fn schema(args: &SchemaArgs, terminal: &Terminal) -> Exit {
    let told = match args.file {
        Some(file) => file.schema(),
        None => ConfigFile::ALL.iter().map(|file| (file.to_string(), file.schema())).collect(),
    };
    super::finish(terminal.data(&format!("{}\n", serde_json::to_string_pretty(&told).unwrap_or_default())))
}

fn explain(args: &AgentArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let composed = compose(&catalog()?, args, Features::default())?;
    let parts: Vec<Value> =
        composed.components.iter().map(|part| json!({"name": part.name, "bytes": part.bytes})).collect();
    let told = json!({
        "agent": composed.agent, "model": composed.model, "fallbacks": composed.fallbacks,
        "fingerprint": composed.fingerprint,
        "components": parts, "warnings": composed.warnings,
    });
    let text = serde_json::to_string_pretty(&told).unwrap_or_default();
    Ok(super::finish(terminal.data(&format!("{text}\n"))))
}

fn show(args: &PromptShowArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let catalog = catalog()?;
    let features = Features { enable: args.feature.clone(), disable: args.without.clone() };
    let composed = compose(&catalog, &args.agent, features)?;
    for warning in &composed.warnings {
        terminal.note(Style::Warn, &format!("warning: {warning}"));
    }
    if !args.diff {
        let told = format!("{} bytes, fingerprint {}", composed.prompt.len(), composed.fingerprint);
        terminal.note(Style::Plain, &told);
        return Ok(super::finish(terminal.data(&format!("{}\n", composed.prompt.trim_end()))));
    }
    let usual = compose(&catalog, &args.agent, Features::default())?;
    Ok(super::finish(terminal.data(&difference(&usual.prompt, &composed.prompt))))
}

/// Lines that only one of two texts has, with a sign before them. Prompts are made of blocks that come and go whole.
fn difference(before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    // Lengths of the longest common part from each pair of lines on.
    let mut common = vec![vec![0_usize; after.len() + 1]; before.len() + 1];
    for (i, old) in before.iter().enumerate().rev() {
        for (j, new) in after.iter().enumerate().rev() {
            common[i][j] = if old == new { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, String::new());
    let mut line = |sign: char, text: &str| out.extend([sign.to_string().as_str(), text, "\n"]);
    while i < before.len() || j < after.len() {
        if i < before.len() && j < after.len() && before[i] == after[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == after.len() || (i < before.len() && common[i + 1][j] >= common[i][j + 1]) {
            line('-', before[i]);
            i += 1;
        } else {
            line('+', after[j]);
            j += 1;
        }
    }
    out
}

/// A reply to decide about: a line of `--file`, or the text of the command line.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Sample {
    id: String,
    text: String,
    calls: Vec<SampleCall>,
    finish: Option<FinishReason>,
    step: Option<u32>,
    /// The form in which the session asked for signals.
    signal: SignalForm,
    /// The decision that is wanted; another one fails the test.
    continues: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SampleCall {
    name: String,
    arguments: String,
}

/// `ailoop patterns test`
pub(super) fn test(args: &PatternsTestArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let composed = compose(&catalog()?, &args.agent, Features::default())?;
    let settings = composed.agent.continuation;
    let bad = |error: reply::PatternError| Failure::new(ErrorCode::BadConfig, error.to_string());
    let patterns = Patterns::compile(&settings).map_err(bad)?;
    let samples = match (&args.file, &args.text) {
        (Some(file), _) => samples(file)?,
        (None, Some(text)) => vec![Sample { text: text.clone(), ..Sample::default() }],
        (None, None) => {
            let message = "there is nothing to decide about: give a reply's text, or --file with one per line";
            return Err(Failure::usage(ErrorCode::BadRequest, message));
        }
    };
    let mut wrong = 0;
    for sample in &samples {
        let (verdict, visible) = decided(&settings, &patterns, sample);
        let agrees = sample.continues.is_none_or(|wanted| wanted == verdict.continues);
        wrong += usize::from(!agrees);
        let line =
            if args.json { as_json(sample, &verdict, &visible, agrees) } else { as_text(sample, &verdict, agrees) };
        if terminal.data(&line).is_err() {
            return Ok(Exit::Done);
        }
    }
    if wrong > 0 {
        let message = format!("{wrong} of {} replies are decided otherwise than wanted", samples.len());
        return Err(Failure::new(ErrorCode::BadConfig, message).help("see the lines that say `wanted`"));
    }
    Ok(Exit::Done)
}

fn samples(file: &Path) -> Result<Vec<Sample>, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(ErrorCode::BadRequest, format!("{}: {error}", file.display())))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            // A line is an object, or a string.
            serde_json::from_str::<Sample>(line)
                .or_else(|error| {
                    serde_json::from_str(line).map(|text| Sample { text, ..Sample::default() }).map_err(|_| error)
                })
                .map_err(|error| {
                    let message = format!("{}:{}: {error}", file.display(), number + 1);
                    Failure::usage(ErrorCode::BadRequest, message)
                        .help("a line is a JSON object with `text`, or a JSON string")
                })
        })
        .collect()
}

fn decided(settings: &ContinuationSettings, patterns: &Patterns, sample: &Sample) -> (ContinuationVerdict, String) {
    let calls: Vec<ToolCall> = sample.calls.iter().map(|call| ToolCall::new("", &call.name, &call.arguments)).collect();
    let reading = reply::read(&sample.text, &calls, sample.signal);
    let facts = Facts {
        text: reading.spoken(),
        signal: reading.signal.as_ref(),
        has_calls: !reading.calls.is_empty() || calls.iter().any(|call| !call.is_signal()),
        finish: sample.finish.unwrap_or(FinishReason::Stop),
        unseen: false,
        doubted: false,
        limit: (sample.step.unwrap_or(1) >= settings.max_iterations).then_some(StopReason::MaxIterations),
    };
    let mut verdict = decide(settings, patterns, facts);
    if let Some(judge) = settings.judge().filter(|_| verdict.is_silent && facts.limit.is_none()) {
        verdict.reason = format!("{}; in a session the judge {judge} is asked", verdict.reason);
    }
    (verdict, reading.visible)
}

fn as_json(sample: &Sample, verdict: &ContinuationVerdict, visible: &str, agrees: bool) -> String {
    let told = json!({
        "id": sample.id, "continues": verdict.continues, "source": verdict.source.to_string(),
        "reason": verdict.reason, "visible": visible, "agrees": agrees,
    });
    format!("{told}\n")
}

fn as_text(sample: &Sample, verdict: &ContinuationVerdict, agrees: bool) -> String {
    let word = |continues: bool| if continues { "goes on" } else { "ends" };
    let id = if sample.id.is_empty() { String::new() } else { format!("{}  ", sample.id) };
    let wanted = if agrees { String::new() } else { format!("  wanted: {}", word(!verdict.continues)) };
    format!("{id}{}  {}  {}{wanted}\n", word(verdict.continues), verdict.source, verdict.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_lines_of_one_side_only() {
        assert_eq!(difference("a\nb\nc", "a\nc\nd"), "-b\n+d\n");
        assert_eq!(difference("a", "a"), "");
        assert_eq!(difference("", "x\ny"), "+x\n+y\n");
    }
}
