//! `agents.yaml`: its shape, and what makes it refused.

use std::collections::{BTreeMap, BTreeSet};

use contract::command::Features;
use contract::ids::{AgentId, ToolName};
use contract::limits;
use contract::settings::{AgentSettings, ContinuationSettings, Limits, OnLimit, ToolFilter};
use serde::Deserialize;
use serde_saphyr::Spanned;
use service::config::ConfigError;
use service::paths::TextFile;
use service::yaml;

/// The file's name.
pub const FILE: &str = "agents.yaml";
/// Outside of these a number of steps is odd.
const ITERATIONS_USUAL: std::ops::RangeInclusive<u32> = 1..=20;
/// Outside of these a turn's seconds are odd.
const TIMEOUT_USUAL: std::ops::RangeInclusive<u64> = 60..=3_600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentsFile {
    #[serde(default)]
    default_agent: Option<Spanned<String>>,
    #[serde(default)]
    tool_sets: BTreeMap<String, Vec<Spanned<String>>>,
    agents: BTreeMap<String, AgentEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentEntry {
    name: Spanned<String>,
    prompt_file: Spanned<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    tools: ToolsEntry,
    #[serde(default)]
    features: Features,
    #[serde(default)]
    continuation_config: ContinuationEntry,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct ToolsEntry {
    sets: Vec<Spanned<String>>,
    allow: Vec<Spanned<String>>,
    deny: Vec<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct ContinuationEntry {
    template: Option<Spanned<String>>,
    require_explicit_signal: Option<bool>,
    max_iterations: Option<Spanned<u32>>,
    timeout: Option<Spanned<u64>>,
    continue_on_length: Option<bool>,
    #[serde(alias = "patterns")]
    continuation_patterns: Option<Vec<Spanned<String>>>,
    termination_patterns: Option<Vec<Spanned<String>>>,
    limits: Option<Limits>,
    on_limit: Option<OnLimit>,
}

/// An agent as the composer needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// What a session commits.
    pub settings: AgentSettings,
    /// Its prompt below `agents/`, without `.md`.
    pub prompt: String,
    /// Its model; none means the default.
    pub model: Option<String>,
    /// What it switches on and off.
    pub features: Features,
}

/// All agents.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Agents {
    by_id: BTreeMap<AgentId, Agent>,
    aliases: BTreeMap<AgentId, AgentId>,
    default: Option<AgentId>,
    /// Patterns that can be used.
    patterns: BTreeSet<String>,
    /// What is odd but not refused.
    pub warnings: Vec<String>,
}

/// Reads and checks the file.
pub fn parse(file: &TextFile) -> Result<Agents, ConfigError> {
    let read: AgentsFile = yaml::parse(file)?;
    let mut checked = Agents::default();
    for tool in read.tool_sets.values().flatten() {
        check_tool(file, tool)?;
    }
    for (key, entry) in read.agents {
        let id = AgentId::new(&key).map_err(|error| refuse(file, &entry.name, error))?;
        let first = entry.name.value.split_whitespace().next().unwrap_or_default().to_lowercase();
        let mut names = vec![id.clone()];
        match AgentId::new(&first) {
            Ok(alias) if alias != id => names.push(alias),
            Ok(_) => {}
            Err(_) => checked.warn(file, &entry.name, format!("{first:?} cannot be an alias; use {key:?}")),
        }
        for name in names {
            if let Some(other) = checked.aliases.insert(name.clone(), id.clone()) {
                return Err(refuse(file, &entry.name, format!("{name} stands for {other} and for {id}")));
            }
        }
        let agent = checked.agent(file, &read.tool_sets, id.clone(), entry)?;
        checked.by_id.insert(id, agent);
    }
    if let Some(name) = read.default_agent {
        let known = AgentId::new(&name.value).ok().and_then(|id| checked.aliases.get(&id).cloned());
        let Some(id) = known else {
            return Err(refuse(file, &name, format!("there is no agent {:?}; {}", name.value, checked.known())));
        };
        checked.default = Some(id);
    }
    Ok(checked)
}

impl Agents {
    /// An agent by key or alias; the default one where none is named. The error names the known ones.
    pub fn find(&self, name: Option<&AgentId>) -> Result<&Agent, String> {
        let Some(name) = name.or(self.default.as_ref()) else {
            return Err(format!("no agent is named, and agents.yaml has no default_agent; {}", self.known()));
        };
        let found = self.aliases.get(name).and_then(|id| self.by_id.get(id));
        found.ok_or_else(|| format!("there is no agent {name}; {}", self.known()))
    }

    /// Every agent, by key.
    pub fn all(&self) -> impl Iterator<Item = &Agent> {
        self.by_id.values()
    }

    fn known(&self) -> String {
        let names = self.by_id.values().map(|agent| format!("{} ({})", agent.settings.id, agent.settings.name));
        format!("there are {}", names.collect::<Vec<_>>().join(", "))
    }

    fn agent(
        &mut self,
        file: &TextFile,
        sets: &BTreeMap<String, Vec<Spanned<String>>>,
        id: AgentId,
        entry: AgentEntry,
    ) -> Result<Agent, ConfigError> {
        let prompt = prompt_name(&entry.prompt_file.value).ok_or_else(|| {
            refuse(file, &entry.prompt_file, "a prompt_file is the name of a file below agents/, ending in .md")
        })?;
        let tools = filter(file, sets, entry.tools)?;
        let continuation = self.continuation(file, entry.continuation_config)?;
        let model = entry.model.filter(|model| model != "default");
        let settings = AgentSettings { id, name: entry.name.value, continuation, tools };
        Ok(Agent { settings, prompt, model, features: entry.features })
    }

    fn continuation(&mut self, file: &TextFile, entry: ContinuationEntry) -> Result<ContinuationSettings, ConfigError> {
        let mut settings = match &entry.template {
            Some(name) => reply::template(&name.value).ok_or_else(|| {
                let known: Vec<&str> = reply::TEMPLATES.iter().map(|template| template.name).collect();
                refuse(file, name, format!("there is no template {:?}; there are {}", name.value, known.join(", ")))
            })?,
            None => ContinuationSettings::default(),
        };
        if let Some(iterations) = entry.max_iterations {
            let (value, max) = (iterations.value, limits::ITERATIONS_MAX);
            if value < 1 || value > max {
                return Err(refuse(file, &iterations, format!("max_iterations must be 1 to {max}, got {value}")));
            }
            if !ITERATIONS_USUAL.contains(&value) {
                self.warn(file, &iterations, format!("max_iterations {value} is unusual; 1 to 20 is usual"));
            }
            settings.max_iterations = value;
        }
        if let Some(timeout) = entry.timeout {
            let value = timeout.value;
            if value == 0 {
                return Err(refuse(file, &timeout, "timeout must be at least 1 second"));
            }
            if !TIMEOUT_USUAL.contains(&value) {
                self.warn(file, &timeout, format!("timeout {value} s is unusual; 60 to 3600 is usual"));
            }
            settings.timeout = value;
        }
        settings.require_explicit_signal = entry.require_explicit_signal.unwrap_or(settings.require_explicit_signal);
        settings.limits = entry.limits.unwrap_or(settings.limits);
        settings.on_limit = entry.on_limit.unwrap_or(settings.on_limit);
        settings.continue_on_length = entry.continue_on_length.unwrap_or(settings.continue_on_length);
        if let Some(list) = entry.continuation_patterns {
            settings.continuation_patterns = checked_patterns(file, list, &mut self.patterns)?;
        }
        if let Some(list) = entry.termination_patterns {
            settings.termination_patterns = checked_patterns(file, list, &mut self.patterns)?;
        }
        Ok(settings)
    }

    fn warn<T>(&mut self, file: &TextFile, place: &Spanned<T>, message: impl std::fmt::Display) {
        self.warnings.push(refuse(file, place, message).to_string());
    }
}

/// Checks each pattern once, however often an alias repeats it: compiling one takes milliseconds.
fn checked_patterns(
    file: &TextFile,
    list: Vec<Spanned<String>>,
    known: &mut BTreeSet<String>,
) -> Result<Vec<String>, ConfigError> {
    let max = reply::PATTERNS_MAX;
    if let Some(pattern) = list.get(max) {
        return Err(refuse(file, pattern, format!("at most {max} patterns in one list")));
    }
    for pattern in &list {
        if !known.contains(&pattern.value) {
            reply::Patterns::check(&pattern.value).map_err(|error| refuse(file, pattern, error))?;
            known.insert(pattern.value.clone());
        }
    }
    Ok(list.into_iter().map(|pattern| pattern.value).collect())
}

fn filter(
    file: &TextFile,
    sets: &BTreeMap<String, Vec<Spanned<String>>>,
    entry: ToolsEntry,
) -> Result<ToolFilter, ConfigError> {
    let mut filter = ToolFilter::default();
    for set in entry.sets {
        let Some(tools) = sets.get(&set.value) else {
            let known: Vec<&str> = sets.keys().map(String::as_str).collect();
            let message = format!("there is no tool set {:?}; there are {}", set.value, known.join(", "));
            return Err(refuse(file, &set, message));
        };
        filter.allow.extend(tools.iter().map(|tool| tool.value.clone()));
    }
    for (list, into) in [(entry.allow, &mut filter.allow), (entry.deny, &mut filter.deny)] {
        for tool in list {
            check_tool(file, &tool)?;
            into.push(tool.value);
        }
        into.sort();
        into.dedup();
    }
    Ok(filter)
}

fn check_tool(file: &TextFile, tool: &Spanned<String>) -> Result<(), ConfigError> {
    if tool.value == "*" {
        return Ok(());
    }
    ToolName::new(&tool.value).map(|_| ()).map_err(|error| refuse(file, tool, error))
}

/// The name of a prompt without `.md`; none where it could lead out of its directory.
fn prompt_name(file: &str) -> Option<String> {
    let stem = file.strip_suffix(".md")?;
    crate::library::is_name(stem).then(|| stem.to_owned())
}

fn refuse<T>(file: &TextFile, place: &Spanned<T>, message: impl std::fmt::Display) -> ConfigError {
    yaml::at(file, place.referenced, message)
}
