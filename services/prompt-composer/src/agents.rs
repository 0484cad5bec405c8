//! `agents.yaml`: its shape, and what makes it refused.

use std::collections::BTreeMap;

use contract::command::Features;
use contract::compose::KnownAgent;
use contract::ids::{AgentId, ToolName};
use contract::settings::{AgentSettings, ToolFilter};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;
use service::config::ConfigError;
use service::continuation::{self, ContinuationEntry, Layer};
use service::paths::TextFile;
use service::yaml;

/// The file's name.
pub const FILE: &str = "agents.yaml";

/// Agents: who they are, what they may use, and how they go on.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "agents.yaml")]
struct AgentsFile {
    /// The agent of sessions that name none: a key or an alias.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    default_agent: Option<Spanned<String>>,
    /// Lists of tools by name, so that agents can share them.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Vec<String>>")]
    tool_sets: BTreeMap<String, Vec<Spanned<String>>>,
    /// By key, in lower case; the first word of a name is an alias.
    agents: BTreeMap<String, AgentEntry>,
}

/// One agent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "agent")]
struct AgentEntry {
    /// As people read it.
    #[schemars(with = "String")]
    name: Spanned<String>,
    /// Its prompt, below prompts/agents.
    #[schemars(with = "String", regex(pattern = r"^[A-Za-z0-9_-]{1,64}\.md$"))]
    prompt_file: Spanned<String>,
    /// A model id of models.yaml, or provider/name; the default model where none is given.
    #[serde(default)]
    model: Option<String>,
    /// What it may use; what no rule permits is refused.
    #[serde(default)]
    tools: ToolsEntry,
    /// Prompt features, beside those of all agents.
    #[serde(default)]
    #[schemars(with = "FeaturesShape")]
    features: Features,
    /// How it goes on, where it differs from what its model, or a template, or ailoop says.
    #[serde(default)]
    continuation_config: ContinuationEntry,
}

/// Which tools.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "tools")]
struct ToolsEntry {
    /// Names of `tool_sets`.
    #[schemars(with = "Vec<String>")]
    sets: Vec<Spanned<String>>,
    /// Names of tools, or "*" for every tool of the tenant.
    #[schemars(with = "Vec<String>")]
    allow: Vec<Spanned<String>>,
    /// Names that are refused whatever else is said.
    #[schemars(with = "Vec<String>")]
    deny: Vec<Spanned<String>>,
}

/// [`Features`] for the schema, since the contract knows nothing of schemas; a test holds their fields together.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "features")]
#[allow(dead_code, reason = "only its shape is used")]
struct FeaturesShape {
    /// Switched on.
    enable: Vec<String>,
    /// Switched off.
    disable: Vec<String>,
}

/// The file's JSON Schema.
pub fn schema() -> serde_json::Value {
    service::schema::of::<AgentsFile>("agents.yaml of ailoop")
}

/// An agent as the composer needs it. What a session commits of it depends on its model too.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// Its key.
    pub id: AgentId,
    /// Its name, as people read it.
    pub name: String,
    /// Its prompt below `agents/`, without `.md`.
    pub prompt: String,
    /// Its model; none means the default.
    pub model: Option<String>,
    /// What it may use.
    pub tools: ToolFilter,
    /// What it switches on and off.
    pub features: Features,
    /// How it goes on, where it says so itself.
    pub continuation: Layer,
}

impl Agent {
    /// What a session commits, with a model that has settings of its own.
    pub fn settings(&self, model: &Layer) -> AgentSettings {
        AgentSettings {
            id: self.id.clone(),
            name: self.name.clone(),
            continuation: continuation::resolve(model, &self.continuation),
            tools: self.tools.clone(),
        }
    }
}

/// All agents.
#[derive(Debug, Clone, PartialEq)]
pub struct Agents {
    by_id: BTreeMap<AgentId, Agent>,
    aliases: BTreeMap<AgentId, AgentId>,
    default: Option<AgentId>,
    /// What is odd but not refused.
    pub warnings: Vec<String>,
}

/// Reads and checks the file.
pub fn parse(file: &TextFile) -> Result<Agents, ConfigError> {
    let read: AgentsFile = yaml::parse(file)?;
    let mut checked = Agents { by_id: BTreeMap::new(), aliases: BTreeMap::new(), default: None, warnings: Vec::new() };
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

    /// Every agent, as others address it.
    pub fn addresses(&self) -> Vec<KnownAgent> {
        let known = |Agent { id, name, tools, .. }: &Agent| {
            let aliases = self.aliases.iter().filter(|(alias, of)| *of == id && *alias != id);
            let aliases = aliases.map(|(alias, _)| alias.clone()).collect();
            KnownAgent { id: id.clone(), name: name.clone(), aliases, tools: tools.clone() }
        };
        self.all().map(known).collect()
    }

    fn known(&self) -> String {
        let names = self.by_id.values().map(|agent| format!("{} ({})", agent.id, agent.name));
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
        Ok(Agent {
            id,
            name: entry.name.value,
            prompt,
            model: entry.model.filter(|model| model != "default"),
            tools: filter(file, sets, entry.tools)?,
            features: entry.features,
            continuation: entry.continuation_config.check(file, &mut self.warnings)?,
        })
    }

    fn warn<T>(&mut self, file: &TextFile, place: &Spanned<T>, message: impl std::fmt::Display) {
        self.warnings.push(refuse(file, place, message).to_string());
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_the_shape_that_the_schema_tells() {
        use service::schema::names_of;
        assert_eq!(names_of::<FeaturesShape>(), names_of::<Features>());
    }
}
