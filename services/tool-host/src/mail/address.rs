//! Resolves addresses to mailboxes. Pure.

use contract::compose::KnownAgent;
use contract::mail::PEOPLE;
use contract::settings::ToolFilter;
use contract::{AgentId, ErrorCode, ToolName};

use super::refusal::MailRefusal;

/// The tool that reads mail: an agent that has it has a mailbox.
pub(super) const CHECK_MAIL: &str = "check_mail";

/// Resolves an agent's key, alias or full name, or the name of people; the error lists the possible recipients.
pub(super) fn resolve(agents: &[KnownAgent], to: &str) -> Result<AgentId, MailRefusal> {
    let wanted = to.trim().trim_start_matches('@').to_lowercase();
    if wanted == PEOPLE {
        return AgentId::new(PEOPLE).map_err(|error| MailRefusal::new(ErrorCode::Internal, error.to_string()));
    }
    let Some(agent) = find_agent(agents, &wanted) else {
        let message = format!("there is no agent {}; {}", quote(to), list_addresses(agents));
        return Err(MailRefusal::new(ErrorCode::UnknownAgent, message));
    };
    if can_read_mail(&agent.tools) {
        return Ok(agent.id.clone());
    }
    let why = format!("{} reads no mail: it may not use {CHECK_MAIL}", agent.name);
    Err(MailRefusal::new(ErrorCode::BadRequest, format!("{why}; {}", list_addresses(agents))))
}

/// Finds the agent with this key, alias or full name in lower case.
pub(super) fn find_agent<'a>(agents: &'a [KnownAgent], wanted: &str) -> Option<&'a KnownAgent> {
    let is = |id: &AgentId| id.as_str() == wanted;
    agents.iter().find(|agent| is(&agent.id) || agent.aliases.iter().any(is) || agent.name.to_lowercase() == wanted)
}

fn can_read_mail(tools: &ToolFilter) -> bool {
    ToolName::new(CHECK_MAIL).is_ok_and(|check| tools.permits(&check))
}

fn list_addresses(agents: &[KnownAgent]) -> String {
    let name = |agent: &KnownAgent| {
        let names: Vec<&str> = [&agent.id].into_iter().chain(&agent.aliases).map(AgentId::as_str).collect();
        format!("{} ({})", names.join(" or "), agent.name)
    };
    let readers: Vec<String> = agents.iter().filter(|agent| can_read_mail(&agent.tools)).map(name).collect();
    let people = format!("{PEOPLE} (people)");
    if readers.is_empty() {
        format!("no agent reads mail, but {people}")
    } else {
        format!("there are {}, {people}", readers.join(", "))
    }
}

/// Quotes a text that a model wrote, cut to 80 characters.
pub(super) fn quote(text: &str) -> String {
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
    fn address_is_a_key_alias_or_name_and_unknown_lists_recipients() {
        let all = [
            agent("a", "Alice the Assistant", "alice", &["*"]),
            agent("e", "Eamonn the Executioner", "eamonn", &["check_mail"]),
            agent("z", "Zoë", "", &["send_mail"]),
        ];
        let known = "there are a or alice (Alice the Assistant), e or eamonn (Eamonn the Executioner), user (people)";
        for (to, expect) in [
            ("a", Ok("a")),
            ("alice", Ok("a")),
            (" Alice ", Ok("a")),
            ("@alice", Ok("a")),
            ("EAMONN", Ok("e")),
            ("eamonn the executioner", Ok("e")),
            ("User", Ok("user")),
            ("bob", Err("there is no agent \"bob\"")),
            ("", Err("there is no agent \"\"")),
            ("al", Err("there is no agent \"al\"")),
            ("zoë", Err("Zoë reads no mail: it may not use check_mail")),
        ] {
            let found = resolve(&all, to).map_err(|error| error.message);
            let expect = expect.map(|id| AgentId::new(id).unwrap()).map_err(|why| format!("{why}; {known}"));
            assert_eq!(found, expect, "{to:?}");
        }
        let unknown = resolve(&all[2..], "bob").unwrap_err();
        assert_eq!(unknown.message, "there is no agent \"bob\"; no agent reads mail, but user (people)");
        assert_eq!(unknown.code, ErrorCode::UnknownAgent);
    }
}
