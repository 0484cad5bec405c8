//! Check of the configuration: finds every mistake in that of a directory and in the environment.
//!
//! # Layout
//!
//! - `config_file` has the schemas of the files, and `schema` holds files against them.
//! - `sections`, `prompts` and `tools` find what a schema cannot express.
//! - `mistake` is what was found, and `tree` finds where it is in a file.

mod config_file;
mod mistake;
mod prompts;
mod schema;
mod sections;
mod tools;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use configuration::models::{self, ModelsFile, ProviderKind};
use configuration::settings::SECTIONS;
use configuration::suggest::closest;
use configuration::{ConfigError, Settings};
use configuration::{Paths, TextFile};
use contract::TenantId;
use prompt_composer::Catalog;
use tool_host::ToolHostConfig;

pub use self::config_file::ConfigFile;
pub use self::mistake::CheckReport;
use self::mistake::ConfigMistake;
use self::prompts::{PromptFinding, unnamed_tenant};
use self::sections::SectionReader;
use self::tools::KnownTools;
use self::tree::{TextPosition, find_key};
use configuration::models::REHEARSAL;

/// Mistakes that are shown: a file of another kind would have one in every line.
const MISTAKES_MAX: usize = 100;
/// Variables that the binary and the SDKs read besides those of the sections.
const OTHER_VARIABLES: &[&str] = &[
    "AILOOP_API_KEY",
    "AILOOP_CA_FILE",
    "AILOOP_CONFIG",
    "AILOOP_CONTEXT",
    "AILOOP_GRPC_URL",
    "AILOOP_NATS_SERVER",
    "AILOOP_NATS_URL",
    "AILOOP_PLAINTEXT",
    "AILOOP_TOKEN",
    "AILOOP_TRACE_URL",
    "AILOOP_URL",
];

/// Checks the environment and the files of the configuration directory. A file that is absent is the one that the
/// binary contains. With the tools of a fleet, agents may name no others.
pub fn check_config(fleet_tools: Option<&BTreeSet<String>>) -> CheckReport {
    let known_tools = match fleet_tools {
        Some(names) => KnownTools::of_fleet(names),
        None => KnownTools::of_files(&ToolHostConfig::default()),
    };
    let mut checker = ConfigChecker { report: CheckReport::default(), known_tools };
    checker.check_variables();
    match Paths::find(None) {
        Ok(paths) => checker.check_files(&paths),
        Err(error) => checker.push(ConfigMistake::new("the environment", error.to_string())),
    }
    let mut report = checker.report;
    report.mistakes.sort_by(|a, b| (&a.origin, a.line, a.column).cmp(&(&b.origin, b.line, b.column)));
    report.mistakes.dedup();
    report.mistakes.truncate(MISTAKES_MAX);
    report
}

struct ConfigChecker {
    report: CheckReport,
    known_tools: KnownTools,
}

impl ConfigChecker {
    fn push(&mut self, mistake: ConfigMistake) {
        self.report.mistakes.push(mistake);
    }

    /// Finds variables that no process reads.
    fn check_variables(&mut self) {
        let origin = "the environment";
        let mut found = Vec::new();
        for name in variable_names() {
            let lower = name.to_lowercase();
            if let Some(path) = lower.strip_prefix("ailoop__") {
                let section = path.split("__").next().unwrap_or_default();
                if !SECTIONS.contains(&section) {
                    let suggestion = closest(section, SECTIONS.iter().copied()).map_or_else(String::new, |section| {
                        format!(" (did you mean AILOOP__{}__…?)", section.to_uppercase())
                    });
                    found.push(ConfigMistake::new(
                        origin,
                        format!(
                            "{name}: there is no section {section:?}{suggestion}; there are {}",
                            SECTIONS.join(", ")
                        ),
                    ));
                    continue;
                }
                found.extend(schema::find_variable_mistakes(origin, &name, path));
            } else if !OTHER_VARIABLES.contains(&name.as_str()) {
                let rest = lower.trim_start_matches("ailoop_");
                let section = SECTIONS.iter().find(|section| rest.starts_with(&format!("{section}_")));
                if let Some(section) = section {
                    let field = rest[section.len() + 1..].to_uppercase();
                    let wanted = format!("AILOOP__{}__{field}", section.to_uppercase());
                    found.push(ConfigMistake::new(
                        origin,
                        format!("{name} is not read: two underscores stand between the parts; did you mean {wanted}?"),
                    ));
                } else if let Some(known) = closest(&name, OTHER_VARIABLES.iter().copied()) {
                    found.push(ConfigMistake::new(origin, format!("{name} is not read; did you mean {known}?")));
                }
            }
        }
        self.report.mistakes.extend(found);
    }

    fn check_files(&mut self, paths: &Paths) {
        if let Some(dir) = &paths.config {
            self.check_file_names(dir);
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
                    self.push(ConfigMistake::new(&name, error.to_string()));
                    None
                }
            }
        };
        let (ailoop, agents, models) = (read(ConfigFile::Ailoop), read(ConfigFile::Agents), read(ConfigFile::Models));
        if let Some(file) = &ailoop {
            self.check_sections(paths, file);
        }
        let models = models.and_then(|file| self.check_models(paths, &file));
        if let Some(file) = &agents {
            self.check_shape(ConfigFile::Agents, file, prompt_composer::agents::find_errors);
            self.report.mistakes.extend(self.known_tools.find_unknown(file));
        }
        if models.is_some() {
            self.check_agents(agents.as_ref());
        }
    }

    /// Finds files whose names are almost those of files that are read.
    fn check_file_names(&mut self, dir: &Path) {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let names: BTreeSet<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let read: Vec<String> = ConfigFile::ALL.iter().map(|file| format!("{file}.yaml")).collect();
        for name in names.iter().filter(|name| !read.contains(name)) {
            let is_text = ["yaml", "yml", "json", "toml"].iter().any(|end| name.ends_with(&format!(".{end}")));
            let stem = name.split('.').next().unwrap_or_default();
            let known = ConfigFile::ALL.iter().map(ToString::to_string).collect::<Vec<_>>();
            if let Some(meant) = closest(stem, known.iter().map(String::as_str)).filter(|_| is_text) {
                let message = format!("this file is not read: its name must be {meant}.yaml");
                self.push(ConfigMistake::new(&dir.join(name).display().to_string(), message));
            }
        }
    }

    /// Checks a file against its schema, and then with its parser, which also checks values.
    fn check_shape(
        &mut self,
        kind: ConfigFile,
        file: &TextFile,
        parse: impl Fn(&TextFile) -> Result<Vec<ConfigError>, ConfigError>,
    ) {
        let found = schema::find_schema_mistakes(kind, file);
        if found.is_empty() {
            let refused = parse(file).unwrap_or_else(|error| vec![error]);
            self.report.mistakes.extend(refused.iter().map(|error| ConfigMistake::from_error(file, error)));
            return;
        }
        // The values of all other entries are checked without the entries that have mistakes. What is wrong only
        // because these are left out is no mistake: a shape without them, and a reference to one of them.
        let lines: Vec<usize> = found.iter().map(|mistake| mistake.line).collect();
        let remaining = TextFile { origin: file.origin.clone(), text: tree::blank_entries(&file.text, &lines) };
        let blanked: Vec<String> = tree::keys_of(&file.text, &lines).map(|key| format!("{key:?}")).collect();
        let refused = parse(&remaining).unwrap_or_default();
        let more = refused.iter().map(|error| ConfigMistake::from_error(file, error));
        let is_new = |mistake: &ConfigMistake| !blanked.iter().any(|key| mistake.message.contains(key));
        let more: Vec<ConfigMistake> = more.filter(is_new).collect();
        self.report.mistakes.extend(found.into_iter().chain(more));
    }

    fn check_sections(&mut self, paths: &Paths, file: &TextFile) {
        let found = schema::find_schema_mistakes(ConfigFile::Ailoop, file);
        let lines: Vec<usize> = found.iter().map(|mistake| mistake.line).collect();
        let is_shaped = found.is_empty();
        self.report.mistakes.extend(found);
        let settings = match Settings::of(paths.clone()) {
            Ok(settings) => settings,
            Err(error) => {
                let mistake = ConfigMistake::from_error(file, &error);
                let is_known = self.report.mistakes.iter().any(|known| known.line == mistake.line && known.line > 0)
                    || mistake.origin == "the environment";
                if is_shaped && !is_known {
                    self.push(mistake);
                }
                return;
            }
        };
        let mut sections = SectionReader { settings: &settings, file, known_lines: &lines, mistakes: Vec::new() };
        let nats: Option<bus::NatsConfig> = sections.read("nats");
        let _telemetry: Option<telemetry::TelemetryConfig> = sections.read("telemetry");
        let health: Option<service::health::HealthConfig> = sections.read("health");
        let composer: Option<prompt_composer::ComposerConfig> = sections.read("composer");
        let _orchestrator: Option<loop_orchestrator::OrchestratorConfig> = sections.read("orchestrator");
        let gateway: Option<model_gateway::GatewayConfig> = sections.read("gateway");
        let _executor: Option<tool_executor::ExecutorConfig> = sections.read("executor");
        let tool_host: Option<ToolHostConfig> = sections.read(tool_host::SECTION);
        let edge: Option<edge::EdgeConfig> = sections.read("edge");
        if let Some(nats) = nats {
            sections.check_nats(&nats);
        }
        sections.check_directories(composer.as_ref(), gateway.as_ref());
        if let (KnownTools::OfFiles(_), Some(config)) = (&self.known_tools, &tool_host) {
            self.known_tools = KnownTools::of_files(config);
        }
        for error in tool_host.map(|config| config.find_mistakes()).unwrap_or_default() {
            let text = error.to_string();
            let key = text.split_whitespace().next().unwrap_or_default().rsplit('.').next().unwrap_or_default();
            sections.report(tool_host::SECTION, key, text.clone());
        }
        if let Some(edge) = edge {
            sections.check_edge(&edge);
            sections.check_ports(&edge, health.and_then(|health| health.listen));
        }
        let found = sections.mistakes;
        self.report.mistakes.extend(found);
    }

    /// Checks the models, and returns them if they can be used.
    fn check_models(&mut self, paths: &Paths, file: &TextFile) -> Option<ModelsFile> {
        self.check_shape(ConfigFile::Models, file, models::mistakes);
        let models = models::parse(file).ok()?;
        let position_of = |key: &str, name: &str| {
            let begin = find_key(&file.text, TextPosition::START, name);
            begin.and_then(|begin| find_key(&file.text, begin, key)).unwrap_or(TextPosition { line: 0, column: 0 })
        };
        for (name, provider) in &models.providers {
            if provider.api_key_file.is_some()
                && let Err(error) = provider.api_key()
            {
                self.push(ConfigMistake::at(
                    file,
                    position_of("api_key_file", name),
                    format!("provider {name}: {error}"),
                ));
            }
            if let Some(replay) = provider.replay.as_ref().filter(|replay| !replay.exists()) {
                let message = format!("provider {name}: {} does not exist", replay.display());
                self.push(ConfigMistake::at(file, position_of("replay", name), message));
            }
            if provider.kind == ProviderKind::Scripted
                && let Some(script) = &provider.script
                && let Err(error) = paths.read(script)
            {
                self.push(ConfigMistake::at(file, position_of("script", name), format!("provider {name}: {error}")));
            }
        }
        if let Err(error) = model_gateway::Providers::new(models.clone(), paths) {
            let is_known = self.report.mistakes.iter().any(|known| !known.is_warning && known.origin == file.origin);
            if !is_known {
                self.push(ConfigMistake::from_error(file, &error));
            }
        }
        if let Some(resolved) = models.default.as_deref().and_then(|default| models.resolve(default).ok())
            && let Err(error) = resolved.provider_entry.api_key()
        {
            let message = format!("the default model {} has no key: {error}", resolved.id);
            self.push(ConfigMistake::at(file, position_of("default", "default"), message).into_warning());
        }
        for warning in &models.warnings {
            self.push(
                ConfigMistake::new(&file.origin, warning.trim_start_matches(&format!("{}:", file.origin)))
                    .into_warning(),
            );
        }
        Some(models)
    }

    /// Checks the agents by composing the prompt of each.
    fn check_agents(&mut self, file: Option<&TextFile>) {
        let Ok(config) = configuration::settings::load::<prompt_composer::ComposerConfig>("composer") else { return };
        let catalog = match Catalog::read(&config) {
            // Composing a prompt needs the name of a model, but not the model itself.
            Ok(catalog) => catalog.with_stand_in_model(REHEARSAL),
            Err(error) => {
                // Mistakes of the files themselves were reported before.
                if self.report.is_usable() {
                    self.push(match (&error, file) {
                        (ConfigError::Bad { .. }, Some(file)) => ConfigMistake::from_error(file, &error),
                        _ => ConfigMistake::new("config", error.to_string()),
                    });
                }
                return;
            }
        };
        let origin = file.map_or("agents.yaml", |file| file.origin.as_str());
        let entries = file.and_then(|file| tree::Tree::read(&file.text)).map(|tree| tree.to_json());
        let mistake_at = |section: &str, id: &str, key: Option<&str>, message: String| {
            let Some(file) = file else { return ConfigMistake::new(origin, message) };
            let at = |from: TextPosition, key: &str| find_key(&file.text, from, key);
            let begin = at(TextPosition::START, section).and_then(|from| at(from, id));
            let has = |key: &&str| {
                let pointer = format!("/{section}/{id}/{key}");
                entries.as_ref().is_some_and(|entries| entries.pointer(&pointer).is_some())
            };
            match begin {
                Some(begin) => {
                    ConfigMistake::at(file, key.filter(has).and_then(|key| at(begin, key)).unwrap_or(begin), message)
                }
                None => ConfigMistake::new(origin, message),
            }
        };
        let agents = catalog.agents();
        let unnamed = unnamed_tenant(agents);
        let mut of_tenants: BTreeMap<(&TenantId, PromptFinding), Vec<&str>> = BTreeMap::new();
        for agent in agents.all() {
            self.report.agents += 1;
            let own = PromptFinding::collect(&catalog, &unnamed, &agent.id);
            for tenant in agents.tenants() {
                for finding in
                    PromptFinding::collect(&catalog, tenant, &agent.id).into_iter().filter(|found| !own.contains(found))
                {
                    of_tenants.entry((tenant, finding)).or_default().push(agent.id.as_str());
                }
            }
            for finding in own {
                let message = format!("agent {}: {}", agent.id, finding.message);
                let mistake = mistake_at("agents", agent.id.as_str(), Some(finding.agent_key()), message);
                self.push(if finding.is_warning { mistake.into_warning() } else { mistake });
            }
        }
        let count = agents.all().count();
        for ((tenant, finding), affected) in of_tenants {
            let only =
                if affected.len() == count { String::new() } else { format!(" (agents {})", affected.join(", ")) };
            let message = format!("tenant {tenant}{only}: {}", finding.message);
            let mistake = mistake_at("tenants", tenant.as_str(), finding.tenant_key(), message);
            self.push(if finding.is_warning { mistake.into_warning() } else { mistake });
        }
        for warning in catalog.agents().warnings.clone() {
            self.push(ConfigMistake::new(origin, warning.trim_start_matches(&format!("{origin}:"))).into_warning());
        }
    }
}

/// Returns the names of the variables of this process that may be meant for ailoop.
fn variable_names() -> BTreeSet<String> {
    let texts = std::env::vars_os().filter_map(|(name, value)| value.into_string().and(name.into_string()).ok());
    texts.filter(|name| name.starts_with("AILOOP")).collect()
}
