//! The JSON Schemas of the configuration files.

use std::fmt;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde_json::Value;

/// A configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConfigFile {
    /// agents.yaml
    Agents,
    /// models.yaml
    Models,
    /// ailoop.yaml
    Ailoop,
}

impl ConfigFile {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Agents, Self::Models, Self::Ailoop];

    /// Its JSON Schema, as it stands below docs/reference/schemas.
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

/// How processes run. Each reads its own section and the first four; AILOOP__<SECTION>__<FIELD> overrides a field.
#[derive(JsonSchema)]
#[schemars(rename = "ailoop.yaml", deny_unknown_fields)]
#[allow(dead_code, reason = "each process reads its sections by itself; only the shape is used")]
struct Sections {
    /// How NATS is reached.
    nats: Option<bus::NatsConfig>,
    /// Logs, traces, metrics.
    telemetry: Option<telemetry::TelemetryConfig>,
    /// Where /healthz, /readyz and /metrics are served.
    health: Option<service::health::HealthConfig>,
    /// Seconds in which a process finishes or hands back its work at the end.
    drain_timeout: Option<u64>,
    /// The prompt-composer.
    composer: Option<prompt_composer::ComposerConfig>,
    /// The loop-orchestrator.
    orchestrator: Option<loop_orchestrator::OrchestratorConfig>,
    /// The model-gateway.
    gateway: Option<model_gateway::Config>,
    /// The tool-executor.
    executor: Option<tool_executor::ExecutorConfig>,
    /// The tool-host: the tools that are shipped, MCP servers and HTTP endpoints.
    tool_host: Option<tool_host::ToolHostConfig>,
    /// The door for clients.
    edge: Option<edge::config::Config>,
}
