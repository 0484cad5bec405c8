//! A prompt out of its parts, in the one order that there is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use contract::compose::{Component, ComposeRequest};
use contract::settings::{AgentSettings, ModelSettings, names_tool};
use contract::tool::ToolSpec;
use contract::{AiConfig, ToolName};
use sha2::{Digest, Sha256};

use crate::agents::{Agent, Tenant};
use crate::features::{self, CONTINUATION, CORE, MAILBOX, OUTPUT_FORMAT, TOOL_GUIDELINES};
use crate::library::{Library, Variant};
use crate::substitute::substitute;

/// The prompt of agents whose own cannot be found.
const DEFAULT: &str = "default";
/// Names the list of tools among the components.
const TOOLS: &str = "tools";
/// Names a prompt among the components that stands in the place of the agent's own.
const SYSTEM_PROMPT: &str = "system_prompt";

/// A composed prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Its text.
    pub text: String,
    /// SHA-256 over the text, in hex.
    pub fingerprint: String,
    /// Its parts, in order.
    pub components: Vec<Component>,
    /// What was odd.
    pub warnings: Vec<String>,
    /// Whether the feature `continuation` is on: who was not told how to signal is not waited for.
    pub continues: bool,
}

/// What a prompt is made for.
pub struct Order<'a> {
    /// The agent.
    pub agent: &'a Agent,
    /// What the session's tenant wants of every agent.
    pub tenant: &'a Tenant,
    /// What the session commits of the agent.
    pub settings: &'a AgentSettings,
    /// The model.
    pub model: &'a ModelSettings,
    /// The model's variant of prompts.
    pub family: Option<&'a str>,
    /// Features of all agents.
    pub features: &'a [String],
    /// What is asked.
    pub request: &'a ComposeRequest,
    /// What holds of the prompt, of all layers together.
    pub ai_config: &'a AiConfig,
}

impl Order<'_> {
    /// Whether the session may use a tool: its agent may, and it does not leave it out itself.
    fn permits(&self, tool: &ToolSpec) -> bool {
        let only = self.request.only_tools.as_deref();
        let named = |only: &[String]| only.iter().any(|name| names_tool(name, tool.name.as_str()));
        self.agent.tools.permits(&tool.name) && only.is_none_or(named)
    }

    /// Whether the session may use any tool that there may be.
    fn permits_any(&self) -> bool {
        let usable = |name: &String| {
            name.ends_with('*') || ToolName::new(name).is_ok_and(|tool| self.agent.tools.permits(&tool))
        };
        self.agent.tools.permits_any() && self.request.only_tools.as_ref().is_none_or(|only| only.iter().any(usable))
    }
}

/// Puts a prompt together. The same order over the same library gives the same text.
pub fn compose(library: &Library, order: &Order<'_>) -> Prompt {
    let mut parts = Parts::new(library, order);
    parts.agent();
    if order.request.include_shared && order.ai_config.include_shared.unwrap_or(true) {
        let switches = [&order.agent.features, &order.tenant.features, &order.request.features];
        let mut on = features::switched(library, order.features, &switches, &mut parts.warnings);
        // Where the loop does not go on by itself, nobody is told how to signal.
        if !order.settings.continuation.enabled {
            on.remove(CONTINUATION);
        }
        parts.continues = on.contains(CONTINUATION);
        parts.shared(&on);
    } else {
        parts.tools(None);
    }
    parts.finish()
}

/// Which wording of the parts fits.
struct Flavours {
    /// `multi` or `single`: how many tools the model calls at once.
    tools: &'static str,
    /// How it signals: as the loop asks it to.
    signal: &'static str,
    /// What its reply is.
    output: &'static str,
}

impl Flavours {
    /// The loop asks models with structured output for the envelope, and offers the pseudo-tool to others that take several
    /// tools; neither to an agent without tools, who signals in prose if at all. The envelope goes before patterns: its text
    /// would be heard too, but a signal beside it speaks first.
    fn of(order: &Order<'_>, continues: bool) -> Self {
        let tools = if order.model.multi_tool { "multi" } else { "single" };
        let asked = continues && order.permits_any();
        if asked && order.model.structured_output {
            return Self { tools, signal: "structured", output: "structured" };
        }
        let signal = match order.settings.continuation.require_explicit_signal {
            false => "patterns",
            true if asked => tools,
            true => "single",
        };
        Self { tools, signal, output: tools }
    }
}

struct Parts<'a> {
    library: &'a Library,
    order: &'a Order<'a>,
    values: BTreeMap<String, String>,
    unknown: BTreeSet<String>,
    text: String,
    components: Vec<Component>,
    warnings: Vec<String>,
    continues: bool,
}

impl<'a> Parts<'a> {
    fn new(library: &'a Library, order: &'a Order<'a>) -> Self {
        let agent = order.agent;
        let mut values = order.ai_config.prompt_parameters.clone();
        values.extend(order.request.parameters.clone());
        values.entry("agent_id".to_owned()).or_insert_with(|| agent.id.to_string());
        values.entry("agent_name".to_owned()).or_insert_with(|| agent.name.clone());
        let (unknown, text, components, warnings) = (BTreeSet::new(), String::new(), Vec::new(), Vec::new());
        Self { library, order, values, unknown, text, components, warnings, continues: true }
    }

    fn agent(&mut self) {
        if let Some(own) = &self.order.ai_config.system_prompt {
            let text = self.fill(own);
            return self.add(None, SYSTEM_PROMPT.to_owned(), &text);
        }
        let variant = Variant { flavour: None, family: self.order.family };
        let name = &self.order.agent.prompt;
        let found = self.library.find("agents/", name, variant);
        if found.is_none() {
            self.warnings.push(format!("there is no prompt agents/{name}.md; default.md takes its place"));
        }
        if let Some((path, file)) = found.or_else(|| self.library.find("", DEFAULT, variant)) {
            let text = self.fill(&file.text);
            self.add(None, path, &text);
        }
    }

    fn shared(&mut self, on: &BTreeSet<String>) {
        let Flavours { tools, signal, output } = Flavours::of(self.order, self.continues);
        self.part(on, CORE, "CORE INSTRUCTIONS", tools);
        let placed = [CORE, CONTINUATION, MAILBOX, TOOL_GUIDELINES, OUTPUT_FORMAT];
        for name in on.iter().filter(|name| !placed.contains(&name.as_str())) {
            let heading = format!("{} INSTRUCTIONS", name.to_uppercase().replace(['_', '-'], " "));
            self.part(on, name, &heading, tools);
        }
        self.part(on, CONTINUATION, "CONTINUATION PROTOCOL", signal);
        self.part(on, MAILBOX, "MAILBOX PROTOCOL", tools);
        self.tools(Some((on, tools)));
        self.part(on, OUTPUT_FORMAT, "OUTPUT FORMAT INSTRUCTIONS", output);
    }

    /// One shared part, where it is switched on.
    fn part(&mut self, on: &BTreeSet<String>, name: &str, heading: &str, flavour: &str) {
        if !on.contains(name) {
            return;
        }
        let variant = Variant { flavour: Some(flavour), family: self.order.family };
        match self.library.find("shared/", &features::file(self.library, name), variant) {
            Some((path, file)) => {
                let text = self.fill(&file.text);
                self.add(Some(heading), path, &text);
            }
            None => self.warnings.push(format!("the feature {name} has no text for {flavour}")),
        }
    }

    /// The tools that the agent may use, and how to use tools, where shared parts are wanted.
    fn tools(&mut self, guidelines: Option<(&BTreeSet<String>, &str)>) {
        let mut tools: Vec<&ToolSpec> = self.order.request.tools.iter().filter(|t| self.order.permits(t)).collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        tools.dedup_by(|a, b| a.name == b.name);
        let wanted = self.order.request.include_tools && self.order.ai_config.include_tools.unwrap_or(true);
        if tools.is_empty() || !wanted {
            return;
        }
        if let Some((on, flavour)) = guidelines {
            self.part(on, TOOL_GUIDELINES, "TOOL GUIDELINES INSTRUCTIONS", flavour);
        }
        // Tools speak for themselves: no placeholder is replaced in what they say.
        let preamble = self.order.ai_config.tool_preamble.as_deref().map(|text| self.fill(text));
        let preamble = preamble.map_or_else(String::new, |text| format!("{}\n\n", text.trim()));
        self.add(Some("AVAILABLE TOOLS"), TOOLS.to_owned(), &format!("{preamble}{}", describe(&tools)));
    }

    fn fill(&mut self, text: &str) -> String {
        substitute(&text.replace("\r\n", "\n"), &self.values, &mut self.unknown)
    }

    /// Adds a part, which may turn out to be empty: then there is nothing to put a heading over.
    fn add(&mut self, heading: Option<&str>, name: String, text: &str) {
        let text = text.trim();
        if text.is_empty() {
            self.warnings.push(format!("{name} is empty, and left out"));
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        if let Some(heading) = heading {
            self.text.extend(["## ", heading, "\n\n"]);
        }
        self.text.push_str(text);
        self.components.push(Component { name, sha256: sha256(text), bytes: text.len() });
    }

    fn finish(mut self) -> Prompt {
        let unknown = self.unknown.iter().map(|name| format!("{{{{{{{name}}}}}}} has no value"));
        self.warnings.extend(unknown);
        Prompt {
            fingerprint: sha256(&self.text),
            text: self.text,
            components: self.components,
            warnings: self.warnings,
            continues: self.continues,
        }
    }
}

/// One line per tool, then the instructions of those that have some. The schemas go beside the prompt.
fn describe(tools: &[&ToolSpec]) -> String {
    let mut text = String::new();
    for tool in tools {
        let line = tool.description.trim().lines().next().unwrap_or_default();
        let colon = if line.is_empty() { "" } else { ": " };
        let _ = writeln!(text, "- `{}`{colon}{line}", tool.name);
    }
    for tool in tools {
        if let Some(instructions) = tool.instructions.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
            let _ = write!(text, "\n### {}\n\n{instructions}\n", tool.name);
        }
    }
    text
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
