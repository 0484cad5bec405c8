//! Composes a prompt from its parts, in a fixed order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use configuration::suggest;
use contract::compose::{Component, ComposeRequest};
use contract::settings::{AgentSettings, ModelSettings, names_tool};
use contract::tool::{ToolSpec, sha256_hex};
use contract::{AiConfig, ToolName};

use crate::agents::{Agent, Tenant};
use crate::features::{self, CONTINUATION, CORE, MAILBOX, OUTPUT_FORMAT, TOOL_GUIDELINES};
use crate::library::{Library, PromptVariant};
use crate::placeholders::substitute;

/// The prompt of agents whose own prompt does not exist.
const DEFAULT: &str = "default";
/// Component name of the list of tools.
const TOOLS: &str = "tools";
/// Component name of a prompt that replaces the agent's own.
const SYSTEM_PROMPT: &str = "system_prompt";

/// A composed prompt with its parts and warnings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComposedPrompt {
    /// The system prompt as the model reads it.
    pub text: String,
    /// SHA-256 over the text, in hex.
    pub fingerprint: String,
    /// The parts in the order of the text.
    pub components: Vec<Component>,
    /// Warnings about parts that are missing, empty or unknown.
    pub warnings: Vec<String>,
    /// Whether the feature `continuation` is on. Without it the prompt does not explain how to signal.
    pub has_continuation: bool,
}

/// Inputs of a prompt, besides the library.
pub struct ComposeInput<'a> {
    /// The agent whose prompt this is, from `agents.yaml`.
    pub agent: &'a Agent,
    /// Settings of the session's tenant for all agents.
    pub tenant: &'a Tenant,
    /// The settings of the agent that the session commits.
    pub settings: &'a AgentSettings,
    /// Settings of the model that reads the prompt.
    pub model: &'a ModelSettings,
    /// The model's `prompt_variant` in `models.yaml`.
    pub family: Option<&'a str>,
    /// Features of all agents, from the configuration.
    pub features: &'a [String],
    /// The request, with the tools and switches of the session.
    pub request: &'a ComposeRequest,
    /// The `ai_config` of all layers, merged.
    pub ai_config: &'a AiConfig,
}

impl ComposeInput<'_> {
    /// Whether both the agent and the session permit a tool.
    fn permits_tool(&self, tool: &ToolSpec) -> bool {
        let only = self.request.only_tools.as_deref();
        let named = |only: &[String]| only.iter().any(|name| names_tool(name, tool.name.as_str()));
        self.agent.tools.permits(&tool.name) && only.is_none_or(named)
    }

    /// Whether the session may use any tool, also one that does not exist yet.
    fn permits_any(&self) -> bool {
        let usable = |name: &String| {
            name.ends_with('*') || ToolName::new(name).is_ok_and(|tool| self.agent.tools.permits(&tool))
        };
        self.agent.tools.permits_any() && self.request.only_tools.as_ref().is_none_or(|only| only.iter().any(usable))
    }
}

/// Composes a prompt. The same input and library give the same text.
pub fn compose(library: &Library, input: &ComposeInput<'_>) -> ComposedPrompt {
    let mut builder = PromptBuilder::new(library, input);
    builder.add_agent();
    if input.request.include_shared && input.ai_config.include_shared.unwrap_or(true) {
        let switches = [&input.agent.features, &input.tenant.features, &input.request.features];
        let mut on = features::resolve_features(library, input.features, &switches, &mut builder.prompt.warnings);
        // A prompt does not explain signals if the loop does not continue by itself.
        if !input.settings.continuation.enabled {
            on.remove(CONTINUATION);
        }
        builder.prompt.has_continuation = on.contains(CONTINUATION);
        builder.add_shared(&on);
    } else {
        builder.add_tools(None);
    }
    builder.finish()
}

/// The variants of the shared parts that fit the model and the agent.
struct Variants {
    /// `multi` or `single`: whether the model calls several tools at once.
    tools: &'static str,
    /// Form in which the loop asks for the signal.
    signal: &'static str,
    /// The form of the reply.
    output: &'static str,
}

impl Variants {
    /// Selects the variants. The loop asks models with structured output for the envelope, and offers the pseudo-tool
    /// to other models that call several tools. An agent without tools gets neither, and signals in prose if at all.
    /// The envelope has precedence over patterns: patterns also match its text, but its signal counts first.
    fn select(input: &ComposeInput<'_>, has_continuation: bool) -> Self {
        let tools = if input.model.multi_tool { "multi" } else { "single" };
        let is_signal_requested = has_continuation && input.permits_any();
        if is_signal_requested && input.model.structured_output {
            return Self { tools, signal: "structured", output: "structured" };
        }
        let signal = match input.settings.continuation.require_explicit_signal {
            false => "patterns",
            true if is_signal_requested => tools,
            true => "single",
        };
        Self { tools, signal, output: tools }
    }
}

struct PromptBuilder<'a> {
    library: &'a Library,
    input: &'a ComposeInput<'a>,
    values: BTreeMap<String, String>,
    unknown: BTreeSet<String>,
    prompt: ComposedPrompt,
}

impl<'a> PromptBuilder<'a> {
    fn new(library: &'a Library, input: &'a ComposeInput<'a>) -> Self {
        let agent = input.agent;
        let mut values = input.ai_config.prompt_parameters.clone();
        values.extend(input.request.parameters.clone());
        values.entry("agent_id".to_owned()).or_insert_with(|| agent.id.to_string());
        values.entry("agent_name".to_owned()).or_insert_with(|| agent.name.clone());
        let prompt = ComposedPrompt { has_continuation: true, ..ComposedPrompt::default() };
        Self { library, input, values, unknown: BTreeSet::new(), prompt }
    }

    fn add_agent(&mut self) {
        if let Some(own) = &self.input.ai_config.system_prompt {
            let text = self.fill(own);
            return self.push(None, SYSTEM_PROMPT.to_owned(), &text);
        }
        let variant = PromptVariant { flavour: None, family: self.input.family };
        let name = &self.input.agent.prompt;
        let found = self.library.find("agents/", name, variant);
        if found.is_none() {
            let suggestion = suggest::did_you_mean(name, self.library.agents());
            let why = format!("there is no prompt agents/{name}.md{suggestion}; default.md takes its place");
            self.prompt.warnings.push(why);
        }
        if let Some((path, file)) = found.or_else(|| self.library.find("", DEFAULT, variant)) {
            let text = self.fill(&file.text);
            self.push(None, path, &text);
        }
    }

    fn add_shared(&mut self, on: &BTreeSet<String>) {
        let Variants { tools, signal, output } = Variants::select(self.input, self.prompt.has_continuation);
        self.add_part(on, CORE, "CORE INSTRUCTIONS", tools);
        let ordered = [CORE, CONTINUATION, MAILBOX, TOOL_GUIDELINES, OUTPUT_FORMAT];
        for name in on.iter().filter(|name| !ordered.contains(&name.as_str())) {
            let heading = format!("{} INSTRUCTIONS", name.to_uppercase().replace(['_', '-'], " "));
            self.add_part(on, name, &heading, tools);
        }
        self.add_part(on, CONTINUATION, "CONTINUATION PROTOCOL", signal);
        self.add_part(on, MAILBOX, "MAILBOX PROTOCOL", tools);
        self.add_tools(Some((on, tools)));
        self.add_part(on, OUTPUT_FORMAT, "OUTPUT FORMAT INSTRUCTIONS", output);
    }

    /// Adds a shared part, if its feature is on.
    fn add_part(&mut self, on: &BTreeSet<String>, name: &str, heading: &str, flavour: &str) {
        if !on.contains(name) {
            return;
        }
        let variant = PromptVariant { flavour: Some(flavour), family: self.input.family };
        match self.library.find("shared/", &features::file_name(self.library, name), variant) {
            Some((path, file)) => {
                let text = self.fill(&file.text);
                self.push(Some(heading), path, &text);
            }
            None => self.prompt.warnings.push(format!("the feature {name} has no text for {flavour}")),
        }
    }

    /// Adds the tools that the agent may use. `guidelines` are the features and variant for the part that explains
    /// tools.
    fn add_tools(&mut self, guidelines: Option<(&BTreeSet<String>, &str)>) {
        let mut tools: Vec<&ToolSpec> =
            self.input.request.tools.iter().filter(|t| self.input.permits_tool(t)).collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        tools.dedup_by(|a, b| a.name == b.name);
        let is_wanted = self.input.request.include_tools && self.input.ai_config.include_tools.unwrap_or(true);
        if tools.is_empty() || !is_wanted {
            return;
        }
        if let Some((on, flavour)) = guidelines {
            self.add_part(on, TOOL_GUIDELINES, "TOOL GUIDELINES INSTRUCTIONS", flavour);
        }
        // Placeholders are not replaced in the descriptions of tools, which come from their servers.
        let preamble = self.input.ai_config.tool_preamble.as_deref().map(|text| self.fill(text));
        let preamble = preamble.map_or_else(String::new, |text| format!("{}\n\n", text.trim()));
        self.push(Some("AVAILABLE TOOLS"), TOOLS.to_owned(), &format!("{preamble}{}", describe_tools(&tools)));
    }

    fn fill(&mut self, text: &str) -> String {
        substitute(&text.replace("\r\n", "\n"), &self.values, &mut self.unknown)
    }

    /// Appends a part with its heading. An empty part is left out with a warning.
    fn push(&mut self, heading: Option<&str>, name: String, text: &str) {
        let prompt = &mut self.prompt;
        let text = text.trim();
        if text.is_empty() {
            prompt.warnings.push(format!("{name} is empty, and left out"));
            return;
        }
        if !prompt.text.is_empty() {
            prompt.text.push_str("\n\n");
        }
        if let Some(heading) = heading {
            prompt.text.extend(["## ", heading, "\n\n"]);
        }
        let start = prompt.text.len();
        prompt.text.push_str(text);
        prompt.components.push(Component { name, sha256: sha256_hex(text.as_bytes()), start, bytes: text.len() });
    }

    fn finish(mut self) -> ComposedPrompt {
        let unknown = self.unknown.iter().map(|name| format!("{{{{{{{name}}}}}}} has no value"));
        self.prompt.warnings.extend(unknown);
        self.prompt.fingerprint = sha256_hex(self.prompt.text.as_bytes());
        self.prompt
    }
}

/// Describes each tool in one line, and then adds the instructions of tools. The schemas are not part of the prompt.
fn describe_tools(tools: &[&ToolSpec]) -> String {
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
