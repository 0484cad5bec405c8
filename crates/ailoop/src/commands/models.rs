//! `ailoop models` and `ailoop probe-model`: lists configured models, and probes what a live model can do.

use configuration::models::{self, ModelsFile, Prices, ProviderEntry, Resolved};
use configuration::{Paths, TextFile};
use contract::ErrorCode;
use model_gateway::{Providers, probe};
use serde_json::{Value, json};
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::table::{Table, TableCell, TableColumn};
use terminal::{Style, Terminal};

use crate::args::{ModelsArgs, ProbeArgs};
use crate::output::{finish, json_lines, print_table};

const COLUMNS: [TableColumn; 9] = [
    TableColumn::name("MODEL"),
    TableColumn::name("PROVIDER").optional(1),
    TableColumn::name("KEY"),
    TableColumn::number("WINDOW").optional(2),
    TableColumn::number("REPLY").optional(5),
    TableColumn::name("TOOLS").optional(6),
    TableColumn::name("REASONS").optional(4),
    TableColumn::name("USD IN/CACHED/OUT").optional(3),
    TableColumn::name("ALTERNATIVES").optional(7),
];

pub(super) fn list_models(args: &ModelsArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let models = read_models()?.1;
    let unknown = |error| CommandFailure::new(ErrorCode::UnknownModel, format!("{error}"));
    let found: Vec<Resolved> = match &args.model {
        Some(id) => vec![models.resolve(id).map_err(unknown)?],
        None => models.models.keys().filter_map(|id| models.resolve(id).ok()).collect(),
    };
    if args.output.is_json() {
        return Ok(finish(terminal.print_data(&json_lines(found.iter().map(model_json)))));
    }
    let table = Table::new(&COLUMNS).with_rows(found.iter().map(model_row));
    let printed = print_table(&table, &args.output, terminal);
    let providers: Vec<&str> = models.providers.keys().map(String::as_str).collect();
    let default = models.default.as_deref().unwrap_or("none");
    terminal.note(
        Style::Faint,
        &format!("default: {default}; every model of a provider is <provider>/<its name>: {}", providers.join(", ")),
    );
    for warning in &models.warnings {
        terminal.note(Style::Warn, &format!("warning: {warning}"));
    }
    Ok(finish(printed))
}

pub(super) async fn probe_model(args: &ProbeArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let (paths, models, file) = read_models()?;
    let providers = Providers::new(models, &paths)?;
    terminal
        .note(Style::Faint, &format!("asking {} a few short questions; a provider may charge for them", args.model));
    let report_progress = |line: &str| terminal.note(Style::Plain, line);
    let report = probe::probe(&providers, &args.model, report_progress).await.map_err(|failure| {
        let place = format!("model {}", args.model);
        CommandFailure::new(failure.kind.code(), failure.message).at(place)
    })?;
    let id = args.id.as_deref().unwrap_or(&args.model);
    let entry = report.to_yaml(id);
    if !args.write {
        let printed = terminal.print_data(&entry);
        terminal.note(Style::Faint, "prices are not asked for; --write puts this into models.yaml");
        return Ok(finish(printed));
    }
    let Some(path) = paths.config.as_ref().map(|dir| dir.join(models::FILE)).filter(|path| path.is_file()) else {
        let message = "there is no models.yaml on this disk to write to";
        return Err(
            CommandFailure::new(ErrorCode::BadConfig, message).help("set AILOOP_CONFIG to a directory that has one")
        );
    };
    let text = probe::put_entry(&file.text, id, &entry);
    models::parse(&TextFile { origin: path.display().to_string(), text: text.clone() })?;
    std::fs::write(&path, text)
        .map_err(|error| CommandFailure::new(ErrorCode::BadConfig, error.to_string()).at(path.display()))?;
    terminal.note(Style::Good, &format!("{} now says what {id} can do", path.display()));
    Ok(Exit::Done)
}

fn read_models() -> Result<(Paths, ModelsFile, TextFile), CommandFailure> {
    let paths = Paths::find(None)?;
    let file = paths.read(models::FILE)?;
    let models = models::parse(&file)?;
    Ok((paths, models, file))
}

fn model_row(model: &Resolved) -> Vec<TableCell> {
    let settings = &model.entry.settings;
    let tokens = |tokens: Option<u64>| tokens.map_or_else(|| "?".to_owned(), format::count);
    let tools = if settings.multi_tool && settings.max_parallel_tools > 1 {
        format!("{} at once", settings.max_parallel_tools)
    } else {
        "one".to_owned()
    };
    let alternatives: Vec<&str> = model.entry.alternatives.iter().map(|other| other.provider.as_str()).collect();
    vec![
        model.id.as_str().into(),
        format!("{}/{}", model.provider, model.upstream).into(),
        key_cell(&model.provider_entry),
        tokens(settings.context_window).into(),
        tokens(settings.max_output).into(),
        tools.into(),
        if settings.reasoning { "yes" } else { "no" }.into(),
        model
            .entry
            .prices
            .map_or_else(
                || "?".to_owned(),
                |Prices { input, cached, output }| format!("{input}/{}/{output}", cached.unwrap_or(input)),
            )
            .into(),
        alternatives.join(", ").into(),
    ]
}

fn key_cell(provider: &ProviderEntry) -> TableCell {
    let has_key = (provider.api_key_file.is_none() && provider.api_key_env.is_none()) || provider.api_key().is_ok();
    TableCell::new(if has_key { Style::Good } else { Style::Faint }, &format_key(provider))
}

/// Formats whether the key of a provider is set, without its value.
fn format_key(provider: &ProviderEntry) -> String {
    let name = match (&provider.api_key_file, &provider.api_key_env) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(name)) => name.clone(),
        (None, None) => return "none needed".to_owned(),
    };
    if provider.api_key().is_ok() { format!("{name} is set") } else { format!("{name} is missing") }
}

fn model_json(model: &Resolved) -> Value {
    let (entry, settings) = (&model.entry, &model.entry.settings);
    json!({
        "id": model.id, "provider": model.provider, "model": model.upstream, "multi_tool": settings.multi_tool,
        "max_parallel_tools": settings.max_parallel_tools, "structured_output": settings.structured_output,
        "reasoning": settings.reasoning, "context_window": settings.context_window, "max_output": settings.max_output,
        "prices": entry.prices.map(|p| json!({"input": p.input, "cached": p.cached.unwrap_or(p.input), "output": p.output})),
        "alternatives": entry.alternatives.iter().map(|other| other.provider.as_str()).collect::<Vec<_>>(),
        "fallbacks": entry.fallbacks, "context_fallback": entry.context_fallback,
        "key": format_key(&model.provider_entry),
    })
}
