//! `ailoop api-key`.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use contract::{AgentId, TenantId};

use super::values::parse_lifetime;

/// Subcommands of `ailoop api-key`.
#[derive(Debug, Clone, Subcommand)]
pub enum ApiKeyCommand {
    /// Make an API key, and print it: it is stored nowhere
    New(ApiKeyNewArgs),
    /// List the keys of a file, and what each of them grants
    List {
        /// The file of keys: `edge.keys_file`
        file: PathBuf,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `ailoop api-key new`.
#[derive(Debug, Clone, Args)]
pub struct ApiKeyNewArgs {
    /// The name of the key, once in its file
    pub id: String,
    /// A scope that the key grants; repeat it for each [default: run and observe]
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<ScopeArg>,
    /// The tenant whose sessions the key reaches [default: that of the edge]
    #[arg(long)]
    pub tenant: Option<TenantId>,
    /// The name of the holder in the log [default: ID]
    #[arg(long)]
    pub subject: Option<String>,
    /// An agent whose sessions the key reaches; repeat it for each [default: all]
    #[arg(long = "agent", value_name = "AGENT")]
    pub agents: Vec<AgentId>,
    /// The key is refused after this time: 90d, 12h
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    pub expires: Option<Duration>,
    /// Requests in a minute, on each replica of the edge
    #[arg(long, value_name = "NUMBER")]
    pub requests_per_minute: Option<NonZeroU32>,
    /// Add the entry to this file, which the edges read again within seconds
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// A scope, as an option takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// Start and steer sessions
    Run,
    /// Talk to agents without settings of one's own, for public pages
    Converse,
    /// Read sessions and lists
    Observe,
    /// Answer gates: approve and deny calls
    Approve,
    /// Administer a tenant: repair, try tools
    Administer,
    /// Operate the fleet: look at its processes and queues, reset budgets
    Operate,
}

impl From<ScopeArg> for edge::Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::Run => Self::Run,
            ScopeArg::Converse => Self::Converse,
            ScopeArg::Observe => Self::Observe,
            ScopeArg::Approve => Self::Approve,
            ScopeArg::Administer => Self::Administer,
            ScopeArg::Operate => Self::Operate,
        }
    }
}
