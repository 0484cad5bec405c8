//! `agents.yaml`: its shape, and what makes it refused.

use std::collections::{BTreeMap, BTreeSet};

use contract::AiConfig;
use contract::command::Features;
use contract::compose::KnownAgent;
use contract::ids::{AgentId, TenantId, ToolName};
use contract::limits::{APPROVAL_RULES_MAX, GATE_MAX};
use contract::mail::PEOPLE;
use contract::settings::{ApprovalRule, ContinuationSettings, OnExpiry, ToolFilter};
use contract::tool::Approval;
use reply::TextPattern;
use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;
use service::config::ConfigError;
use service::continuation::{self, ContinuationEntry, Layer, Templates};
use service::paths::TextFile;
use service::{suggest, yaml};

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
    #[schemars(with = "BTreeMap<String, ToolSetShape>")]
    tool_sets: BTreeMap<String, ToolSet>,
    /// When a person is asked before a call, for every agent; an agent's own rules come first.
    #[serde(default)]
    approvals: Vec<ApprovalEntry>,
    /// Named settings, for `template` of a `continuation_config`, here and in models.yaml, and of a session. Each may begin
    /// with `multi_step_tool_work` or `plain_words`.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ContinuationEntry>")]
    continuation_templates: BTreeMap<String, Spanned<ContinuationEntry>>,
    /// What a tenant wants of every agent, by the tenant's id. It goes over what the agent says; a session goes over it.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, TenantEntry>")]
    tenants: BTreeMap<String, Spanned<TenantEntry>>,
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
    /// Its prompt, below prompts/agents; a file of its key's name where none is given.
    #[serde(default)]
    #[schemars(with = "Option<String>", regex(pattern = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\.md$"))]
    prompt_file: Option<Spanned<String>>,
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
    /// Its prompt and the requests to its model, where they differ from what the model says.
    #[serde(default)]
    #[schemars(with = "Option<AiConfig>")]
    ai_config: Option<Spanned<AiConfig>>,
}

/// What a tenant wants of every agent.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "tenant")]
struct TenantEntry {
    /// Prompt features.
    #[schemars(with = "FeaturesShape")]
    features: Features,
    /// How agents go on.
    continuation_config: ContinuationEntry,
    /// Prompts and requests to models.
    #[schemars(with = "Option<AiConfig>")]
    ai_config: Option<Spanned<AiConfig>>,
}

/// Which tools.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "tools")]
struct ToolsEntry {
    /// Names of `tool_sets`.
    #[schemars(with = "Vec<String>")]
    sets: Vec<Spanned<String>>,
    /// Names of tools; with `*` at its end one stands for all that begin so, and "*" for every tool of the tenant.
    #[schemars(with = "Vec<String>")]
    allow: Vec<Spanned<String>>,
    /// Names that are refused whatever else is said.
    #[schemars(with = "Vec<String>")]
    deny: Vec<Spanned<String>>,
    /// When a person is asked before a call.
    approvals: Vec<ApprovalEntry>,
}

/// A list of tools by name: just that, or with the other sets whose tools it has too.
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

// By hand, since an untagged enum would forget where in the file its parts stand.
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
    /// Names of tools.
    Tools(Vec<String>),
    /// Other sets, and names of tools.
    More {
        /// Sets whose tools it has too.
        #[serde(default)]
        extends: Vec<String>,
        /// Names of tools; with `*` at its end one stands for all that begin so.
        #[serde(default)]
        tools: Vec<String>,
    },
}

/// Whether a person is asked before a call. The first rule that fits counts, else what the tool says itself.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "approval")]
struct ApprovalEntry {
    /// The tool; with `*` at its end all that begin so.
    #[schemars(with = "String")]
    tool: Spanned<String>,
    /// JSON pointers into the arguments, such as /path or /command/0, and regular expressions for what stands there. All
    /// must match; where nothing stands, none does.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    when: BTreeMap<String, Spanned<String>>,
    /// What then.
    ask: Ask,
    /// Seconds that the question stays open; a day where nothing is said, and at most.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    expires: Option<Spanned<u64>>,
    /// What counts when nobody answers in time.
    #[serde(default)]
    on_expiry: OnExpiry,
}

/// Whether a person is asked.
#[derive(Deserialize, Clone, Copy, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ask")]
enum Ask {
    /// Nobody is asked.
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
                return Err(refuse(file, pattern, message));
            }
            TextPattern::compile(&pattern.value).map_err(|error| refuse(file, pattern, error))?;
        }
        if let Some(expires) =
            self.expires.as_ref().filter(|expires| !(1..=GATE_MAX.as_secs()).contains(&expires.value))
        {
            let message = format!("expires must be 1 to {} seconds, got {}", GATE_MAX.as_secs(), expires.value);
            return Err(refuse(file, expires, message));
        }
        Ok(ApprovalRule {
            tool: self.tool.value.clone(),
            when: self.when.iter().map(|(at, pattern)| (at.clone(), pattern.value.clone())).collect(),
            ask: match self.ask {
                Ask::Never => Approval::Never,
                Ask::Always => Approval::Always,
            },
            expires: self.expires.as_ref().map(|expires| expires.value),
            on_expiry: self.on_expiry,
        })
    }
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
    /// When a person is asked before a call.
    pub approvals: Vec<ApprovalRule>,
    /// What it switches on and off.
    pub features: Features,
    /// How it goes on, where it says so itself.
    pub continuation: Layer,
    /// What it says of its prompt and requests.
    pub ai_config: AiConfig,
}

/// What a tenant wants of every agent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tenant {
    /// What it switches on and off.
    pub features: Features,
    /// How agents go on.
    pub continuation: Layer,
    /// What it says of prompts and requests.
    pub ai_config: AiConfig,
}

/// All agents.
#[derive(Debug, Clone, PartialEq)]
pub struct Agents {
    by_id: BTreeMap<AgentId, Agent>,
    aliases: BTreeMap<AgentId, AgentId>,
    default: Option<AgentId>,
    tenants: BTreeMap<TenantId, Tenant>,
    templates: Templates,
    /// What is odd but not refused.
    pub warnings: Vec<String>,
}

/// Reads and checks the file.
pub fn parse(file: &TextFile) -> Result<Agents, ConfigError> {
    let (agents, mistakes) = read(file)?;
    mistakes.into_iter().next().map_or(Ok(agents), Err)
}

/// Everything that makes the file refused: of the parser the first mistake, of what can be read the first of each agent.
pub fn mistakes(file: &TextFile) -> Vec<ConfigError> {
    read(file).map_or_else(|error| vec![error], |(_, mistakes)| mistakes)
}

fn read(file: &TextFile) -> Result<(Agents, Vec<ConfigError>), ConfigError> {
    let read: AgentsFile = yaml::parse(file)?;
    let mut checked = Agents {
        by_id: BTreeMap::new(),
        aliases: BTreeMap::new(),
        default: None,
        tenants: BTreeMap::new(),
        templates: Templates::default(),
        warnings: Vec::new(),
    };
    let sets = Sets(&read.tool_sets);
    let mut mistakes: Vec<ConfigError> = sets.check(file).err().into_iter().collect();
    checked.templates.add(file, read.continuation_templates, &mut checked.warnings, &mut mistakes);
    for (id, entry) in read.tenants {
        if let Err(error) = checked.add_tenant(file, &id, entry) {
            mistakes.push(error);
        }
    }
    for (key, entry) in read.agents {
        if let Err(error) = checked.add(file, &sets, &read.approvals, &key, entry) {
            mistakes.push(error);
        }
    }
    if let Some(name) = read.default_agent {
        let known = AgentId::new(&name.value).ok().and_then(|id| checked.aliases.get(&id).cloned());
        if known.is_none() {
            let suggestion = checked.suggestion(&name.value);
            let message = format!("there is no agent {:?}{suggestion}; {}", name.value, checked.known());
            mistakes.push(refuse(file, &name, message));
        }
        checked.default = known;
    }
    Ok((checked, mistakes))
}

impl Agents {
    /// An agent by key or alias; the default one where none is named. The error names the known ones.
    pub fn find(&self, name: Option<&AgentId>) -> Result<&Agent, String> {
        let Some(name) = name.or(self.default.as_ref()) else {
            return Err(format!("no agent is named, and agents.yaml has no default_agent; {}", self.known()));
        };
        let found = self.aliases.get(name).and_then(|id| self.by_id.get(id));
        found.ok_or_else(|| format!("there is no agent {name}{}; {}", self.suggestion(name.as_str()), self.known()))
    }

    /// Every agent, by key.
    pub fn all(&self) -> impl Iterator<Item = &Agent> {
        self.by_id.values()
    }

    /// How an agent goes on with a model that says nothing, for a tenant that wants nothing.
    pub fn continuation_of(&self, agent: &Agent) -> ContinuationSettings {
        continuation::resolve(&self.templates, None, &[&agent.continuation]).unwrap_or_default()
    }

    /// What a tenant wants of every agent, where it wants something.
    pub fn tenant(&self, id: &TenantId) -> Option<&Tenant> {
        self.tenants.get(id)
    }

    /// The tenants that want something of every agent.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.tenants.keys()
    }

    /// How agents go on, as templates, tenants and agents say it.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        let tenants = self.tenants.values().map(|tenant| &tenant.continuation);
        self.templates.layers().iter().chain(tenants).chain(self.all().map(|agent| &agent.continuation))
    }

    /// The templates of continuation settings.
    pub fn templates(&self) -> &Templates {
        &self.templates
    }

    /// Every agent, as others address it.
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

    fn suggestion(&self, name: &str) -> String {
        let found = suggest::closest_name(name, self.aliases.keys().map(AgentId::as_str));
        found.map_or_else(String::new, |found| format!(" (did you mean {found}?)"))
    }

    fn known(&self) -> String {
        let names = self.by_id.values().map(|agent| format!("{} ({})", agent.id, agent.name));
        format!("there are {}", names.collect::<Vec<_>>().join(", "))
    }

    /// Takes an agent in, with its names.
    fn add(
        &mut self,
        file: &TextFile,
        sets: &Sets<'_>,
        approvals: &[ApprovalEntry],
        key: &str,
        entry: AgentEntry,
    ) -> Result<(), ConfigError> {
        let id = AgentId::new(key).map_err(|error| refuse(file, &entry.name, error))?;
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
                return Err(refuse(file, &entry.name, message));
            }
            if let Some(other) = self.aliases.insert(name.clone(), id.clone()) {
                return Err(refuse(file, &entry.name, format!("{name} stands for {other} and for {id}")));
            }
        }
        let agent = self.agent(file, sets, approvals, id.clone(), entry)?;
        self.by_id.insert(id, agent);
        Ok(())
    }

    fn add_tenant(&mut self, file: &TextFile, id: &str, entry: Spanned<TenantEntry>) -> Result<(), ConfigError> {
        let id = TenantId::new(id).map_err(|error| refuse(file, &entry, error))?;
        let TenantEntry { features, continuation_config, ai_config } = entry.value;
        let continuation = self.continuation(file, continuation_config)?;
        let ai_config = continuation::ai_config(file, ai_config)?;
        self.tenants.insert(id, Tenant { features, continuation, ai_config });
        Ok(())
    }

    fn continuation(&mut self, file: &TextFile, entry: ContinuationEntry) -> Result<Layer, ConfigError> {
        let layer = entry.check(file, &mut self.warnings)?;
        self.templates.knows(file, &layer)?;
        Ok(layer)
    }

    fn agent(
        &mut self,
        file: &TextFile,
        sets: &Sets<'_>,
        approvals: &[ApprovalEntry],
        id: AgentId,
        entry: AgentEntry,
    ) -> Result<Agent, ConfigError> {
        let prompt = match &entry.prompt_file {
            None => id.to_string(),
            Some(named) => prompt_name(&named.value).ok_or_else(|| {
                refuse(file, named, "a prompt_file is the name of a file below agents/, ending in .md")
            })?,
        };
        Ok(Agent {
            id,
            name: entry.name.value,
            prompt,
            model: entry.model.filter(|model| model != "default"),
            approvals: rules(file, &entry.tools.approvals, approvals)?,
            tools: filter(file, sets, entry.tools)?,
            features: entry.features,
            continuation: self.continuation(file, entry.continuation_config)?,
            ai_config: continuation::ai_config(file, entry.ai_config)?,
        })
    }

    fn warn<T>(&mut self, file: &TextFile, place: &Spanned<T>, message: impl std::fmt::Display) {
        self.warnings.push(refuse(file, place, message).to_string());
    }
}

/// The agent's rules, then those for every agent.
fn rules(file: &TextFile, own: &[ApprovalEntry], all: &[ApprovalEntry]) -> Result<Vec<ApprovalRule>, ConfigError> {
    let entries: Vec<&ApprovalEntry> = own.iter().chain(all).collect();
    if let Some(entry) = entries.get(APPROVAL_RULES_MAX) {
        return Err(refuse(file, &entry.tool, format!("at most {APPROVAL_RULES_MAX} approvals for one agent")));
    }
    entries.into_iter().map(|entry| entry.check(file)).collect()
}

/// The file's tool sets.
struct Sets<'a>(&'a BTreeMap<String, ToolSet>);

impl Sets<'_> {
    fn check(&self, file: &TextFile) -> Result<(), ConfigError> {
        for (name, set) in self.0 {
            for tool in &set.tools {
                check_tool(file, tool)?;
            }
            for other in &set.extends {
                self.find(file, other)?;
                if self.reaches(other, name, &mut BTreeSet::new()) {
                    return Err(refuse(file, other, format!("tool set {name} would extend itself by {}", other.value)));
                }
            }
        }
        Ok(())
    }

    fn find(&self, file: &TextFile, name: &Spanned<String>) -> Result<&ToolSet, ConfigError> {
        self.0.get(&name.value).ok_or_else(|| {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            let suggestion = suggest::did_you_mean(&name.value, known.iter().copied());
            let message = format!("there is no tool set {:?}{suggestion}; there are {}", name.value, known.join(", "));
            refuse(file, name, message)
        })
    }

    fn reaches<'b>(&'b self, from: &'b Spanned<String>, to: &str, seen: &mut BTreeSet<&'b str>) -> bool {
        from.value == to
            || seen.insert(&from.value)
                && self
                    .0
                    .get(&from.value)
                    .is_some_and(|set| set.extends.iter().any(|other| self.reaches(other, to, seen)))
    }

    /// Its tools, and those of the sets that it extends; they were checked, so there is no circle.
    fn tools(&self, file: &TextFile, name: &Spanned<String>) -> Result<Vec<String>, ConfigError> {
        let set = self.find(file, name)?;
        let mut tools: Vec<String> = set.tools.iter().map(|tool| tool.value.clone()).collect();
        for other in &set.extends {
            tools.extend(self.tools(file, other)?);
        }
        Ok(tools)
    }
}

fn filter(file: &TextFile, sets: &Sets<'_>, entry: ToolsEntry) -> Result<ToolFilter, ConfigError> {
    let mut filter = ToolFilter::default();
    for set in entry.sets {
        filter.allow.extend(sets.tools(file, &set)?);
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
    ToolName::new(name).map(|_| ()).map_err(|error| refuse(file, tool, error))
}

/// The name of a prompt without `.md`; none where it could lead out of its directory.
fn prompt_name(file: &str) -> Option<String> {
    let stem = file.strip_suffix(".md")?;
    // "agent_patricia.prompt.md" has a dot within its name.
    (stem.len() <= 64 && stem.split('.').all(crate::library::is_name)).then(|| stem.to_owned())
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
