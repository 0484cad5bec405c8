//! `ailoop nats-auth init`.

use std::path::Path;

use contract::ErrorCode;
use nats_auth::{Installation, Manifests, ServerLayout, Store};
use nats_permissions::roles;
use terminal::failure::{CommandFailure, Exit};
use terminal::{Style, Terminal};

use super::installation::{finish_with_changes, now};
use crate::args::NatsAuthInitArgs;

/// Directory of the accounts on the volume of the nats-server pods.
const RESOLVER_IN_PODS: &str = "/data/jwt";

pub(super) fn init(args: &NatsAuthInitArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let (store, resolver) = match (&args.directory, &args.manifest) {
        (Some(directory), _) => {
            let absolute = std::path::absolute(directory).map_err(|error| {
                CommandFailure::usage(ErrorCode::BadRequest, format!("{}: {error}", directory.display()))
            })?;
            (Store::Directory(directory.clone()), absolute.join("jwt").display().to_string())
        }
        (None, namespace) => {
            let namespace = namespace.as_deref().unwrap_or_default();
            (Store::Manifests(Manifests::new(namespace)), RESOLVER_IN_PODS.to_owned())
        }
    };
    let resolver = args.resolver.clone().unwrap_or(resolver);
    let installation =
        Installation::init(store, roles(), &ServerLayout { resolver, route_hosts: args.routes.clone() }, now())?;
    terminal.note(Style::Plain, &next_steps(args.directory.as_deref()));
    Ok(finish_with_changes(&installation, terminal))
}

fn next_steps(directory: Option<&Path>) -> String {
    match directory {
        Some(directory) => {
            let directory = directory.display();
            format!(
                "Keys, credentials and configuration are in {directory}.\n\
                 Include {directory}/auth.conf in the configuration of nats-server, and start it.\n\
                 Give each service its file, such as AILOOP__NATS__CREDENTIALS={directory}/users/orchestrator.creds.\n\
                 Keep {directory}/keys safe: its readers can make any user."
            )
        }
        None => "The Secret ailoop-nats-keys can make any user: let no pod and few people read it.".to_owned(),
    }
}
