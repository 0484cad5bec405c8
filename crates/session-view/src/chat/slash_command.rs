//! Commands that begin with a slash, and their completion. Pure.

/// A command of the chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlashCommand {
    /// Lists commands and keys.
    Help,
    /// Shows the models, or sets the one of later calls.
    Model(Option<String>),
    /// Shows the agents, or sets the one that continues the session.
    Agent(Option<String>),
    /// Shows tokens and cost of the session.
    Cost,
    /// Starts no new call until [`Self::Resume`].
    Pause,
    /// Goes on after a pause.
    Resume,
    /// Cancels the turn that runs.
    Cancel,
    /// Ends the session and the chat.
    Stop,
    /// Forgets the conversation so far.
    Clear,
    /// Goes on in a copy of the session.
    Fork,
    /// Lists the newest sessions.
    Sessions,
    /// Lists the tools of the fleet.
    Tools,
    /// Ends the chat and keeps the session.
    Quit,
}

/// The commands, with what follows them and what they do.
pub const COMMANDS: &[(&str, &str, &str)] = &[
    ("help", "", "show the commands and keys"),
    ("model", "[MODEL]", "list the models, or set the model of later calls"),
    ("agent", "[AGENT]", "list the agents, or set the agent that goes on"),
    ("cost", "", "show tokens and cost of the session"),
    ("pause", "", "start no new call until /resume"),
    ("resume", "", "go on after a pause"),
    ("cancel", "", "cancel the turn that runs, as Ctrl-C does"),
    ("stop", "", "end the session, and leave"),
    ("clear", "", "forget the conversation so far; the log keeps it"),
    ("fork", "", "go on in a copy of the session"),
    ("sessions", "", "list the newest sessions"),
    ("tools", "", "list the tools"),
    ("quit", "", "leave, as Ctrl-D does; the session is kept"),
];

/// Values that complete a command.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CompletionValues {
    /// Names of the models.
    pub models: Vec<String>,
    /// Names of the agents.
    pub agents: Vec<String>,
}

/// Parses a typed text; none if it is a message. A message that begins with a slash can begin with a space.
pub fn parse(text: &str) -> Option<Result<SlashCommand, String>> {
    let line = text.strip_prefix('/')?;
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    // A path such as /etc/passwd is no command.
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphabetic()) || text.contains('\n') {
        return None;
    }
    let argument = argument.trim();
    let value = || (!argument.is_empty()).then(|| argument.to_owned());
    let command = match name {
        "help" => SlashCommand::Help,
        "model" => return Some(Ok(SlashCommand::Model(value()))),
        "agent" => return Some(Ok(SlashCommand::Agent(value()))),
        "cost" => SlashCommand::Cost,
        "pause" => SlashCommand::Pause,
        "resume" => SlashCommand::Resume,
        "cancel" => SlashCommand::Cancel,
        "stop" => SlashCommand::Stop,
        "clear" => SlashCommand::Clear,
        "fork" => SlashCommand::Fork,
        "sessions" => SlashCommand::Sessions,
        "tools" => SlashCommand::Tools,
        "quit" | "exit" => SlashCommand::Quit,
        _ => {
            let names: Vec<String> = COMMANDS.iter().map(|(name, ..)| format!("/{name}")).collect();
            let names = names.join(" ");
            return Some(Err(format!(
                "there is no command /{name}; the commands are {names}. To send it as a message, begin with a space"
            )));
        }
    };
    if argument.is_empty() {
        Some(Ok(command))
    } else {
        Some(Err(format!("/{name} takes no value, but got {argument:?}")))
    }
}

/// Returns the texts that complete what was typed.
pub(crate) fn complete(text: &str, values: &CompletionValues) -> Vec<String> {
    let Some(line) = text.strip_prefix('/') else { return Vec::new() };
    let (command, candidates, typed) = match line.split_once(' ') {
        None => {
            let names = COMMANDS.iter().filter(|(name, ..)| name.starts_with(line));
            let text = |(name, value, _): &(&str, &str, &str)| {
                if value.is_empty() { format!("/{name}") } else { format!("/{name} ") }
            };
            return names.map(text).collect();
        }
        Some(("model", typed)) => ("model", &values.models, typed),
        Some(("agent", typed)) => ("agent", &values.agents, typed),
        Some(_) => return Vec::new(),
    };
    let fitting = candidates.iter().filter(|name| name.starts_with(typed));
    fitting.map(|name| format!("/{command} {name}")).collect()
}

/// Returns the longest beginning that all candidates have.
pub(crate) fn common_prefix(candidates: &[String]) -> String {
    let Some((first, rest)) = candidates.split_first() else { return String::new() };
    let mut prefix = first.as_str();
    for candidate in rest {
        let same = prefix.chars().zip(candidate.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8());
        prefix = &prefix[..same.sum()];
    }
    prefix.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_parsed_and_path_is_a_message() {
        assert_eq!(parse("/help"), Some(Ok(SlashCommand::Help)));
        assert_eq!(parse("/model"), Some(Ok(SlashCommand::Model(None))));
        assert_eq!(parse("/model  ollama/qwen3 "), Some(Ok(SlashCommand::Model(Some("ollama/qwen3".to_owned())))));
        assert_eq!(parse("/exit"), Some(Ok(SlashCommand::Quit)));
        for message in ["hello", "/etc/passwd is a file", " /help", "/", "/help\nme", ""] {
            assert_eq!(parse(message), None, "{message:?}");
        }
        assert!(parse("/halp").is_some_and(|parsed| parsed.is_err_and(|why| why.contains("no command /halp"))));
        assert!(parse("/stop now").is_some_and(|parsed| parsed.is_err()));
    }

    #[test]
    fn every_listed_command_is_known() {
        for (name, ..) in COMMANDS {
            assert!(parse(&format!("/{name}")).is_some_and(|parsed| parsed.is_ok()), "{name}");
        }
    }

    #[test]
    fn completion_offers_commands_and_values() {
        let values = CompletionValues {
            models: vec!["gpt-5".to_owned(), "gpt-5-mini".to_owned(), "qwen".to_owned()],
            agents: vec!["eamonn".to_owned()],
        };
        assert_eq!(complete("/mo", &values), ["/model "]);
        assert_eq!(complete("/s", &values), ["/stop", "/sessions"]);
        assert_eq!(complete("/model g", &values), ["/model gpt-5", "/model gpt-5-mini"]);
        assert_eq!(complete("/agent ", &values), ["/agent eamonn"]);
        assert_eq!(complete("hello", &values), Vec::<String>::new());
        assert_eq!(common_prefix(&complete("/model g", &values)), "/model gpt-5");
        assert_eq!(common_prefix(&[]), "");
    }
}
