//! Options that locate a fleet and NATS.

use std::path::PathBuf;

use clap::Args;
use contract::CellName;

/// The fleet that the command is for.
#[derive(Debug, Clone, Default, Args)]
pub struct FleetTarget {
    /// The gRPC address of the edge, such as <http://127.0.0.1:7071> [default: that of the context, else from
    /// .ailoop/run.json of this directory, else that of the current context]
    #[arg(long, env = "AILOOP_GRPC_URL")]
    pub url: Option<String>,
    /// The token for the edge, if it needs one
    #[arg(long, env = "AILOOP_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// The fleet of this name: see `ailoop context`
    #[arg(long, env = "AILOOP_CONTEXT", value_name = "NAME", conflicts_with = "url")]
    pub context: Option<String>,
    /// The PEM file of the authority that signed the certificate of an edge at https://, if no public one did
    #[arg(long, env = "AILOOP_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Send the token to an address at http:// that is not this machine, where others can read it
    #[arg(long, env = "AILOOP_PLAINTEXT", value_parser = clap::builder::FalseyValueParser::new())]
    pub plaintext: bool,
}

/// The address of NATS, and the tenant of the tools.
#[derive(Debug, Clone, Args)]
pub struct NatsTarget {
    /// The tenant of the tools
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// Address of NATS, or the cell.
    #[command(flatten)]
    pub nats: NatsArgs,
}

/// Address of NATS, or the cell.
#[derive(Debug, Clone, Default, Args)]
pub struct NatsArgs {
    /// The address of NATS, such as <nats://127.0.0.1:4222> [default: from .ailoop/run.json, else from the
    /// configuration]
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
    /// The cell of `edge.cells` [default: the one that has the session, for a command about one session]
    #[arg(long, value_name = "CELL", conflicts_with = "nats")]
    pub cell: Option<CellName>,
}
