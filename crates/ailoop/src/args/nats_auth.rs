//! `ailoop nats-auth`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};

use super::values::parse_lifetime;

/// Subcommands of `ailoop nats-auth`.
#[derive(Debug, Clone, Subcommand)]
pub enum NatsAuthCommand {
    /// Create the keys, the configuration of nats-server, and a credentials file for each role
    Init(NatsAuthInitArgs),
    /// Create, list and revoke users
    #[command(subcommand)]
    User(NatsUserCommand),
    /// Give the running nats-servers the permissions of this version of ailoop, after an upgrade
    Update(NatsAuthUpdateArgs),
    /// Compare the permissions on the running nats-servers with those of this version of ailoop
    Check(NatsAuthServerArgs),
}

/// Subcommands of `ailoop nats-auth user`.
#[derive(Debug, Clone, Subcommand)]
pub enum NatsUserCommand {
    /// Create a user for a tool of yours, or another credential of a role; nats-server accepts it at once
    Add(NatsUserAddArgs),
    /// List the connected users, the revoked ones, and the credentials files
    List(NatsUserListArgs),
    /// Revoke users: running nats-servers disconnect them at once and refuse them from then on
    Revoke(NatsUserRevokeArgs),
}

/// Arguments of `ailoop nats-auth init`.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("target").required(true).args(["directory", "manifest"]))]
pub struct NatsAuthInitArgs {
    /// Write files below this directory: auth.conf for nats-server, users/ROLE.creds, and keys/
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Print Kubernetes Secrets of this namespace instead, for `kubectl apply -f -`
    #[arg(long, value_name = "NAMESPACE")]
    pub manifest: Option<String>,
    /// The host and port of the route to a nats-server of a cluster; repeat it for each: routes.conf has them
    #[arg(long = "route", value_name = "HOST:PORT", conflicts_with = "manifest")]
    pub routes: Vec<String>,
    /// The directory in which nats-server keeps the accounts, on a disk that survives it [default: DIR/jwt, or
    /// /data/jwt with --manifest]
    #[arg(long, value_name = "DIR")]
    pub resolver: Option<String>,
}

/// The keys that sign.
#[derive(Debug, Clone, Args)]
pub struct NatsAuthKeys {
    /// The directory of `ailoop nats-auth init`, or `-` to read its Secrets from stdin and print those that change
    #[arg(long, value_name = "DIR|-")]
    pub keys: String,
}

/// The keys, and the nats-servers that the command is for.
#[derive(Debug, Clone, Args)]
pub struct NatsAuthServerArgs {
    /// The keys that sign.
    #[command(flatten)]
    pub keys: NatsAuthKeys,
    /// The address of nats-server, such as <nats://127.0.0.1:4222> [default: from .ailoop/run.json, else from the
    /// configuration]
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
    /// The cell of `edge.cells` whose nats-servers these are
    #[arg(long, value_name = "CELL", conflicts_with = "nats")]
    pub cell: Option<contract::CellName>,
}

/// Arguments of `ailoop nats-auth update`.
#[derive(Debug, Clone, Args)]
pub struct NatsAuthUpdateArgs {
    /// Let every role do also what it may do now: for the time in which processes of an older version run
    #[arg(long)]
    pub keep_old: bool,
    /// The keys and the servers.
    #[command(flatten)]
    pub server: NatsAuthServerArgs,
}

/// Arguments of `ailoop nats-auth user add`.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["tools", "role"]))]
pub struct NatsUserAddArgs {
    /// The name of a tool that the user serves; repeat it for several tools
    #[arg(long = "tool", value_name = "NAME", conflicts_with = "role")]
    pub tools: Vec<String>,
    /// The tenant of the tools
    #[arg(long, value_name = "TENANT", default_value = "default", conflicts_with = "role")]
    pub tenant: String,
    /// Seconds that the longest call of the tools may take: nats-server refuses later answers [default: 60]
    #[arg(long, value_name = "SECONDS", conflicts_with = "role", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub max_call: Option<u64>,
    /// The role that gets another credential, such as orchestrator
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
    /// The name of the user and of its file [default: the role or the first tool, with its tenant if that is not
    /// `default`]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Lifetime of the credential, such as 90d or 12h [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    pub expires: Option<Duration>,
    /// The keys that sign.
    #[command(flatten)]
    pub keys: NatsAuthKeys,
    /// Write the credentials file here; `-` is stdout [default: DIR/users/NAME.creds; with `--keys -`, the Secret
    /// ailoop-nats-users for a role, and stdout for a tool]
    #[arg(long, value_name = "FILE", conflicts_with = "manifest")]
    pub out: Option<String>,
    /// Print a Secret of this namespace with the credentials file instead, for `kubectl apply -f -`
    #[arg(long, value_name = "NAMESPACE")]
    pub manifest: Option<String>,
    /// Replace a credentials file that is there
    #[arg(long)]
    pub replace: bool,
}

/// Arguments of `ailoop nats-auth user list`.
#[derive(Debug, Clone, Args)]
pub struct NatsUserListArgs {
    /// The keys and the servers.
    #[command(flatten)]
    pub server: NatsAuthServerArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ailoop nats-auth user revoke`.
#[derive(Debug, Clone, Args)]
pub struct NatsUserRevokeArgs {
    /// The public key of a user (U…), as the list shows it, or its credentials file
    #[arg(value_name = "USER", required = true)]
    pub users: Vec<String>,
    /// The keys and the servers.
    #[command(flatten)]
    pub server: NatsAuthServerArgs,
}
