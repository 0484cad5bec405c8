//! The card of an agent: what it is, and where and how it is reached.

use serde_json::{Value, json};
use session_api::AgentInfo;

/// Returns the card that anybody may read.
pub(super) fn public_card(agent: &AgentInfo, base_url: &str, needs_credential: bool) -> Value {
    let interface = |path: &str, binding: &str| {
        json!({
            "url": format!("{base_url}{path}"), "protocolBinding": binding, "protocolVersion": "1.0",
            "tenant": agent.id,
        })
    };
    let description = format!("{}, an agent whose sessions ailoop runs.", agent.name);
    let mut card = json!({
        "name": agent.name,
        "description": description,
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [interface("/a2a", "JSONRPC"), interface("/a2a/v1", "HTTP+JSON")],
        "capabilities": {"streaming": true, "pushNotifications": false, "extendedAgentCard": true},
        "defaultInputModes": ["text/plain", "application/json", "image/png", "image/jpeg", "image/webp"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{
            "id": agent.id, "name": agent.name, "description": description, "tags": ["conversation"],
        }],
    });
    if needs_credential {
        card["securitySchemes"] = json!({"bearer": {"httpAuthSecurityScheme": {
            "scheme": "Bearer", "description": "An API key of ailoop, or an access token of its issuer.",
        }}});
        card["securityRequirements"] = json!([{"schemes": {"bearer": {"list": []}}}]);
    }
    card
}

/// Returns the card for a client that has authenticated: the model and the other names of the agent are in it too.
pub(super) fn extended_card(agent: &AgentInfo, base_url: &str, needs_credential: bool) -> Value {
    let mut card = public_card(agent, base_url, needs_credential);
    let model = agent.model.as_ref().map(|model| format!(" Its model is {model}.")).unwrap_or_default();
    card["description"] = json!(format!("{}, an agent whose sessions ailoop runs.{model}", agent.name));
    let tags: Vec<&str> =
        ["conversation"].into_iter().chain(agent.aliases.iter().map(contract::AgentId::as_str)).collect();
    card["skills"][0]["tags"] = json!(tags);
    card
}
