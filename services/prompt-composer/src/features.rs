//! Which parts a prompt has: everybody's features, then the switches of the agent, its tenant and the session.

use std::collections::BTreeSet;

use contract::command::Features;
use service::suggest;

use crate::library::{Library, is_name};

/// The part that cannot be switched off.
pub const CORE: &str = "core";
/// How a reply says whether to go on.
pub const CONTINUATION: &str = "continuation";
/// How agents write to each other.
pub const MAILBOX: &str = "mailbox";
/// How tools are used; part of prompts with tools.
pub const TOOL_GUIDELINES: &str = "tool_guidelines";
/// What clients expect.
pub const OUTPUT_FORMAT: &str = "output_format";

/// Feature `x` may be the file `x_protocol.md`, and go by that name too.
const PROTOCOL: &str = "_protocol";

/// Switches features on and off in order; what does not exist changes nothing and warns.
pub fn switched(
    library: &Library,
    everywhere: &[String],
    switches: &[&Features],
    warnings: &mut Vec<String>,
) -> BTreeSet<String> {
    let mut on: BTreeSet<String> = [CORE, TOOL_GUIDELINES, OUTPUT_FORMAT].map(str::to_owned).into();
    let everywhere = Features { enable: everywhere.to_vec(), disable: Vec::new() };
    for features in std::iter::once(&everywhere).chain(switches.iter().copied()) {
        for name in &features.enable {
            on.extend(existing(library, name, warnings));
        }
        for name in &features.disable {
            match existing(library, name, warnings) {
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

/// Refuses a switch that names a feature which does not exist: the text for people.
pub fn check(library: &Library, named: &Features) -> Result<(), String> {
    let unknown = |name: &&String| existing(library, name, &mut Vec::new()).is_none();
    let Some(name) = named.enable.iter().chain(&named.disable).find(unknown) else { return Ok(()) };
    let shown: String = name.chars().take(80).collect();
    let known = library.features();
    let known: BTreeSet<&str> = known.iter().map(|file| file.strip_suffix(PROTOCOL).unwrap_or(file)).collect();
    let suggestion = suggest::did_you_mean(&shown, known.iter().copied());
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    Err(format!("there is no feature {shown:?}{suggestion}; there are {known}"))
}

/// The file of a feature, without variant and `.md`.
pub fn file(library: &Library, feature: &str) -> String {
    if library.has_shared(feature) { feature.to_owned() } else { format!("{feature}{PROTOCOL}") }
}

/// The one name of a feature that exists.
fn existing(library: &Library, name: &str, warnings: &mut Vec<String>) -> Option<String> {
    let feature = name.strip_suffix(PROTOCOL).unwrap_or(name);
    if is_name(feature) && library.has_shared(&file(library, feature)) {
        return Some(feature.to_owned());
    }
    let shown: String = name.chars().take(80).collect();
    warnings.push(format!("there is no feature {shown:?}"));
    None
}
