//! HTTP endpoints as tools: the arguments are posted, and the response is the result.

mod config;
mod endpoint;
mod secrets;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ailoop_tool::{Approval, Call, Effect, Reply, Tool, ToolError};
use contract::limits::{TOOL_OUTPUT_BYTES_MAX, TOOL_SCHEMA_BYTES_MAX, TOOL_TIMEOUT_MAX};
use contract::tool::{ApprovalPolicy, EffectClass};
use contract::{Json, Timestamp, ToolName};
use tool_schema::Schema;

pub use config::WebhookConfig;
use config::setting;
pub use endpoint::{Endpoint, WebhookRequest};

use super::connect::Login;
use super::error::HostError;

/// Endpoints of one tool-host.
const WEBHOOKS_MAX: usize = 256;
/// Time of a call beyond its request, so that the request itself reports its timeout.
const GRACE: Duration = Duration::from_secs(2);

/// Tools by NATS user, which share a connection.
type ToolsByLogin = Vec<(Option<Login>, Vec<Tool>)>;

/// Builds the tools, by the users that serve them.
pub(super) fn tools(webhooks: &BTreeMap<ToolName, WebhookConfig>) -> Result<ToolsByLogin, HostError> {
    if webhooks.len() > WEBHOOKS_MAX {
        let message = format!("there are over {WEBHOOKS_MAX}");
        return Err(HostError::Setting { field: "webhooks".to_owned(), message });
    }
    let mut users = ToolsByLogin::new();
    for (name, config) in webhooks {
        let tool = tool(name, config)?;
        match users.iter_mut().find(|(login, _)| *login == config.login) {
            Some((_, tools)) => tools.push(tool),
            None => users.push((config.login.clone(), vec![tool])),
        }
    }
    Ok(users)
}

fn tool(name: &ToolName, config: &WebhookConfig) -> Result<Tool, HostError> {
    check(config).map_err(|(field, message)| setting(name, field, message))?;
    let endpoint = Arc::new(Endpoint::new(name, config)?);
    let max_output = config.max_output.unwrap_or(TOOL_OUTPUT_BYTES_MAX);
    let mut tool = Tool::new(name.as_str())
        .description(&config.description)
        .parameters(config.parameters.clone())
        .effect(match config.effect {
            EffectClass::Pure => Effect::Pure,
            EffectClass::Idempotent => Effect::Idempotent,
            EffectClass::AtMostOnce => Effect::AtMostOnce,
            EffectClass::Reconcilable => Effect::Reconcilable,
        })
        .approval(match config.approval {
            ApprovalPolicy::Never => Approval::Never,
            ApprovalPolicy::Always => Approval::Always,
        })
        .timeout((Duration::from_secs(config.timeout) + GRACE).min(TOOL_TIMEOUT_MAX))
        .max_output(max_output)
        .handler(move |call: Call| {
            let endpoint = endpoint.clone();
            async move { Ok::<_, ToolError>(Reply::from(endpoint.send(build_request(&call)).await?)) }
        });
    if let Some(text) = &config.instructions {
        tool = tool.instructions(text);
    }
    Ok(tool)
}

fn build_request(call: &Call) -> WebhookRequest {
    let deadline = call.deadline().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let millis = deadline.and_then(|since| u64::try_from(since.as_millis()).ok());
    WebhookRequest {
        call: call.id().to_owned(),
        session: call.session().to_owned(),
        agent: call.agent().to_owned(),
        attempt: call.attempt().to_owned(),
        deadline: millis.map(|millis| Timestamp::from_millis(millis).to_string()).unwrap_or_default(),
        traceparent: call.traceparent().to_owned(),
        body: call.body().to_vec(),
    }
}

/// Checks what the types cannot express.
fn check(config: &WebhookConfig) -> Result<(), (&'static str, String)> {
    let longest = TOOL_TIMEOUT_MAX.as_secs();
    if !(1..=longest).contains(&config.timeout) {
        return Err(("timeout", format!("it is 1 to {longest} seconds")));
    }
    if config.effect == EffectClass::Reconcilable {
        let message = "an endpoint cannot be asked what became of a call: it is pure, idempotent or at_most_once";
        return Err(("effect", message.to_owned()));
    }
    if config.description.trim().is_empty() {
        return Err(("description", "the model knows nothing else of the tool".to_owned()));
    }
    if config.max_output.is_some_and(|bytes| !(1..=TOOL_OUTPUT_BYTES_MAX).contains(&bytes)) {
        return Err(("max_output", format!("it is 1 to {TOOL_OUTPUT_BYTES_MAX}")));
    }
    let text = config.parameters.to_string();
    if !config.parameters.is_object() || text.len() > TOOL_SCHEMA_BYTES_MAX {
        return Err((
            "parameters",
            format!("it is a JSON Schema of an object, of at most {TOOL_SCHEMA_BYTES_MAX} bytes"),
        ));
    }
    let parameters = Json::parse(&text).map_err(|error| ("parameters", error.to_string()))?;
    Schema::compile(&parameters).map(drop).map_err(|message| ("parameters", message))
}
