//! Who is meant by an address. Pure.

use ailoop_tool::ToolError;
use contract::AgentId;
use contract::compose::KnownAgent;
use contract::{ToolName, settings::ToolFilter};

use super::CHECK;

/// The agent that a model calls by key, first name or full name; the error names those that can be written to.
pub(super) fn find(agents: &[KnownAgent], to: &str) -> Result<AgentId, ToolError> {
    let wanted = to.trim().trim_start_matches('@').to_lowercase();
    let is = |id: &AgentId| id.as_str() == wanted;
    let meant =
        |agent: &&KnownAgent| is(&agent.id) || agent.aliases.iter().any(is) || agent.name.to_lowercase() == wanted;
    let Some(agent) = agents.iter().find(meant) else {
        return Err(ToolError::new(format!("there is no agent {}; {}", shown(to), known(agents))));
    };
    if reads_mail(&agent.tools) {
        return Ok(agent.id.clone());
    }
    let why = format!("{} reads no mail: it may not use {CHECK}", agent.name);
    Err(ToolError::new(format!("{why}; {}", known(agents))))
}

fn reads_mail(tools: &ToolFilter) -> bool {
    ToolName::new(CHECK).is_ok_and(|check| tools.permits(&check))
}

fn known(agents: &[KnownAgent]) -> String {
    let name = |agent: &KnownAgent| {
        let names: Vec<&str> = [&agent.id].into_iter().chain(&agent.aliases).map(AgentId::as_str).collect();
        format!("{} ({})", names.join(" or "), agent.name)
    };
    let readers: Vec<String> = agents.iter().filter(|agent| reads_mail(&agent.tools)).map(name).collect();
    if readers.is_empty() { "no agent reads mail".to_owned() } else { format!("there are {}", readers.join(", ")) }
}

/// What a model wrote, quoted, and not all of it where it is long.
pub(super) fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(80).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(id: &str, name: &str, alias: &str, tools: &[&str]) -> KnownAgent {
        KnownAgent {
            id: AgentId::new(id).unwrap(),
            name: name.to_owned(),
            aliases: AgentId::new(alias).into_iter().collect(),
            tools: ToolFilter { allow: tools.iter().map(ToString::to_string).collect(), deny: Vec::new() },
            model: None,
            is_default: false,
        }
    }

    #[test]
    fn an_address_is_a_key_an_alias_or_a_name_and_anything_else_names_the_known_ones() {
        let all = [
            agent("a", "Alice the Assistant", "alice", &["*"]),
            agent("e", "Eamonn the Executioner", "eamonn", &["check_mail"]),
            agent("z", "Zoë", "", &["send_mail"]),
        ];
        let known = "there are a or alice (Alice the Assistant), e or eamonn (Eamonn the Executioner)";
        for (to, expect) in [
            ("a", Ok("a")),
            ("alice", Ok("a")),
            (" Alice ", Ok("a")),
            ("@alice", Ok("a")),
            ("EAMONN", Ok("e")),
            ("eamonn the executioner", Ok("e")),
            ("bob", Err("there is no agent \"bob\"")),
            ("", Err("there is no agent \"\"")),
            ("al", Err("there is no agent \"al\"")),
            ("zoë", Err("Zoë reads no mail: it may not use check_mail")),
        ] {
            let found = find(&all, to).map_err(|error| error.message().to_owned());
            let expect = expect.map(|id| AgentId::new(id).unwrap()).map_err(|why| format!("{why}; {known}"));
            assert_eq!(found, expect, "{to:?}");
        }
        let nobody = find(&all[2..], "bob").unwrap_err();
        assert_eq!(nobody.message(), "there is no agent \"bob\"; no agent reads mail");
    }
}
