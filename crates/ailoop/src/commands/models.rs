//! `ailoop models` and `ailoop probe-model`: what is known of models, and what a live one shows.

use contract::ErrorCode;
use model_gateway::{Providers, probe};
use serde_json::{Value, json};
use service::models::{self, ModelsFile, Prices, ProviderEntry, Resolved};
use service::paths::{Paths, TextFile};

use super::lists::table;
use crate::args::{ModelsArgs, ProbeArgs};
use crate::failure::{Exit, Failure};
use crate::figures;
use crate::terminal::{Style, Terminal};

/// `ailoop models`
pub(super) fn models(args: &ModelsArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let models = read()?.1;
    let found: Vec<Resolved> = match &args.model {
        Some(id) => {
            vec![models.resolve(id).map_err(|unknown| Failure::new(ErrorCode::UnknownModel, unknown.to_string()))?]
        }
        None => models.models.keys().filter_map(|id| models.resolve(id).ok()).collect(),
    };
    if args.json {
        let lines: String = found.iter().flat_map(|model| [as_json(model).to_string(), "\n".to_owned()]).collect();
        return Ok(super::finish(terminal.data(&lines)));
    }
    let head = ["MODEL", "PROVIDER", "TOOLS", "WINDOW", "REPLY", "REASONS", "USD IN/CACHED/OUT", "KEY", "ELSEWHERE"];
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    let printed = terminal.data(&table(&head, &rows));
    let providers: Vec<&str> = models.providers.keys().map(String::as_str).collect();
    let default = models.default.as_deref().unwrap_or("none");
    terminal.note(
        Style::Faint,
        &format!("default: {default}; every model of a provider is <provider>/<its name>: {}", providers.join(", ")),
    );
    for warning in &models.warnings {
        terminal.note(Style::Warn, &format!("warning: {warning}"));
    }
    Ok(super::finish(printed))
}

/// `ailoop probe-model`
pub(super) async fn probe(args: &ProbeArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let (paths, models, file) = read()?;
    let bad = |error: service::ConfigError| Failure::new(error.code(), error.to_string());
    let providers = Providers::new(models, &paths).map_err(bad)?;
    terminal
        .note(Style::Faint, &format!("asking {} a few short questions; a provider may charge for them", args.model));
    let tell = |line: &str| terminal.note(Style::Plain, line);
    let report = probe::probe(&providers, &args.model, tell).await.map_err(|failure| {
        let place = format!("model {}", args.model);
        Failure::new(failure.kind.code(), failure.message).at(place)
    })?;
    let id = args.id.as_deref().unwrap_or(&args.model);
    let entry = report.to_yaml(id);
    if !args.write {
        let printed = terminal.data(&entry);
        terminal.note(Style::Faint, "prices are not asked for; --write puts this into models.yaml");
        return Ok(super::finish(printed));
    }
    let Some(path) = paths.config.as_ref().map(|dir| dir.join(models::FILE)).filter(|path| path.is_file()) else {
        let none = "there is no models.yaml on this disk to write to";
        return Err(Failure::new(ErrorCode::BadConfig, none).help("set AILOOP_CONFIG to a directory that has one"));
    };
    let text = probe::put_entry(&file.text, id, &entry);
    models::parse(&TextFile { origin: path.display().to_string(), text: text.clone() }).map_err(bad)?;
    std::fs::write(&path, text)
        .map_err(|error| Failure::new(ErrorCode::BadConfig, error.to_string()).at(path.display()))?;
    terminal.note(Style::Good, &format!("{} now says what {id} can do", path.display()));
    Ok(Exit::Done)
}

fn read() -> Result<(Paths, ModelsFile, TextFile), Failure> {
    let bad = |error: service::ConfigError| Failure::new(error.code(), error.to_string());
    let paths = Paths::find(None).map_err(bad)?;
    let file = paths.read(models::FILE).map_err(bad)?;
    let models = models::parse(&file).map_err(bad)?;
    Ok((paths, models, file))
}

fn row(model: &Resolved) -> Vec<String> {
    let settings = &model.entry.settings;
    let tokens = |tokens: Option<u64>| tokens.map_or_else(|| "?".to_owned(), figures::count);
    let tools = if settings.multi_tool && settings.max_parallel_tools > 1 {
        format!("{} at once", settings.max_parallel_tools)
    } else {
        "one".to_owned()
    };
    let elsewhere: Vec<&str> = model.entry.alternatives.iter().map(|other| other.provider.as_str()).collect();
    vec![
        model.id.clone(),
        format!("{}/{}", model.provider, model.upstream),
        tools,
        tokens(settings.context_window),
        tokens(settings.max_output),
        if settings.reasoning { "yes" } else { "no" }.to_owned(),
        model.entry.prices.map_or_else(
            || "?".to_owned(),
            |Prices { input, cached, output }| format!("{input}/{}/{output}", cached.unwrap_or(input)),
        ),
        key(&model.provider_entry),
        elsewhere.join(", "),
    ]
}

/// Whether the key is there; never what it is.
fn key(provider: &ProviderEntry) -> String {
    let name = match (&provider.api_key_file, &provider.api_key_env) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(name)) => name.clone(),
        (None, None) => return "none needed".to_owned(),
    };
    if provider.api_key().is_ok() { format!("{name} is set") } else { format!("{name} is missing") }
}

fn as_json(model: &Resolved) -> Value {
    let (entry, settings) = (&model.entry, &model.entry.settings);
    json!({
        "id": model.id, "provider": model.provider, "model": model.upstream, "multi_tool": settings.multi_tool,
        "max_parallel_tools": settings.max_parallel_tools, "structured_output": settings.structured_output,
        "reasoning": settings.reasoning, "context_window": settings.context_window, "max_output": settings.max_output,
        "prices": entry.prices.map(|p| json!({"input": p.input, "cached": p.cached.unwrap_or(p.input), "output": p.output})),
        "alternatives": entry.alternatives.iter().map(|other| other.provider.as_str()).collect::<Vec<_>>(),
        "fallbacks": entry.fallbacks, "context_fallback": entry.context_fallback,
        "key": key(&model.provider_entry),
    })
}
