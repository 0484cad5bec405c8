//! Finds names in `agents.yaml` that no known tool has.

use std::collections::BTreeSet;

use configuration::TextFile;
use configuration::suggest::did_you_mean;
use contract::settings::names_tool;
use contract::tool::{ASK_USER, DELEGATE};
use serde_json::Value;
use tool_host::ToolHostConfig;

use super::mistake::ConfigMistake;
use super::tree::Tree;

/// The tools that agents may name.
pub(super) enum KnownTools {
    /// Those that a fleet serves now: a name that is not among them is a mistake.
    OfFleet(BTreeSet<String>),
    /// Those that ship with ailoop or that `ailoop.yaml` configures. A service of the user may serve others, so only a
    /// name that is nearly one of these is a mistake.
    OfFiles(BTreeSet<String>),
}

impl KnownTools {
    /// The tools that a fleet lists.
    pub(super) fn of_fleet(names: &BTreeSet<String>) -> Self {
        Self::OfFleet(names.iter().cloned().chain([DELEGATE, ASK_USER].map(str::to_owned)).collect())
    }

    /// The tools that can be known without a fleet.
    pub(super) fn of_files(tool_host: &ToolHostConfig) -> Self {
        let shipped = nats_permissions::shipped_tools().chain([DELEGATE, ASK_USER]).map(str::to_owned);
        let webhooks = tool_host.webhooks.keys().map(ToString::to_string);
        // Only the server knows its tools.
        let servers = tool_host.mcp.keys().map(|server| format!("mcp__{server}__*"));
        Self::OfFiles(shipped.chain(webhooks).chain(servers).collect())
    }

    fn names(&self) -> &BTreeSet<String> {
        match self {
            Self::OfFleet(names) | Self::OfFiles(names) => names,
        }
    }

    /// Whether a name, with or without `*` at its end, stands for a known tool.
    fn has(&self, name: &str) -> bool {
        let beginning = name.trim_end_matches('*');
        self.names().iter().any(|known| names_tool(name, known) || names_tool(known, beginning))
    }

    /// Finds the names of a file that no known tool has. Names that may be those of the user's own tools are one
    /// warning.
    pub(super) fn find_unknown(&self, file: &TextFile) -> Vec<ConfigMistake> {
        let Some(tree) = Tree::read(&file.text) else { return Vec::new() };
        let mut found = Vec::new();
        let mut own = BTreeSet::new();
        for (pointer, name) in tool_names(&tree.to_json()) {
            if self.has(&name) {
                continue;
            }
            let suggestion = did_you_mean(&name, self.names().iter().map(String::as_str));
            let message = match self {
                Self::OfFleet(_) => format!("the fleet has no tool {name:?}{suggestion}"),
                Self::OfFiles(_) if suggestion.is_empty() => {
                    own.insert(name);
                    continue;
                }
                Self::OfFiles(_) => format!(
                    "there is no tool {name:?}{suggestion}; if a service of yours serves it, check with `ailoop config \
                     check --fleet`"
                ),
            };
            found.push(ConfigMistake::at(file, tree.position(&pointer), message));
        }
        if !own.is_empty() {
            let names = own.into_iter().collect::<Vec<_>>().join(", ");
            let message = format!(
                "these tools neither ship with ailoop nor are in ailoop.yaml, so services of yours must serve them: \
                 {names}; `ailoop config check --fleet` asks a fleet for them"
            );
            found.push(ConfigMistake::new(&file.origin, message).into_warning());
        }
        found
    }
}

/// The names of tools in a file, with their JSON pointers.
fn tool_names(file: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect_rules(&file["approvals"], "/approvals", &mut found);
    for (name, set) in file["tool_sets"].as_object().into_iter().flatten() {
        let pointer = format!("/tool_sets/{}", escape(name));
        collect_list(set, &pointer, &mut found);
        collect_list(&set["tools"], &format!("{pointer}/tools"), &mut found);
    }
    for (id, agent) in file["agents"].as_object().into_iter().flatten() {
        let pointer = format!("/agents/{}/tools", escape(id));
        for list in ["allow", "deny"] {
            collect_list(&agent["tools"][list], &format!("{pointer}/{list}"), &mut found);
        }
        collect_rules(&agent["tools"]["approvals"], &format!("{pointer}/approvals"), &mut found);
    }
    found
}

fn collect_list(list: &Value, pointer: &str, found: &mut Vec<(String, String)>) {
    let names = list.as_array().into_iter().flatten().enumerate();
    found.extend(names.filter_map(|(index, name)| Some((format!("{pointer}/{index}"), name.as_str()?.to_owned()))));
}

fn collect_rules(rules: &Value, pointer: &str, found: &mut Vec<(String, String)>) {
    let rules = rules.as_array().into_iter().flatten().enumerate();
    let named =
        |(index, rule): (usize, &Value)| Some((format!("{pointer}/{index}/tool"), rule["tool"].as_str()?.to_owned()));
    found.extend(rules.filter_map(named));
}

/// Escapes a key for a JSON pointer.
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "a test fails by panicking")]

    use super::*;

    const AGENTS: &str = "\
tool_sets: {web: [http_fetch], own: {extends: [web], tools: [lookup_orders]}}
agents:
  x: {name: X, tools: {sets: [own], allow: [read_file, raed_file, 'mcp__crm__*'], deny: [delegate]}}
approvals: [{tool: run_command, ask: always}]
";

    fn found(known: &KnownTools) -> Vec<(usize, bool, String)> {
        let file = TextFile { origin: "agents.yaml".to_owned(), text: AGENTS.to_owned() };
        let mistakes = known.find_unknown(&file).into_iter();
        mistakes.map(|mistake| (mistake.line, mistake.is_warning, mistake.message)).collect()
    }

    #[test]
    fn tool_without_a_fleet_is_a_mistake_if_it_is_nearly_a_known_one() {
        let found = found(&KnownTools::of_files(&ToolHostConfig::default()));
        let [(3, false, mistyped), (0, true, own)] = found.as_slice() else { panic!("{found:?}") };
        assert!(mistyped.starts_with("there is no tool \"raed_file\" (did you mean \"read_file\"?)"), "{mistyped}");
        assert!(own.contains("must serve them: lookup_orders, mcp__crm__*;"), "{own}");
    }

    #[test]
    fn tool_that_a_fleet_does_not_have_is_a_mistake() {
        let catalogue = ["http_fetch", "read_file", "lookup_orders", "mcp__crm__find"].map(str::to_owned);
        let found = found(&KnownTools::of_fleet(&catalogue.into()));
        let expected = [
            (4, false, "the fleet has no tool \"run_command\"".to_owned()),
            (3, false, "the fleet has no tool \"raed_file\" (did you mean \"read_file\"?)".to_owned()),
        ];
        assert_eq!(found, expected);
    }
}
