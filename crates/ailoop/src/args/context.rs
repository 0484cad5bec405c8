//! `ailoop context`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Subcommands of `ailoop context`.
#[derive(Debug, Clone, Subcommand)]
pub enum ContextCommand {
    /// List the contexts; a star marks the current one
    List {
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a context, or replace it
    Set(ContextSetArgs),
    /// Make a context the current one: of commands without --url, --context and a fleet in their directory
    Use {
        /// The name of the context
        name: String,
    },
    /// Remove a context from the file
    Rm {
        /// The name of the context
        name: String,
    },
}

/// Arguments of `ailoop context set`.
#[derive(Debug, Clone, Args)]
pub struct ContextSetArgs {
    /// The name of the context
    pub name: String,
    /// The gRPC address of the edge, such as <https://ailoop.example.com>
    #[arg(long)]
    pub url: String,
    /// The file that holds the token; it is read by each command
    #[arg(long, value_name = "FILE", conflicts_with = "token_env")]
    pub token_file: Option<PathBuf>,
    /// The environment variable that holds the token
    #[arg(long, value_name = "NAME")]
    pub token_env: Option<String>,
    /// The PEM file of the authority that signed the certificate of the edge, if no public one did
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}
