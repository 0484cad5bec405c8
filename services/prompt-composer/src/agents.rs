//! Parses and checks `agents.yaml`.

use std::collections::{BTreeMap, BTreeSet};

use configuration::ConfigError;
use configuration::TextFile;
use configuration::continuation::{self, ContinuationEntry, Layer, Templates};
use configuration::{suggest, yaml};
use contract::AiConfig;
use contract::command::Features;
use contract::compose::KnownAgent;
use contract::ids::{AgentId, TenantId, ToolName};
use contract::limits::{APPROVAL_RULES_MAX, GATE_MAX};
use contract::mail::PEOPLE;
use contract::settings::{ApprovalRule, OnExpiry, ToolFilter};
use contract::tool::ApprovalPolicy;
use reply::TextPattern;
use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

/// Name of the file.
pub const FILE: &str = "agents.yaml";

/// Agents: their prompts, their tools, and how they continue.
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
    #[schemars(with = "BTreeMap<String, ToolSetShape>")]
    tool_sets: BTreeMap<String, ToolSet>,
    /// Rules on when a person is asked before a call, for every agent. The rules of an agent precede them.
    #[serde(default)]
    approvals: Vec<ApprovalEntry>,
    /// Named settings, for `template` of a `continuation_config`, here and in models.yaml, and of a session. Each may
    /// begin with `multi_step_tool_work` or `plain_words`.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ContinuationEntry>")]
    continuation_templates: BTreeMap<String, Spanned<ContinuationEntry>>,
    /// Settings of a tenant for every agent, by the tenant's id. They replace those of the agent, and those of a
    /// session replace them.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, TenantEntry>")]
    tenants: BTreeMap<String, Spanned<TenantEntry>>,
    /// Agents by key, in lower case. The first word of a name is an alias.
    agents: BTreeMap<String, AgentEntry>,
}

/// An agent with its prompt, its model and its tools.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "agent")]
struct AgentEntry {
    /// Display name, for people.
    #[schemars(with = "String")]
    name: Spanned<String>,
    /// File of the prompt, below prompts/agents; by default the file with the name of the key.
    #[serde(default)]
    #[schemars(with = "Option<String>", regex(pattern = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\.md$"))]
    prompt_file: Option<Spanned<String>>,
    /// A model id of models.yaml, or provider/name; by default the default model.
    #[serde(default)]
    model: Option<String>,
    /// Tools that the agent may use. A tool that no rule permits is refused.
    #[serde(default)]
    tools: ToolsEntry,
    /// Prompt features, besides those of all agents.
    #[serde(default)]
    #[schemars(with = "FeaturesShape")]
    features: Features,
    /// Continuation settings of the agent. They replace settings of the model, and the defaults.
    #[serde(default)]
    continuation_config: ContinuationEntry,
    /// Prompt and requests to the model. They replace settings of the model.
    #[serde(default)]
    #[schemars(with = "Option<AiConfig>")]
    ai_config: Option<Spanned<AiConfig>>,
}

/// Settings of a tenant for every agent.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "tenant")]
struct TenantEntry {
    /// Prompt features that are on or off for every agent.
    #[schemars(with = "FeaturesShape")]
    features: Features,
    /// Continuation settings for all agents of the tenant.
    continuation_config: ContinuationEntry,
    /// Prompts and requests to models.
    #[schemars(with = "Option<AiConfig>")]
    ai_config: Option<Spanned<AiConfig>>,
}

/// The tools that an agent may use.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "tools")]
struct ToolsEntry {
    /// Names of `tool_sets` whose tools are permitted.
    #[schemars(with = "Vec<String>")]
    sets: Vec<Spanned<String>>,
    /// Names of tools. With `*` at its end a name is a prefix, and "*" permits every tool of the tenant.
    #[schemars(with = "Vec<String>")]
    allow: Vec<Spanned<String>>,
    /// Names of tools that are refused although another rule permits them.
    #[schemars(with = "Vec<String>")]
    deny: Vec<Spanned<String>>,
    /// Rules on when a person is asked before a call.
    approvals: Vec<ApprovalEntry>,
}

/// A list of names of tools, which may include other sets.
#[derive(Default)]
struct ToolSet {
    extends: Vec<Spanned<String>>,
    tools: Vec<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct ToolSetMore {
    extends: Vec<Spanned<String>>,
    tools: Vec<Spanned<String>>,
}

// By hand, since an untagged enum would lose the positions of its parts in the file.
impl<'de> Deserialize<'de> for ToolSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ToolSet;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of tools, or `extends` and `tools`")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<ToolSet, A::Error> {
                let tools = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(ToolSet { extends: Vec::new(), tools })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ToolSet, A::Error> {
                let ToolSetMore { extends, tools } = ToolSetMore::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ToolSet { extends, tools })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// [`ToolSet`] for the schema.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "tool_set")]
#[allow(dead_code, reason = "only its shape is used")]
enum ToolSetShape {
    /// A list of names of tools.
    Tools(Vec<String>),
    /// Other sets, and names of tools.
    More {
        /// Names of sets whose tools are included.
        #[serde(default)]
        extends: Vec<String>,
        /// Names of tools. With `*` at its end a name is a prefix.
        #[serde(default)]
        tools: Vec<String>,
    },
}

/// Rule on whether a person is asked before a call. The first rule that matches decides, and else the tool.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "approval")]
struct ApprovalEntry {
    /// Name of the tool. With `*` at its end it is a prefix.
    #[schemars(with = "String")]
    tool: Spanned<String>,
    /// Regular expressions by JSON pointer into the arguments, such as /path or /command/0. All must match. A missing
    /// value does not match.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    when: BTreeMap<String, Spanned<String>>,
    /// Whether a person is asked before such a call.
    ask: Ask,
    /// Seconds until the question expires; by default and at most one day.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    expires: Option<Spanned<u64>>,
    /// Decision if the question expires without an answer.
    #[serde(default)]
    on_expiry: OnExpiry,
}

/// Whether a person is asked.
#[derive(Deserialize, Clone, Copy, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ask")]
enum Ask {
    /// Such a call runs without a question.
    Never,
    /// Each such call waits for a person.
    Always,
}

impl ApprovalEntry {
    fn check(&self, file: &TextFile) -> Result<ApprovalRule, ConfigError> {
        check_tool(file, &self.tool)?;
        for (at, pattern) in &self.when {
            if !at.is_empty() && !at.starts_with('/') {
                let message = format!("{at:?} is no JSON pointer: write /{at}");
                return Err(error_at(file, pattern, message));
            }
            TextPattern::compile(&pattern.value).map_err(|error| error_at(file, pattern, error))?;
        }
        if let Some(expires) =
            self.expires.as_ref().filter(|expires| !(1..=GATE_MAX.as_secs()).contains(&expires.value))
        {
            let message = format!("expires must be 1 to {} seconds, got {}", GATE_MAX.as_secs(), expires.value);
            return Err(error_at(file, expires, message));
        }
        Ok(ApprovalRule {
            tool: self.tool.value.clone(),
            when: self.when.iter().map(|(at, pattern)| (at.clone(), pattern.value.clone())).collect(),
            ask: match self.ask {
                Ask::Never => ApprovalPolicy::Never,
                Ask::Always => ApprovalPolicy::Always,
            },
            expires: self.expires.as_ref().map(|expires| expires.value),
            on_expiry: self.on_expiry,
        })
    }
}

/// Schema of [`Features`], since the contract has no schemas. A test compares their fields.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "features")]
#[allow(dead_code, reason = "only its shape is used")]
struct FeaturesShape {
    /// Features that are switched on.
    enable: Vec<String>,
    /// Features that are switched off.
    disable: Vec<String>,
}

/// JSON Schema of the file.
pub fn schema() -> serde_json::Value {
    configuration::schema::of::<AgentsFile>("agents.yaml of ailoop")
}

/// An agent with its settings. The settings that a session commits depend on the model too.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// Key in the file.
    pub id: AgentId,
    /// Name for people to read.
    pub name: String,
    /// File of its prompt below `agents/`, without `.md`.
    pub prompt: String,
    /// Model id; `None` means the default model.
    pub model: Option<String>,
    /// Tools that it may use.
    pub tools: ToolFilter,
    /// Rules for when a person must approve a call.
    pub approvals: Vec<ApprovalRule>,
    /// Features that it switches on and off.
    pub features: Features,
    /// Continuation settings that the agent sets itself.
    pub continuation: Layer,
    /// Settings of its prompt and of requests to its model.
    pub ai_config: AiConfig,
}

/// Settings of a tenant for all agents.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tenant {
    /// Features that it switches on and off.
    pub features: Features,
    /// Continuation settings of all agents.
    pub continuation: Layer,
    /// Settings of prompts and of requests to models.
    pub ai_config: AiConfig,
}

/// All agents, tenants and templates of the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Agents {
    by_id: BTreeMap<AgentId, Agent>,
    aliases: BTreeMap<AgentId, AgentId>,
    default: Option<AgentId>,
    tenants: BTreeMap<TenantId, Tenant>,
    templates: Templates,
    /// Warnings about entries that are accepted.
    pub warnings: Vec<String>,
}

/// Parses and checks the file. Returns the first error.
pub fn parse(file: &TextFile) -> Result<Agents, ConfigError> {
    let (agents, errors) = read(file)?;
    errors.into_iter().next().map_or(Ok(agents), Err)
}

/// Finds the errors in the values of the file: the first one of each entry. The error is one in its shape, for which no
/// value is checked.
pub fn find_errors(file: &TextFile) -> Result<Vec<ConfigError>, ConfigError> {
    read(file).map(|(_, errors)| errors)
}

fn read(file: &TextFile) -> Result<(Agents, Vec<ConfigError>), ConfigError> {
    let read: AgentsFile = yaml::parse(file)?;
    let mut checked = Agents::default();
    let sets = ToolSets(&read.tool_sets);
    let mut errors: Vec<ConfigError> = sets.check(file).err().into_iter().collect();
    checked.templates.add(file, read.continuation_templates, &mut checked.warnings, &mut errors);
    for (id, entry) in read.tenants {
        if let Err(error) = checked.add_tenant(file, &id, entry) {
            errors.push(error);
        }
    }
    for (key, entry) in read.agents {
        if let Err(error) = checked.add_agent(file, &sets, &read.approvals, &key, entry) {
            errors.push(error);
        }
    }
    if let Some(name) = read.default_agent {
        let known = AgentId::new(&name.value).ok().and_then(|id| checked.aliases.get(&id).cloned());
        if known.is_none() {
            let suggestion = checked.suggest_name(&name.value);
            let message = format!("there is no agent {:?}{suggestion}; {}", name.value, checked.describe_known());
            errors.push(error_at(file, &name, message));
        }
        checked.default = known;
    }
    Ok((checked, errors))
}

impl Agents {
    /// Finds an agent by key or alias, or the default agent if `name` is `None`. The error lists the known agents.
    pub fn find(&self, name: Option<&AgentId>) -> Result<&Agent, String> {
        let Some(name) = name.or(self.default.as_ref()) else {
            return Err(format!("no agent is named, and agents.yaml has no default_agent; {}", self.describe_known()));
        };
        let found = self.aliases.get(name).and_then(|id| self.by_id.get(id));
        found.ok_or_else(|| {
            format!("there is no agent {name}{}; {}", self.suggest_name(name.as_str()), self.describe_known())
        })
    }

    /// All agents in the order of their keys.
    pub fn all(&self) -> impl Iterator<Item = &Agent> {
        self.by_id.values()
    }

    /// Returns the settings of a tenant for all agents, if it has some.
    pub fn tenant(&self, id: &TenantId) -> Option<&Tenant> {
        self.tenants.get(id)
    }

    /// The tenants that have settings for all agents.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.tenants.keys()
    }

    /// The continuation settings of all templates, tenants and agents.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        let tenants = self.tenants.values().map(|tenant| &tenant.continuation);
        self.templates.layers().iter().chain(tenants).chain(self.all().map(|agent| &agent.continuation))
    }

    /// The templates of continuation settings.
    pub fn templates(&self) -> &Templates {
        &self.templates
    }

    /// Lists the agents by the names under which others address them.
    pub fn addresses(&self) -> Vec<KnownAgent> {
        let known = |Agent { id, name, tools, model, .. }: &Agent| {
            let aliases = self.aliases.iter().filter(|(alias, of)| *of == id && *alias != id);
            KnownAgent {
                id: id.clone(),
                name: name.clone(),
                aliases: aliases.map(|(alias, _)| alias.clone()).collect(),
                tools: tools.clone(),
                model: model.clone(),
                is_default: self.default.as_ref() == Some(id),
            }
        };
        self.all().map(known).collect()
    }

    fn suggest_name(&self, name: &str) -> String {
        let found = suggest::closest_name(name, self.aliases.keys().map(AgentId::as_str));
        found.map_or_else(String::new, |found| format!(" (did you mean {found}?)"))
    }

    fn describe_known(&self) -> String {
        let names = self.by_id.values().map(|agent| format!("{} ({})", agent.id, agent.name));
        format!("there are {}", names.collect::<Vec<_>>().join(", "))
    }

    /// Adds an agent under its key and its alias.
    fn add_agent(
        &mut self,
        file: &TextFile,
        sets: &ToolSets<'_>,
        approvals: &[ApprovalEntry],
        key: &str,
        entry: AgentEntry,
    ) -> Result<(), ConfigError> {
        let id = AgentId::new(key).map_err(|error| error_at(file, &entry.name, error))?;
        let first = entry.name.value.split_whitespace().next().unwrap_or_default().to_lowercase();
        let mut names = vec![id.clone()];
        match AgentId::new(&first) {
            Ok(alias) if alias != id => names.push(alias),
            Ok(_) => {}
            Err(_) => self.warn(file, &entry.name, format!("{first:?} cannot be an alias; use {key:?}")),
        }
        for name in names {
            if name.as_str() == PEOPLE {
                let message = format!("{PEOPLE:?} is the mailbox of people: give the agent another key and first name");
                return Err(error_at(file, &entry.name, message));
            }
            if let Some(other) = self.aliases.insert(name.clone(), id.clone()) {
                return Err(error_at(file, &entry.name, format!("{name} stands for {other} and for {id}")));
            }
        }
        let agent = self.read_agent(file, sets, approvals, id.clone(), entry)?;
        self.by_id.insert(id, agent);
        Ok(())
    }

    fn add_tenant(&mut self, file: &TextFile, id: &str, entry: Spanned<TenantEntry>) -> Result<(), ConfigError> {
        let id = TenantId::new(id).map_err(|error| error_at(file, &entry, error))?;
        let TenantEntry { features, continuation_config, ai_config } = entry.value;
        let continuation = self.read_continuation(file, continuation_config)?;
        let ai_config = continuation::ai_config(file, ai_config)?;
        self.tenants.insert(id, Tenant { features, continuation, ai_config });
        Ok(())
    }

    fn read_continuation(&mut self, file: &TextFile, entry: ContinuationEntry) -> Result<Layer, ConfigError> {
        let layer = entry.check(file, &mut self.warnings)?;
        self.templates.knows(file, &layer)?;
        Ok(layer)
    }

    fn read_agent(
        &mut self,
        file: &TextFile,
        sets: &ToolSets<'_>,
        approvals: &[ApprovalEntry],
        id: AgentId,
        entry: AgentEntry,
    ) -> Result<Agent, ConfigError> {
        let prompt = match &entry.prompt_file {
            None => id.to_string(),
            Some(named) => parse_prompt_name(&named.value).ok_or_else(|| {
                error_at(file, named, "a prompt_file is the name of a file below agents/, ending in .md")
            })?,
        };
        Ok(Agent {
            id,
            name: entry.name.value,
            prompt,
            model: entry.model.filter(|model| model != "default"),
            approvals: merge_approvals(file, &entry.tools.approvals, approvals)?,
            tools: read_filter(file, sets, entry.tools)?,
            features: entry.features,
            continuation: self.read_continuation(file, entry.continuation_config)?,
            ai_config: continuation::ai_config(file, entry.ai_config)?,
        })
    }

    fn warn<T>(&mut self, file: &TextFile, node: &Spanned<T>, message: impl std::fmt::Display) {
        self.warnings.push(error_at(file, node, message).to_string());
    }
}

/// Checks the rules of the agent, followed by those of all agents.
fn merge_approvals(
    file: &TextFile,
    own: &[ApprovalEntry],
    all: &[ApprovalEntry],
) -> Result<Vec<ApprovalRule>, ConfigError> {
    let entries: Vec<&ApprovalEntry> = own.iter().chain(all).collect();
    if let Some(entry) = entries.get(APPROVAL_RULES_MAX) {
        return Err(error_at(file, &entry.tool, format!("at most {APPROVAL_RULES_MAX} approvals for one agent")));
    }
    entries.into_iter().map(|entry| entry.check(file)).collect()
}

/// The tool sets of the file.
struct ToolSets<'a>(&'a BTreeMap<String, ToolSet>);

impl ToolSets<'_> {
    fn check(&self, file: &TextFile) -> Result<(), ConfigError> {
        for (name, set) in self.0 {
            for tool in &set.tools {
                check_tool(file, tool)?;
            }
            for other in &set.extends {
                self.find(file, other)?;
                if self.extends_set(other, name, &mut BTreeSet::new()) {
                    let message = format!("tool set {name} would extend itself by {}", other.value);
                    return Err(error_at(file, other, message));
                }
            }
        }
        Ok(())
    }

    fn find(&self, file: &TextFile, name: &Spanned<String>) -> Result<&ToolSet, ConfigError> {
        self.0.get(&name.value).ok_or_else(|| {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            let suggestion = suggest::did_you_mean(&name.value, known.iter().copied());
            let known = match known.as_slice() {
                [] => "agents.yaml has no tool_sets".to_owned(),
                known => format!("there are {}", known.join(", ")),
            };
            let message = format!("there is no tool set {:?}{suggestion}; {known}", name.value);
            error_at(file, name, message)
        })
    }

    fn extends_set<'b>(&'b self, from: &'b Spanned<String>, to: &str, visited: &mut BTreeSet<&'b str>) -> bool {
        from.value == to
            || visited.insert(&from.value)
                && self
                    .0
                    .get(&from.value)
                    .is_some_and(|set| set.extends.iter().any(|other| self.extends_set(other, to, visited)))
    }

    /// Lists the tools of a set and of the sets that it extends. The sets were checked, so there is no cycle.
    fn collect_tools(&self, file: &TextFile, name: &Spanned<String>) -> Result<Vec<String>, ConfigError> {
        let set = self.find(file, name)?;
        let mut tools: Vec<String> = set.tools.iter().map(|tool| tool.value.clone()).collect();
        for other in &set.extends {
            tools.extend(self.collect_tools(file, other)?);
        }
        Ok(tools)
    }
}

fn read_filter(file: &TextFile, sets: &ToolSets<'_>, entry: ToolsEntry) -> Result<ToolFilter, ConfigError> {
    let mut filter = ToolFilter::default();
    for set in entry.sets {
        filter.allow.extend(sets.collect_tools(file, &set)?);
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
    let name = tool.value.strip_suffix('*').unwrap_or(&tool.value);
    if name.is_empty() && tool.value == "*" {
        return Ok(());
    }
    ToolName::new(name).map(|_| ()).map_err(|error| error_at(file, tool, error))
}

/// Returns the name of a prompt without `.md`, or `None` if it could lead out of its directory.
fn parse_prompt_name(file: &str) -> Option<String> {
    let stem = file.strip_suffix(".md")?;
    // "agent_patricia.prompt.md" has a dot within its name.
    (stem.len() <= 64 && stem.split('.').all(crate::library::is_name)).then(|| stem.to_owned())
}

fn error_at<T>(file: &TextFile, node: &Spanned<T>, message: impl std::fmt::Display) -> ConfigError {
    yaml::at(file, node.referenced, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_schema_has_the_same_fields() {
        use configuration::schema::names_of;
        assert_eq!(names_of::<FeaturesShape>(), names_of::<Features>());
    }
}
