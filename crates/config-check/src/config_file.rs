//! The JSON Schemas of the configuration files.

use std::fmt;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde_json::Value;

/// A configuration file that has a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConfigFile {
    /// Agents, their tools and tenants: agents.yaml
    Agents,
    /// Providers and their models: models.yaml
    Models,
    /// Settings of the processes: ailoop.yaml
    Ailoop,
}

impl ConfigFile {
    /// The files in the order in which schemas are printed.
    pub const ALL: [Self; 3] = [Self::Agents, Self::Models, Self::Ailoop];

    /// Returns the JSON Schema, which docs/reference/schemas also has.
    pub fn schema(self) -> Value {
        match self {
            Self::Agents => prompt_composer::agents::schema(),
            Self::Models => configuration::models::schema(),
            Self::Ailoop => configuration::schema::of::<Sections>("ailoop.yaml of ailoop"),
        }
    }
}

impl fmt::Display for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agents => "agents",
            Self::Models => "models",
            Self::Ailoop => "ailoop",
        })
    }
}

/// Settings of the processes. Each process reads its own section and the first four; AILOOP__<SECTION>__<FIELD>
/// overrides a field.
#[derive(JsonSchema)]
#[schemars(rename = "ailoop.yaml", deny_unknown_fields)]
#[allow(dead_code, reason = "each process reads its sections by itself; only the shape is used")]
struct Sections {
    /// Settings of the connection to NATS.
    nats: Option<bus::NatsConfig>,
    /// Export of logs, traces and metrics.
    telemetry: Option<telemetry::TelemetryConfig>,
    /// Listener of /healthz, /readyz and /metrics.
    health: Option<service::health::HealthConfig>,
    /// Seconds that a process has at its end to finish its work or return it to the queue.
    drain_timeout: Option<u64>,
    /// Settings of the prompt-composer.
    composer: Option<prompt_composer::ComposerConfig>,
    /// Settings of the loop-orchestrator.
    orchestrator: Option<loop_orchestrator::OrchestratorConfig>,
    /// Settings of the model-gateway.
    gateway: Option<model_gateway::GatewayConfig>,
    /// Settings of the tool-executor.
    executor: Option<tool_executor::ExecutorConfig>,
    /// Settings of the tool-host: shipped tools, MCP servers and HTTP endpoints.
    tool_host: Option<tool_host::ToolHostConfig>,
    /// Settings of the edge, which serves clients.
    edge: Option<edge::EdgeConfig>,
}
