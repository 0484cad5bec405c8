//! Selects the tools of an MCP server that are served, and describes them as the server does, within our limits. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ailoop_tool::{Approval, Effect, Tool};
use contract::limits::TOOL_SCHEMA_BYTES_MAX;
use contract::tool::sha256_hex;
use rmcp::model::ToolAnnotations;
use serde_json::Value;

use super::config::ToolRules;
use crate::server_name::{ServerName, is_name_char};
use tool_schema::TEXT_BYTES_MAX;

/// Tools of one server that are served; the others are left out, with a warning.
pub(super) const TOOLS_MAX: usize = 256;
/// Characters of a server's version, up to which it becomes the version of its tools.
const VERSION_MAX: usize = 32;

/// A tool as its server describes it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ListedTool {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) schema: Value,
    pub(super) annotations: Option<ToolAnnotations>,
    /// JSON Schema of its structured results.
    pub(super) output: Option<Value>,
    /// Whether it can only be called as a task.
    pub(super) needs_task: bool,
    /// Whether it reads the server's resources, and is no tool of the server.
    pub(super) is_resource: bool,
}

/// A tool of a server as it is served.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolRegistration {
    /// Name of the tool at the server.
    pub(super) tool: String,
    pub(super) effect: Effect,
    pub(super) output: Option<Value>,
    pub(super) is_resource: bool,
    description: String,
    schema: Value,
    approval: Approval,
    timeout: Duration,
    max_output: Option<usize>,
    version: String,
}

/// The tools of a server by their names in the fleet, and warnings about the others.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Registrations {
    pub(super) tools: BTreeMap<String, ToolRegistration>,
    pub(super) warnings: BTreeSet<String>,
}

/// Selects and names the tools. The order of the server's list changes nothing.
pub(super) fn select_tools(
    server: &ServerName,
    version: &str,
    rules: &ToolRules,
    mut listed: Vec<ListedTool>,
) -> Registrations {
    let mut registrations = Registrations::default();
    let listed_names: BTreeSet<String> = listed.iter().map(|tool| tool.name.clone()).collect();
    for name in rules.named_tools().into_iter().filter(|name| !listed_names.contains(*name)) {
        registrations
            .warnings
            .insert(format!("{name:?} is named in the configuration, but the server has no such tool"));
    }
    let wanted =
        |name: &String| rules.allow.as_ref().is_none_or(|allow| allow.contains(name)) && !rules.deny.contains(name);
    listed.retain(|tool| wanted(&tool.name));
    // Tools whose names need no change get theirs first.
    listed.sort_by_cached_key(|tool| (!tool.name.chars().all(is_name_char), tool.name.clone()));
    let mut previous: Option<String> = None;
    for tool in listed {
        if previous.as_ref() == Some(&tool.name) {
            registrations.warnings.insert(format!("{:?} is listed twice; the first counts", tool.name));
            continue;
        }
        previous = Some(tool.name.clone());
        if registrations.tools.len() == TOOLS_MAX {
            registrations.warnings.insert(format!("{TOOLS_MAX} tools are served, the others are not"));
            break;
        }
        if let Err(reason) = validate(&tool) {
            registrations.warnings.insert(format!("{:?} is refused: {reason}", tool.name));
            continue;
        }
        match server.tool_name(&tool.name, |name| registrations.tools.contains_key(name)) {
            Some(name) => {
                if !name.ends_with(&tool.name) {
                    registrations.warnings.insert(format!("{:?} is served as {name}", tool.name));
                }
                registrations.tools.insert(name, ToolRegistration::new(tool, version, rules));
            }
            None => {
                registrations.warnings.insert(format!("{:?} is refused: others have its name", tool.name));
            }
        }
    }
    registrations
}

/// Refuses what the catalogue would refuse; the warning has the server's name of the tool.
fn validate(tool: &ListedTool) -> Result<(), String> {
    if tool.name.is_empty() {
        return Err("it has no name".to_owned());
    }
    if tool.description.len() > TEXT_BYTES_MAX {
        return Err(format!("its description has over {TEXT_BYTES_MAX} bytes"));
    }
    if !tool.schema.is_object() {
        return Err("its schema is not a JSON object".to_owned());
    }
    let length = tool.schema.to_string().len();
    if length > TOOL_SCHEMA_BYTES_MAX {
        return Err(format!("its schema has {length} bytes, {TOOL_SCHEMA_BYTES_MAX} are allowed"));
    }
    if tool.needs_task {
        return Err("it must be called as a task (execution.taskSupport is required), which is not possible".to_owned());
    }
    tool_schema::measure(&tool.schema)
}

impl ToolRegistration {
    fn new(tool: ListedTool, version: &str, rules: &ToolRules) -> Self {
        // The protocol, not the server, guarantees that reading a resource changes nothing.
        let trusted = rules.trust_annotations || tool.is_resource;
        let claimed = tool.annotations.filter(|_| trusted).map(|claims| annotated_effect(&claims));
        Self {
            effect: rules.effects.get(&tool.name).copied().or(claimed).unwrap_or_default(),
            approval: rules.approval.get(&tool.name).copied().unwrap_or_default(),
            tool: tool.name,
            output: tool.output,
            is_resource: tool.is_resource,
            description: tool.description,
            schema: tool.schema,
            timeout: rules.call_timeout(),
            max_output: rules.max_output,
            version: normalize_version(version),
        }
    }

    /// Hash of what a model reads of the tool: a tool with another hash is another tool under the same name.
    pub(super) fn description_hash(&self) -> String {
        sha256_hex(format!("{}\0{}", self.description, self.schema).as_bytes())
    }

    /// Builds the tool that is served, without its handler.
    pub(super) fn to_tool(&self, name: &str) -> Tool {
        let tool = Tool::new(name)
            .description(self.description.clone())
            .parameters(self.schema.clone())
            .effect(self.effect)
            .approval(self.approval)
            .timeout(self.timeout)
            .version(self.version.clone());
        match self.max_output {
            Some(bytes) => tool.max_output(bytes),
            None => tool,
        }
    }
}

fn annotated_effect(claims: &ToolAnnotations) -> Effect {
    match (claims.read_only_hint, claims.idempotent_hint) {
        (Some(true), _) => Effect::Pure,
        (_, Some(true)) => Effect::Idempotent,
        _ => Effect::AtMostOnce,
    }
}

/// Returns the server's version if it is three numbers, as the services protocol requires.
fn normalize_version(version: &str) -> String {
    let numbers = version.split('.').filter(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    let good = version.len() <= VERSION_MAX && version.split('.').count() == 3 && numbers.count() == 3;
    if good { version.to_owned() } else { "1.0.0".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn listed(name: &str) -> ListedTool {
        ListedTool { name: name.to_owned(), schema: json!({"type": "object"}), ..ListedTool::default() }
    }

    fn server() -> ServerName {
        ServerName::try_from("s".to_owned()).unwrap()
    }

    /// Checks `<name in the fleet>=<name at the server>` of each tool, and the warnings.
    fn check(rules: &ToolRules, tools: Vec<ListedTool>, names: &[&str], warnings: &[&str]) {
        let mut backwards = tools.clone();
        backwards.reverse();
        let registrations = select_tools(&server(), "1.2.3", rules, tools);
        let found: Vec<String> =
            registrations.tools.iter().map(|(name, tool)| format!("{name}={}", tool.tool)).collect();
        assert_eq!(found, names);
        assert_eq!(registrations.warnings.len(), warnings.len(), "{:?}", registrations.warnings);
        for part in warnings {
            assert!(
                registrations.warnings.iter().any(|warning| warning.contains(part)),
                "{:?}",
                registrations.warnings
            );
        }
        assert_eq!(super::select_tools(&server(), "1.2.3", rules, backwards), registrations);
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_select_tools_and_warn_of_missing_ones() {
        let all = || vec![listed("b"), listed("a"), listed("c")];
        check(&ToolRules::default(), all(), &["mcp__s__a=a", "mcp__s__b=b", "mcp__s__c=c"], &[]);
        let deny = ToolRules { deny: names(&["a", "x"]), ..ToolRules::default() };
        check(&deny, all(), &["mcp__s__b=b", "mcp__s__c=c"], &["\"x\" is named in the configuration"]);
        let both = ToolRules { allow: Some(names(&["a", "b"])), deny: names(&["b"]), ..ToolRules::default() };
        check(&both, all(), &["mcp__s__a=a"], &[]);
        let approval = ToolRules { approval: [("delte".to_owned(), Approval::Always)].into(), ..ToolRules::default() };
        check(&approval, vec![listed("delete")], &["mcp__s__delete=delete"], &["\"delte\" is named"]);
    }

    #[test]
    fn names_that_collide_get_a_hash() {
        check(
            &ToolRules::default(),
            vec![listed("a.b"), listed("a_b"), listed("a b")],
            &["mcp__s__a_b=a_b", "mcp__s__a_b_2e7336dc=a.b", "mcp__s__a_b_c8687a08=a b"],
            &["\"a.b\" is served as", "\"a b\" is served as"],
        );
        check(&ToolRules::default(), vec![listed("a"), listed("a")], &["mcp__s__a=a"], &["listed twice"]);
    }

    #[test]
    fn tool_over_a_limit_is_refused_and_others_are_served() {
        let text = ListedTool { description: "x".repeat(TEXT_BYTES_MAX + 1), ..listed("wordy") };
        let big =
            ListedTool { schema: json!({"type": "object", "x": "x".repeat(TOOL_SCHEMA_BYTES_MAX)}), ..listed("big") };
        let array = ListedTool { schema: json!([]), ..listed("array") };
        let tools = vec![text, big, array, listed(""), listed("ok")];
        let warnings = ["over 16384 bytes", "32768 are allowed", "not a JSON object", "it has no name"];
        check(&ToolRules::default(), tools, &["mcp__s__ok=ok"], &warnings);
        let many: Vec<ListedTool> = (0..TOOLS_MAX + 10).map(|number| listed(&format!("t{number:03}"))).collect();
        let registrations = select_tools(&server(), "", &ToolRules::default(), many);
        assert_eq!((registrations.tools.len(), registrations.warnings.len()), (TOOLS_MAX, 1));
    }

    #[test]
    fn annotations_count_if_trusted_and_configuration_always() {
        let claim = |read_only, idempotent| {
            let annotations = ToolAnnotations::new().read_only(read_only).idempotent(idempotent);
            ListedTool { annotations: Some(annotations), ..listed("a") }
        };
        let effect = |rules: &ToolRules, tool: ListedTool| {
            select_tools(&server(), "", rules, vec![tool]).tools["mcp__s__a"].effect
        };
        let trusting = ToolRules { trust_annotations: true, ..ToolRules::default() };
        assert_eq!(effect(&ToolRules::default(), claim(true, true)), Effect::AtMostOnce);
        assert_eq!(effect(&trusting, claim(true, false)), Effect::Pure);
        assert_eq!(effect(&trusting, claim(false, true)), Effect::Idempotent);
        assert_eq!(effect(&trusting, claim(false, false)), Effect::AtMostOnce);
        assert_eq!(effect(&trusting, listed("a")), Effect::AtMostOnce);
        let configured = ToolRules { effects: [("a".to_owned(), Effect::AtMostOnce)].into(), ..trusting };
        assert_eq!(effect(&configured, claim(true, true)), Effect::AtMostOnce);
    }

    #[test]
    fn version_not_of_three_numbers_is_replaced() {
        for (given, expected) in
            [("0.6.2", "0.6.2"), ("1.2", "1.0.0"), ("v1.2.3", "1.0.0"), ("1..2.3", "1.0.0"), ("", "1.0.0")]
        {
            assert_eq!(normalize_version(given), expected);
        }
    }
}
