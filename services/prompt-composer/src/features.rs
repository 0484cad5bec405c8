//! Features decide which shared parts a prompt has. Those of all agents come first, then the switches of the agent, its
//! tenant and the session.

use std::collections::BTreeSet;

use configuration::suggest;
use contract::command::Features;

use crate::library::{Library, is_name};

/// The part of every prompt, which cannot be switched off.
pub const CORE: &str = "core";
/// Explains how a reply signals whether to continue.
pub const CONTINUATION: &str = "continuation";
/// Explains how agents write to each other.
pub const MAILBOX: &str = "mailbox";
/// Explains how to use tools, in prompts with tools.
pub const TOOL_GUIDELINES: &str = "tool_guidelines";
/// Explains the output that clients expect.
pub const OUTPUT_FORMAT: &str = "output_format";

/// The file of feature `x` may be `x_protocol.md`, and `x_protocol` is another name of it.
const PROTOCOL: &str = "_protocol";

/// Applies the switches in order, and returns the features that are on. An unknown feature only adds a warning.
pub fn resolve_features(
    library: &Library,
    for_all_agents: &[String],
    switches: &[&Features],
    warnings: &mut Vec<String>,
) -> BTreeSet<String> {
    let mut on: BTreeSet<String> = [CORE, TOOL_GUIDELINES, OUTPUT_FORMAT].map(str::to_owned).into();
    let for_all_agents = Features { enable: for_all_agents.to_vec(), disable: Vec::new() };
    for features in std::iter::once(&for_all_agents).chain(switches.iter().copied()) {
        for name in &features.enable {
            on.extend(find_feature(library, name, warnings));
        }
        for name in &features.disable {
            match find_feature(library, name, warnings) {
                Some(name) if name == CORE => warnings.push("the feature core cannot be switched off".to_owned()),
                Some(name) => {
                    on.remove(&name);
                }
                None => {}
            }
        }
    }
    on
}

/// Returns an error text if a switch names an unknown feature.
pub fn check_exist(library: &Library, named: &Features) -> Result<(), String> {
    let unknown = |name: &&String| find_feature(library, name, &mut Vec::new()).is_none();
    let Some(name) = named.enable.iter().chain(&named.disable).find(unknown) else { return Ok(()) };
    let known = list_known(library).into_iter().collect::<Vec<_>>().join(", ");
    Err(format!("{}; there are {known}", describe_unknown(library, name)))
}

fn list_known(library: &Library) -> BTreeSet<&str> {
    library.features().into_iter().map(|file_name| file_name.strip_suffix(PROTOCOL).unwrap_or(file_name)).collect()
}

fn describe_unknown(library: &Library, name: &str) -> String {
    let shown: String = name.chars().take(80).collect();
    let suggestion = suggest::did_you_mean(&shown, list_known(library));
    format!("there is no feature {shown:?}{suggestion}")
}

/// The file of a feature, without variant and `.md`.
pub fn file_name(library: &Library, feature: &str) -> String {
    if library.has_shared(feature) { feature.to_owned() } else { format!("{feature}{PROTOCOL}") }
}

/// Returns the canonical name of a feature, or adds a warning if it does not exist.
fn find_feature(library: &Library, name: &str, warnings: &mut Vec<String>) -> Option<String> {
    let feature = name.strip_suffix(PROTOCOL).unwrap_or(name);
    if is_name(feature) && library.has_shared(&file_name(library, feature)) {
        return Some(feature.to_owned());
    }
    warnings.push(describe_unknown(library, name));
    None
}
