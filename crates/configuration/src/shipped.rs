//! The configuration and prompts of this repository, within the binary: what is found nowhere else is taken from here.

use std::collections::BTreeMap;

use crate::text_file::TextFile;

/// Name of the file of settings.
pub(crate) const SETTINGS: &str = "ailoop.yaml";
/// Name of the file of models.
pub(crate) const MODELS: &str = "models.yaml";

macro_rules! files {
    ($dir:literal: $($name:literal,)*) => {
        &[$(($name, include_str!(concat!("../../../", $dir, "/", $name))),)*]
    };
}

const CONFIG: &[(&str, &str)] =
    files!["config": "ailoop.yaml", "agents.yaml", "models.yaml", "scripts/rehearsal.yaml",];

const PROMPTS: &[(&str, &str)] = files!["prompts":
    "default.md",
    "agents/alice_assistant.md",
    "agents/debbie_debugger.md",
    "agents/eamonn_executioner.md",
    "agents/patricia_planner.md",
    "agents/tessa_tester.md",
    "shared/continuation_protocol.md",
    "shared/continuation_protocol.multi.md",
    "shared/continuation_protocol.patterns.md",
    "shared/continuation_protocol.structured.md",
    "shared/core.md",
    "shared/core.small.md",
    "shared/mailbox_protocol.md",
    "shared/output_format.md",
    "shared/output_format.structured.md",
    "shared/tool_guidelines.multi.md",
    "shared/tool_guidelines.single.md",
];

/// A shipped file of the configuration directory.
pub fn config(name: &str) -> Option<TextFile> {
    CONFIG.iter().find(|(known, _)| *known == name).map(file)
}

/// Every shipped prompt, by its path below `prompts/`.
pub fn prompts() -> BTreeMap<String, TextFile> {
    PROMPTS.iter().map(|entry| (entry.0.to_owned(), file(entry))).collect()
}

fn file((name, text): &(&str, &str)) -> TextFile {
    TextFile { origin: format!("shipped:{name}"), text: (*text).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prompt_of_the_repository_is_shipped() {
        let shipped = prompts();
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../prompts");
        for dir in ["", "agents/", "shared/"] {
            for entry in std::fs::read_dir(format!("{root}/{dir}")).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{dir}{}", entry.file_name().to_str().unwrap());
                let is_prompt = entry.path().extension().is_some_and(|extension| extension == "md");
                assert!(!is_prompt || shipped.contains_key(&name), "{name}");
            }
        }
    }
}
