//! `ailoop config check`: every mistake in the configuration of a directory and in the environment, with its place.

mod schema;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use configuration::models::{self, ModelsFile, ProviderKind};
use configuration::settings::SECTIONS;
use configuration::suggest::closest;
use configuration::{ConfigError, Settings};
use configuration::{Paths, TextFile};
use contract::command::Features;
use contract::compose::ComposeReply;
use contract::{AgentId, TenantId};
use prompt_composer::Catalog;
use prompt_composer::agents::Agents;
use serde::de::DeserializeOwned;

use crate::default_model::REHEARSAL;
use crate::schemas::ConfigFile;

/// Mistakes that are shown; a file of another kind would have one in every line.
const MISTAKES_MAX: usize = 100;
/// The beginning of a file.
const TOP: tree::Place = tree::Place { line: 1, column: 1 };
/// Variables that are read beside those of the sections.
const VARIABLES: &[&str] = &["AILOOP_CONFIG", "AILOOP_NATS_SERVER", "AILOOP_NATS_URL", "AILOOP_TOKEN", "AILOOP_URL"];

/// Something that cannot be used, or is not what was meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file, or `the environment`.
    pub origin: String,
    /// From 1; 0 where unknown.
    pub line: usize,
    /// From 1; 0 where unknown.
    pub column: usize,
    /// What is wrong, and what to do.
    pub message: String,
    /// Whether it is odd only, and used all the same.
    pub is_warning: bool,
    /// The line of the file.
    source: Option<String>,
}

/// What was looked at, and what was found.
#[derive(Debug, Default)]
pub struct Report {
    /// Files in the order in which they were read; `shipped:` before those of the binary.
    pub files: Vec<String>,
    /// How many agents there are.
    pub agents: usize,
    /// By file and line.
    pub mistakes: Vec<Mistake>,
}

impl Report {
    /// Whether nothing refuses to work.
    pub fn is_good(&self) -> bool {
        self.mistakes.iter().all(|mistake| mistake.is_warning)
    }
}

impl Mistake {
    fn new(origin: &str, message: impl Into<String>) -> Self {
        Self { origin: origin.to_owned(), line: 0, column: 0, message: message.into(), is_warning: false, source: None }
    }

    fn at(file: &TextFile, place: tree::Place, message: impl Into<String>) -> Self {
        let source = place.line.checked_sub(1).and_then(|index| file.text.lines().nth(index)).map(str::to_owned);
        Self { line: place.line, column: place.column, source, ..Self::new(&file.origin, message) }
    }

    fn of(file: &TextFile, error: &ConfigError) -> Self {
        let ConfigError::Bad { origin, line, column, message } = error else {
            return Self::new(&file.origin, error.to_string());
        };
        let place = |number: u64| usize::try_from(number).unwrap_or_default();
        let found = Self::at(file, tree::Place { line: place(*line), column: place(*column) }, message.clone());
        Self { origin: origin.clone(), ..found }
    }

    fn warning(self) -> Self {
        Self { is_warning: true, ..self }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_warning { "warning" } else { "error" };
        write!(f, "{kind}: {}", self.origin)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(source) = &self.source {
            let number = self.line.to_string();
            let pad = " ".repeat(number.len());
            let before: String =
                source.chars().take(self.column.saturating_sub(1)).map(|c| if c == '\t' { c } else { ' ' }).collect();
            write!(f, "\n  {number} | {source}\n  {pad} | {before}^")?;
        }
        Ok(())
    }
}

/// Looks at the files of the configuration directory, or at what is shipped where they are absent, and at the environment.
pub fn check(variables: &BTreeMap<String, String>) -> Report {
    let mut check = Check { report: Report::default(), variables };
    check.variables();
    match Paths::find(None) {
        Ok(paths) => check.files(&paths),
        Err(error) => check.push(Mistake::new("the environment", error.to_string())),
    }
    let mut report = check.report;
    report.mistakes.sort_by(|a, b| (&a.origin, a.line, a.column).cmp(&(&b.origin, b.line, b.column)));
    report.mistakes.dedup();
    report.mistakes.truncate(MISTAKES_MAX);
    report
}

struct Check<'a> {
    report: Report,
    variables: &'a BTreeMap<String, String>,
}

impl Check<'_> {
    fn push(&mut self, mistake: Mistake) {
        self.report.mistakes.push(mistake);
    }

    /// Names of variables that nothing reads.
    fn variables(&mut self) {
        let origin = "the environment";
        let mut found = Vec::new();
        for name in self.variables.keys().filter(|name| name.starts_with("AILOOP")) {
            let lower = name.to_lowercase();
            if let Some(path) = lower.strip_prefix("ailoop__") {
                let section = path.split("__").next().unwrap_or_default();
                if !SECTIONS.contains(&section) {
                    let suggestion = closest(section, SECTIONS.iter().copied()).map_or_else(String::new, |section| {
                        format!(" (did you mean AILOOP__{}__…?)", section.to_uppercase())
                    });
                    found.push(Mistake::new(
                        origin,
                        format!(
                            "{name}: there is no section {section:?}{suggestion}; there are {}",
                            SECTIONS.join(", ")
                        ),
                    ));
                    continue;
                }
                found.extend(schema::variable_mistakes(origin, name, path));
            } else if !VARIABLES.contains(&name.as_str()) {
                let rest = lower.trim_start_matches("ailoop_");
                let section = SECTIONS.iter().find(|section| rest.starts_with(&format!("{section}_")));
                if let Some(section) = section {
                    let field = rest[section.len() + 1..].to_uppercase();
                    let wanted = format!("AILOOP__{}__{field}", section.to_uppercase());
                    found.push(Mistake::new(
                        origin,
                        format!("{name} is not read: two underscores stand between the parts; did you mean {wanted}?"),
                    ));
                } else if let Some(known) = closest(name, VARIABLES.iter().copied()) {
                    found.push(Mistake::new(origin, format!("{name} is not read; did you mean {known}?")));
                }
            }
        }
        self.report.mistakes.extend(found);
    }

    fn files(&mut self, paths: &Paths) {
        if let Some(dir) = &paths.config {
            self.names(dir);
        }
        let mut read = |file: ConfigFile| {
            let name = format!("{file}.yaml");
            let found = paths.read(&name);
            match found {
                Ok(text) => {
                    self.report.files.push(text.origin.clone());
                    Some(text)
                }
                Err(error) => {
                    self.push(Mistake::new(&name, error.to_string()));
                    None
                }
            }
        };
        let (ailoop, agents, models) = (read(ConfigFile::Ailoop), read(ConfigFile::Agents), read(ConfigFile::Models));
        if let Some(file) = &ailoop {
            self.sections(paths, file);
        }
        let models = models.and_then(|file| self.models(paths, &file));
        if let Some(file) = &agents {
            self.shape(ConfigFile::Agents, file, prompt_composer::agents::find_errors);
        }
        if models.is_some() {
            self.agents(agents.as_ref());
        }
    }

    /// Files that look like ones that are read, and are not.
    fn names(&mut self, dir: &Path) {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let names: BTreeSet<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let read: Vec<String> = ConfigFile::ALL.iter().map(|file| format!("{file}.yaml")).collect();
        for name in names.iter().filter(|name| !read.contains(name)) {
            let is_text = ["yaml", "yml", "json", "toml"].iter().any(|end| name.ends_with(&format!(".{end}")));
            let stem = name.split('.').next().unwrap_or_default();
            let known = ConfigFile::ALL.iter().map(ToString::to_string).collect::<Vec<_>>();
            if let Some(meant) = closest(stem, known.iter().map(String::as_str)).filter(|_| is_text) {
                let message = format!("this file is not read: its name must be {meant}.yaml");
                self.push(Mistake::new(&dir.join(name).display().to_string(), message));
            }
        }
    }

    /// What the schema and then the parser say of a file.
    fn shape(&mut self, kind: ConfigFile, file: &TextFile, parse: impl Fn(&TextFile) -> Vec<ConfigError>) {
        let found = schema::mistakes(kind, file);
        let lines: Vec<usize> = found.iter().map(|mistake| mistake.line).collect();
        let rest = TextFile { origin: file.origin.clone(), text: tree::blanked(&file.text, &lines) };
        let refused = if found.is_empty() { parse(file) } else { parse(&rest) };
        let more: Vec<Mistake> = refused.iter().map(|error| Mistake::of(file, error)).collect();
        // An entry that was taken out for its mistake is missing only because of that.
        let is_new = |mistake: &Mistake| {
            found.is_empty() || (!lines.contains(&mistake.line) && !mistake.message.contains("missing field"))
        };
        let more: Vec<Mistake> = more.into_iter().filter(is_new).collect();
        self.report.mistakes.extend(found.into_iter().chain(more));
    }

    fn sections(&mut self, paths: &Paths, file: &TextFile) {
        let found = schema::mistakes(ConfigFile::Ailoop, file);
        let lines: Vec<usize> = found.iter().map(|mistake| mistake.line).collect();
        let is_shaped = found.is_empty();
        self.report.mistakes.extend(found);
        let settings = match Settings::of(paths.clone()) {
            Ok(settings) => settings,
            Err(error) => {
                let mistake = Mistake::of(file, &error);
                let is_known = self.report.mistakes.iter().any(|known| known.line == mistake.line && known.line > 0)
                    || mistake.origin == "the environment";
                if is_shaped && !is_known {
                    self.push(mistake);
                }
                return;
            }
        };
        let mut sections = Sections { settings: &settings, file, lines: &lines, found: Vec::new() };
        let nats: Option<bus::NatsConfig> = sections.read("nats");
        let _telemetry: Option<telemetry::TelemetryConfig> = sections.read("telemetry");
        let health: Option<service::health::HealthConfig> = sections.read("health");
        let composer: Option<prompt_composer::ComposerConfig> = sections.read("composer");
        let _orchestrator: Option<loop_orchestrator::OrchestratorConfig> = sections.read("orchestrator");
        let gateway: Option<model_gateway::Config> = sections.read("gateway");
        let _executor: Option<tool_executor::ExecutorConfig> = sections.read("executor");
        let tool_host: Option<tool_host::ToolHostConfig> = sections.read(tool_host::SECTION);
        let edge: Option<edge::Config> = sections.read("edge");
        if let Some(nats) = nats {
            let wrong = nats.url.split(',').filter_map(|url| url_mistake(url.trim())).collect::<Vec<_>>();
            for message in wrong {
                sections.report("nats.url", "url", message);
            }
        }
        let dirs = [
            ("composer.config_dir", composer.as_ref().and_then(|of| of.config_dir.clone())),
            ("composer.prompts_dir", composer.as_ref().and_then(|of| of.prompts_dir.clone())),
            ("gateway.config_dir", gateway.and_then(|of| of.config_dir)),
        ];
        for (field, dir) in dirs {
            if let Some(dir) = dir.filter(|dir| !dir.is_dir()) {
                let key = field.rsplit('.').next().unwrap_or_default();
                sections.report(field, key, format!("the directory {} does not exist", dir.display()));
            }
        }
        for error in tool_host.map(|config| config.find_mistakes()).unwrap_or_default() {
            let text = error.to_string();
            let key = text.split_whitespace().next().unwrap_or_default().rsplit('.').next().unwrap_or_default();
            sections.report(tool_host::SECTION, key, text.clone());
        }
        if let Some(edge) = edge {
            if let Err(error) = edge.check() {
                let field =
                    if edge.token.as_ref().is_some_and(|token| token.expose().is_empty()) { "token" } else { "listen" };
                sections.report("edge", field, error.to_string());
            }
            let ports = [
                ("edge.ws.listen", Some(edge.ws.listen)),
                ("edge.grpc.listen", Some(edge.grpc.listen)),
                ("health.listen", health.and_then(|health| health.listen)),
            ];
            for (index, (field, address)) in ports.iter().enumerate() {
                let same = ports[..index]
                    .iter()
                    .find(|(_, other)| address.is_some_and(|address| address.port() != 0 && *other == Some(address)));
                if let (Some((other, _)), Some(address)) = (same, address) {
                    sections.report(
                        field,
                        "listen",
                        format!("{field} and {other} are both {address}: choose two ports"),
                    );
                }
            }
        }
        let found = sections.found;
        self.report.mistakes.extend(found);
    }

    /// The models, if they can be used.
    fn models(&mut self, paths: &Paths, file: &TextFile) -> Option<ModelsFile> {
        self.shape(ConfigFile::Models, file, models::mistakes);
        let models = models::parse(file).ok()?;
        let place = |key: &str, name: &str| {
            let begin = tree::key_place(&file.text, tree::Place { line: 1, column: 1 }, name);
            begin
                .and_then(|begin| tree::key_place(&file.text, begin, key))
                .unwrap_or(tree::Place { line: 0, column: 0 })
        };
        for (name, provider) in &models.providers {
            if provider.api_key_file.is_some()
                && let Err(error) = provider.api_key()
            {
                self.push(Mistake::at(file, place("api_key_file", name), format!("provider {name}: {error}")));
            }
            if let Some(replay) = provider.replay.as_ref().filter(|replay| !replay.exists()) {
                let message = format!("provider {name}: {} does not exist", replay.display());
                self.push(Mistake::at(file, place("replay", name), message));
            }
            if provider.kind == ProviderKind::Scripted
                && let Some(script) = &provider.script
                && let Err(error) = paths.read(script)
            {
                self.push(Mistake::at(file, place("script", name), format!("provider {name}: {error}")));
            }
        }
        if let Err(error) = model_gateway::Providers::new(models.clone(), paths) {
            let is_known = self.report.mistakes.iter().any(|known| !known.is_warning && known.origin == file.origin);
            if !is_known {
                self.push(Mistake::of(file, &error));
            }
        }
        if let Some(resolved) = models.default.as_deref().and_then(|default| models.resolve(default).ok())
            && let Err(error) = resolved.provider_entry.api_key()
        {
            let message = format!("the default model {} has no key: {error}", resolved.id);
            self.push(Mistake::at(file, place("default", "default"), message).warning());
        }
        for warning in &models.warnings {
            self.push(Mistake::new(&file.origin, warning.trim_start_matches(&format!("{}:", file.origin))).warning());
        }
        Some(models)
    }

    /// Composes every agent's prompt.
    fn agents(&mut self, file: Option<&TextFile>) {
        let Ok(config) = configuration::settings::load::<prompt_composer::ComposerConfig>("composer") else { return };
        let config = match Catalog::read(&config) {
            Ok(catalog) if !catalog.has_default_model() => {
                // Whoever only looks at prompts needs no model.
                prompt_composer::ComposerConfig { default_model: Some(REHEARSAL.to_owned()), ..config }
            }
            Ok(_) | Err(_) => config,
        };
        let catalog = match Catalog::read(&config) {
            Ok(catalog) => catalog,
            Err(error) => {
                // What is wrong with the files themselves was said before.
                if self.report.is_good() {
                    self.push(Mistake::new("config", error.to_string()));
                }
                return;
            }
        };
        let origin = file.map_or("agents.yaml", |file| file.origin.as_str());
        let entries = file.and_then(|file| tree::Tree::read(&file.text)).map(|tree| tree.value());
        let mistake_at = |section: &str, id: &str, key: Option<&str>, message: String| {
            let Some(file) = file else { return Mistake::new(origin, message) };
            let at = |from: tree::Place, key: &str| tree::key_place(&file.text, from, key);
            let begin = at(TOP, section).and_then(|from| at(from, id));
            let has = |key: &&str| {
                let pointer = format!("/{section}/{id}/{key}");
                entries.as_ref().is_some_and(|entries| entries.pointer(&pointer).is_some())
            };
            match begin {
                Some(begin) => {
                    Mistake::at(file, key.filter(has).and_then(|key| at(begin, key)).unwrap_or(begin), message)
                }
                None => Mistake::new(origin, message),
            }
        };
        let agents = catalog.agents();
        let unnamed = unnamed_tenant(agents);
        let mut of_tenants: BTreeMap<(&TenantId, Finding), Vec<&str>> = BTreeMap::new();
        for agent in agents.all() {
            self.report.agents += 1;
            let own = Finding::all(&catalog, &unnamed, &agent.id);
            for tenant in agents.tenants() {
                for finding in
                    Finding::all(&catalog, tenant, &agent.id).into_iter().filter(|found| !own.contains(found))
                {
                    of_tenants.entry((tenant, finding)).or_default().push(agent.id.as_str());
                }
            }
            for finding in own {
                let message = format!("agent {}: {}", agent.id, finding.message);
                let mistake = mistake_at("agents", agent.id.as_str(), Some(finding.agent_key()), message);
                self.push(if finding.is_warning() { mistake.warning() } else { mistake });
            }
        }
        let count = agents.all().count();
        for ((tenant, finding), whose) in of_tenants {
            let only = if whose.len() == count { String::new() } else { format!(" (agents {})", whose.join(", ")) };
            let message = format!("tenant {tenant}{only}: {}", finding.message);
            let mistake = mistake_at("tenants", tenant.as_str(), finding.tenant_key(), message);
            self.push(if finding.is_warning() { mistake.warning() } else { mistake });
        }
        for warning in catalog.agents().warnings.clone() {
            self.push(Mistake::new(origin, warning.trim_start_matches(&format!("{origin}:"))).warning());
        }
    }
}

/// What is wrong with the prompt of an agent in the sessions of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    message: String,
    /// Whether there is no prompt at all.
    is_refusal: bool,
}

impl Finding {
    /// Composes the prompt and collects what is odd about it, or why there is none.
    fn all(catalog: &Catalog, tenant: &TenantId, agent: &AgentId) -> BTreeSet<Self> {
        let request = crate::compose::compose_request(tenant.clone(), Some(agent.clone()), None, Features::default());
        match catalog.compose(&request) {
            ComposeReply::Composed(composed) => {
                composed.warnings.into_iter().map(|message| Self { message, is_refusal: false }).collect()
            }
            ComposeReply::Refused { message, .. } => BTreeSet::from([Self { message, is_refusal: true }]),
        }
    }

    /// Whether it is odd only. A prompt or a feature that is named and does not exist is an error.
    fn is_warning(&self) -> bool {
        !self.is_refusal && !self.message.starts_with("there is no ")
    }

    /// The key of an agent that most likely has the mistake.
    fn agent_key(&self) -> &'static str {
        if self.is_refusal {
            "model"
        } else if self.message.starts_with("continuation_config.") {
            "continuation_config"
        } else if self.message.contains("there is no prompt") {
            "prompt_file"
        } else {
            "features"
        }
    }

    /// The key of a tenant that most likely has the mistake.
    fn tenant_key(&self) -> Option<&'static str> {
        let named = ["continuation_config", "ai_config"].into_iter().find(|key| self.message.starts_with(key));
        named.or_else(|| self.message.contains("feature").then_some("features"))
    }
}

/// A tenant that the file does not name: what is wrong for it is a mistake of the agent.
fn unnamed_tenant(agents: &Agents) -> TenantId {
    let mut ids = (0..=agents.tenants().count()).filter_map(|n| TenantId::new(&format!("unnamed-{n}")).ok());
    ids.find(|id| agents.tenant(id).is_none()).unwrap_or_default()
}

/// The sections of `ailoop.yaml`, each read by itself, with the environment over them.
struct Sections<'a> {
    settings: &'a Settings,
    file: &'a TextFile,
    /// Lines whose mistakes are known.
    lines: &'a [usize],
    found: Vec<Mistake>,
}

impl Sections<'_> {
    fn read<T: DeserializeOwned + Default>(&mut self, name: &str) -> Option<T> {
        match self.settings.section(name) {
            Ok(section) => Some(section),
            Err(error) => {
                let mistake = if let ConfigError::Environment { .. } = &error {
                    Mistake::new("the environment", format!("section {name}: {error}"))
                } else {
                    Mistake::of(self.file, &error)
                };
                if mistake.line == 0 || !self.lines.contains(&mistake.line) {
                    self.found.push(mistake);
                }
                None
            }
        }
    }

    /// A mistake at a key of the file; where the file does not have it, the environment does.
    fn report(&mut self, field: &str, key: &str, message: String) {
        let mut place = Some(tree::Place { line: 1, column: 1 });
        for part in field.split('.').chain([key]) {
            place = place.map(|from| tree::key_place(&self.file.text, from, part).unwrap_or(from));
        }
        let mistake = match place.filter(|place| place.line > 1 || self.file.text.starts_with(field)) {
            Some(place) => Mistake::at(self.file, place, message),
            None => Mistake::new("the environment", message),
        };
        self.found.push(mistake);
    }
}

/// What is wrong with the address of a nats-server.
fn url_mistake(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
    if !["nats", "tls", "ws", "wss"].contains(&scheme) {
        return Some(format!("{url:?} is no address of NATS: write nats://<host>:<port>"));
    }
    let host = rest.rsplit('@').next().unwrap_or_default();
    let port = host.rsplit_once(':').filter(|_| !host.ends_with(']')).map(|(_, port)| port.trim_end_matches('/'));
    match port {
        Some(port) if port.parse::<u16>().is_err() => {
            Some(format!("{port:?} in {url:?} is no port: a port is a number up to 65535"))
        }
        _ if host.is_empty() => Some(format!("{url:?} names no host: write nats://<host>:<port>")),
        _ => None,
    }
}

/// The variables of this process that may be meant for ailoop.
pub fn variables() -> BTreeMap<String, String> {
    let named =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    named.filter(|(name, _)| name.starts_with("AILOOP")).collect()
}
