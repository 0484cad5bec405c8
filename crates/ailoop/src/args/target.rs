//! Where a fleet and NATS are.

use clap::Args;

/// The fleet that the command is for.
#[derive(Debug, Clone, Args)]
pub struct FleetTarget {
    /// The gRPC address of the edge, such as <http://127.0.0.1:7071> [default: from .ailoop/run.json of this directory]
    #[arg(long, env = "AILOOP_URL")]
    pub url: Option<String>,
    /// The token for the edge, if it needs one
    #[arg(long, env = "AILOOP_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}

/// The address of NATS, and the tenant of the tools.
#[derive(Debug, Clone, Args)]
pub struct NatsTarget {
    /// The tenant of the tools
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// The address of NATS, such as <nats://127.0.0.1:4222> [default: from .ailoop/run.json, else from the
    /// configuration]
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
}
