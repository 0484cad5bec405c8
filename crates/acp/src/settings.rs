//! Agent and model of a session as options that the editor shows. Pure.

use contract::ErrorCode;
use proto::{Agent, Model};
use serde_json::{Value, json};

use super::wire::RpcError;

/// Agents and models of the fleet.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Catalogue {
    pub(super) agents: Vec<Agent>,
    pub(super) models: Vec<Model>,
}

/// Choices of a person for a session; a field is empty if nothing is chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Choices {
    pub(super) agent: String,
    pub(super) model: String,
}

/// An option of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingName {
    Agent,
    Model,
}

impl SettingName {
    /// Parses the id of an option.
    pub(super) fn parse(id: &str) -> Result<Self, RpcError> {
        match id {
            "agent" => Ok(Self::Agent),
            "model" => Ok(Self::Model),
            _ => Err(RpcError::new(ErrorCode::BadRequest, format!("there is no option {id:?}: set agent or model"))),
        }
    }
}

impl Catalogue {
    /// Finds an agent by its id, name or alias.
    pub(super) fn find_agent(&self, name: &str) -> Result<&Agent, RpcError> {
        let name = name.to_lowercase();
        let found = self
            .agents
            .iter()
            .find(|agent| agent.id == name || agent.name.to_lowercase() == name || agent.aliases.contains(&name));
        found.ok_or_else(|| {
            let known: Vec<&str> = self.agents.iter().map(|agent| agent.id.as_str()).collect();
            let message = format!("there is no agent {name:?}: the agents are {}", known.join(", "));
            RpcError::new(ErrorCode::UnknownAgent, message)
        })
    }

    /// Makes the options of a session, as `configOptions`.
    pub(super) fn options(&self, choices: &Choices) -> Value {
        let agent = self.agents.iter().find(|agent| agent.id == choices.agent);
        let agent = agent.or_else(|| self.agents.iter().find(|agent| agent.is_default)).or(self.agents.first());
        let agents: Vec<Value> =
            self.agents.iter().map(|agent| json!({"value": agent.id, "name": agent.name})).collect();
        let mut options = Vec::new();
        if let Some(agent) = agent {
            options.push(json!({
                "id": "agent", "name": "Agent", "category": "mode", "type": "select", "currentValue": agent.id,
                "options": agents
            }));
        }
        let default_model = self.models.iter().find(|model| model.is_default).map(|model| model.id.as_str());
        let of_agent = agent.and_then(|agent| agent.model.as_deref()).unwrap_or_default();
        let current = [choices.model.as_str(), of_agent, default_model.unwrap_or_default()];
        if let Some(current) = current.into_iter().find(|model| !model.is_empty()) {
            let mut models: Vec<Value> =
                self.models.iter().map(|model| json!({"value": model.id, "name": model.id})).collect();
            // A session may have a model of a provider that is not described.
            if self.models.iter().all(|model| model.id != current) {
                models.push(json!({"value": current, "name": current}));
            }
            options.push(json!({
                "id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": current,
                "options": models
            }));
        }
        Value::Array(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue() -> Catalogue {
        let agent = |id: &str, name: &str, model: Option<&str>, is_default| Agent {
            id: id.to_owned(),
            name: name.to_owned(),
            aliases: vec![name.split(' ').next().unwrap_or_default().to_lowercase()],
            model: model.map(str::to_owned),
            is_default,
        };
        let model = |id: &str, is_default| Model { id: id.to_owned(), is_default, ..Model::default() };
        Catalogue {
            agents: vec![agent("a", "Ada Analyst", Some("small"), false), agent("e", "Eamonn", None, true)],
            models: vec![model("small", false), model("large", true)],
        }
    }

    fn current(choices: &Choices) -> Vec<String> {
        let options = catalogue().options(choices);
        let options = options.as_array().unwrap().iter();
        options.map(|option| option["currentValue"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn options_show_the_choice_else_that_of_the_agent_else_the_default() {
        let choices = |agent: &str, model: &str| Choices { agent: agent.to_owned(), model: model.to_owned() };
        assert_eq!(current(&choices("", "")), ["e", "large"]);
        assert_eq!(current(&choices("a", "")), ["a", "small"]);
        assert_eq!(current(&choices("a", "large")), ["a", "large"]);
        assert_eq!(current(&choices("e", "provider/other")), ["e", "provider/other"]);
        let options = catalogue().options(&choices("e", "provider/other"));
        assert_eq!(options[1]["options"][2]["value"], "provider/other");
        assert_eq!(Catalogue::default().options(&Choices::default()), json!([]));
    }

    #[test]
    fn agent_is_found_by_id_name_and_alias() {
        let catalogue = catalogue();
        for name in ["a", "Ada", "ada analyst"] {
            assert_eq!(catalogue.find_agent(name).unwrap().id, "a", "{name}");
        }
        assert!(format!("{:?}", catalogue.find_agent("x").unwrap_err()).contains("the agents are a, e"));
    }
}
