//! Where a fleet and NATS are.

use clap::Args;

/// Where the fleet is.
#[derive(Debug, Clone, Args)]
pub struct FleetTarget {
    /// The edge's gRPC address, such as <http://127.0.0.1:7071>; else .ailoop/run.json of this directory tells
    #[arg(long, env = "AILOOP_URL")]
    pub url: Option<String>,
    /// The token that the edge asks for, where it asks
    #[arg(long, env = "AILOOP_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}

/// Where NATS is, and whose subjects are meant.
#[derive(Debug, Clone, Args)]
pub struct NatsTarget {
    /// Whose tools
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// The address of NATS, such as <nats://127.0.0.1:4222>; else .ailoop/run.json tells, else the configuration
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
}
