//! Names of tools of clients for the model. A client cannot know which names are taken: those of the loop, and those of
//! the agent's own tools. A tool with such a name gets another one, and its client sees the name that it gave.

use std::collections::{BTreeMap, BTreeSet};

use contract::ToolName;
use contract::model::{HistoryMessage, SIGNAL_TOOL};
use contract::tool::{ASK_USER, DELEGATE};

use super::request::NewTurn;
use crate::access::ApiCaller;
use crate::api::SessionApi;
use crate::api_error::ApiError;
use crate::params;

/// Begins the names that were given instead of those of clients. A name that begins so by itself gets it once more, so
/// that each name can be read back without knowing any other.
const PREFIX: &str = "client_";

/// Returns the name of a call as the client that performs it knows it.
pub fn name_for_client(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// Gives other names to the tools of a client that are taken, also in its history.
pub(super) async fn rename_taken(api: &SessionApi, caller: &ApiCaller, request: &mut NewTurn) -> Result<(), ApiError> {
    if !request.client_tools.is_empty() {
        let taken = api.tool_names_of_agent(caller, &request.agent).await?;
        rename(request, &taken)?;
    }
    Ok(())
}

fn rename(request: &mut NewTurn, of_agent: &BTreeSet<ToolName>) -> Result<(), ApiError> {
    let is_taken = |name: &ToolName| {
        let of_loop = [ASK_USER, DELEGATE, SIGNAL_TOOL].contains(&name.as_str());
        of_loop || of_agent.contains(name) || name.as_str().starts_with(PREFIX)
    };
    let mut renamed = BTreeMap::new();
    for tool in request.client_tools.iter_mut().filter(|tool| is_taken(&tool.name)) {
        let other: ToolName = params::parse("tools", &format!("{PREFIX}{}", tool.name))?;
        renamed.insert(std::mem::replace(&mut tool.name, other.clone()).to_string(), other);
    }
    for message in &mut request.history {
        let HistoryMessage::Assistant { tool_calls, .. } = message else { continue };
        for call in tool_calls {
            if let Some(other) = renamed.get(&call.name) {
                call.name = other.to_string();
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use contract::client_tool::ClientTool;
    use contract::model::{Content, HistoryCall};
    use contract::tool::EffectClass;
    use contract::{AgentId, Json};

    use super::*;

    #[test]
    fn tool_with_a_taken_name_has_another_one_and_is_read_back() {
        let names = ["look", "ask_user", "read_file", "client_read_file", "continuation"];
        let tool = |name: &str| ClientTool {
            name: ToolName::new(name).unwrap(),
            description: String::new(),
            parameters: Json::default(),
            effect: EffectClass::default(),
            timeout_ms: None,
            max_output: None,
        };
        let call = |name: &str| HistoryCall { name: name.to_owned(), arguments: String::new(), result: None };
        let tool_calls: Vec<HistoryCall> = ["read_file", "look", "delegate"].map(call).into();
        let (content, reasoning) = (String::new(), String::new());
        let mut request = NewTurn {
            agent: AgentId::new("e").unwrap(),
            prompt: Content::from("go"),
            history: vec![HistoryMessage::Assistant { content, reasoning, tool_calls, replay: None }],
            client_tools: names.map(tool).into(),
        };
        rename(&mut request, &BTreeSet::from(["read_file", "run"].map(|name| ToolName::new(name).unwrap()))).unwrap();
        let given: Vec<&str> = request.client_tools.iter().map(|tool| tool.name.as_str()).collect();
        let expected =
            ["look", "client_ask_user", "client_read_file", "client_client_read_file", "client_continuation"];
        assert_eq!(given, expected);
        assert_eq!(given.into_iter().map(name_for_client).collect::<Vec<_>>(), names);
        let HistoryMessage::Assistant { tool_calls, .. } = &request.history[0] else { panic!("{:?}", request.history) };
        let called: Vec<&str> = tool_calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(called, ["client_read_file", "look", "delegate"], "the client brings no `delegate`");
    }
}
