//! Location of the fleet and of the NATS server that a command is for.

use ailoop_client::RunFile;
use bus::{Bus, NatsConfig};
use configuration::{Settings, env};
use contract::{CellName, ErrorCode};
use fleet_connection::client::{EdgeClient, EdgeTarget};
use fleet_connection::contexts::{Context, Contexts};
use fleet_connection::instance::Home;
use service::common::CommonSettings;
use terminal::failure::CommandFailure;

use super::cell_table::{cell_table, find_cell};
use crate::args::{FleetTarget, NatsArgs};

/// The variable with the address of the edge for the SDKs.
pub(super) const HTTP_ADDRESS: &str = "AILOOP_URL";

/// The fleet that a command is for.
pub(super) enum FleetLocation {
    /// The address in `--url` or `AILOOP_GRPC_URL`, or that of a context.
    Edge(EdgeTarget),
    /// The fleet that runs in this directory, and its token.
    Directory(Home, RunFile, Option<String>),
}

impl FleetLocation {
    pub(super) fn url(&self) -> &str {
        match self {
            Self::Edge(target) => &target.url,
            Self::Directory(_, run, _) => &run.grpc,
        }
    }

    /// Whether the fleet runs in a directory of this machine.
    pub(super) fn is_of_directory(&self) -> bool {
        matches!(self, Self::Directory(..))
    }

    pub(super) async fn connect(&self) -> Result<EdgeClient, CommandFailure> {
        match self {
            Self::Edge(target) => EdgeClient::connect(target.clone()).await,
            Self::Directory(home, run, token) => {
                let target = EdgeTarget { url: run.grpc.clone(), token: token.clone(), ..EdgeTarget::default() };
                EdgeClient::connect_to_home(target, home.clone()).await
            }
        }
    }

    /// A warning about keys that this shell has and the fleet was started without: the fleet cannot use them.
    pub(super) fn key_hint(&self, is_set: impl Fn(&str) -> bool) -> Option<String> {
        let Self::Directory(_, run, _) = self else { return None };
        let unused: Vec<&str> = run.missing_keys.iter().map(String::as_str).filter(|name| is_set(name)).collect();
        let (verb, it) = if unused.len() == 1 { ("is", "it") } else { ("are", "them") };
        (!unused.is_empty()).then(|| {
            let pid = run.pid;
            format!(
                "{} {verb} set here, but the fleet (process {pid}) was started without {it}: end it and start `ailoop \
                 up` again to use {it}",
                unused.join(", ")
            )
        })
    }
}

/// Finds the fleet of a command: `--url`, `--context` or their variables, else the one that runs in this directory or in one
/// above it, else the current context.
pub(super) fn find_fleet(target: &FleetTarget) -> Result<Option<FleetLocation>, CommandFailure> {
    find_fleet_where(target, |_| true)
}

/// As [`find_fleet`], without a fleet that `ailoop run` started for its own session: it accepts no other session.
pub(super) fn find_shared_fleet(target: &FleetTarget) -> Result<Option<FleetLocation>, CommandFailure> {
    find_fleet_where(target, |run| !run.one_session)
}

fn find_fleet_where(
    target: &FleetTarget,
    is_wanted: fn(&RunFile) -> bool,
) -> Result<Option<FleetLocation>, CommandFailure> {
    let FleetTarget { url, token, context, ca_file, plaintext } = target;
    if let Some(url) = url {
        let (url, token, ca_file) = (url.clone(), token.clone(), ca_file.clone());
        return Ok(Some(FleetLocation::Edge(EdgeTarget { url, token, ca_file, plaintext: *plaintext })));
    }
    let of_context = |context: &Context| -> Result<FleetLocation, CommandFailure> {
        let token = token.clone().map_or_else(|| context.token(), |token| Ok(Some(token)))?;
        let ca_file = ca_file.clone().or_else(|| context.ca_file.clone());
        let url = context.url.clone();
        Ok(FleetLocation::Edge(EdgeTarget { url, token, ca_file, plaintext: *plaintext }))
    };
    if let Some(name) = context {
        return of_context(Contexts::read()?.find(name)?).map(Some);
    }
    if let Some((home, run)) = Home::find_running(is_wanted) {
        let token = token.clone().or_else(|| run.token.clone());
        return Ok(Some(FleetLocation::Directory(home, run, token)));
    }
    let contexts = Contexts::read()?;
    contexts.current.as_ref().map(|name| of_context(contexts.find(name)?)).transpose()
}

/// Connects to the fleet of a command, which must be running.
pub(super) async fn connect(target: &FleetTarget) -> Result<EdgeClient, CommandFailure> {
    find_fleet(target)?.ok_or_else(no_fleet)?.connect().await
}

/// The failure of a command that needs a fleet.
pub(super) fn no_fleet() -> CommandFailure {
    let help = http_address_hint(env(HTTP_ADDRESS).as_deref()).unwrap_or_else(|| {
        "start one with `ailoop up`, or name one with --url, AILOOP_GRPC_URL or `ailoop context`".to_owned()
    });
    CommandFailure::new(ErrorCode::Unavailable, "no fleet runs in this directory, or in one above it").help(help)
}

/// Returns advice for the case that no fleet was found, although the address for the SDKs is known.
pub(super) fn http_address_hint(url: Option<&str>) -> Option<String> {
    let url = url.filter(|url| !url.is_empty())?;
    Some(format!(
        "{HTTP_ADDRESS} is {url}, the HTTP address for the SDKs, which this command does not read: set AILOOP_GRPC_URL \
         or --url to the gRPC address of the edge, such as http://127.0.0.1:7071"
    ))
}

/// Returns how to reach NATS: in the cell or at the address of the arguments, else where the fleet of this directory has
/// it, else as configured. Of several cells, the arguments must name one.
pub(super) fn nats_config(args: &NatsArgs) -> Result<NatsConfig, CommandFailure> {
    let NatsArgs { nats: url, cell } = args;
    let table = cell_table()?;
    if let Some(name) = cell {
        return Ok(find_cell(&table, name)?.nats.clone());
    }
    let nats = CommonSettings::read(&Settings::read(None)?)?.nats;
    let running = || Home::find_running(|_| true).map(|(_, run)| run.nats);
    match (url.clone().or_else(running), table.cells()) {
        (Some(url), _) => Ok(NatsConfig { url, ..nats }),
        (None, []) => Ok(nats),
        (None, [only]) => Ok(only.nats.clone()),
        (None, [_, ..]) => {
            let names: Vec<&str> = table.names().map(CellName::as_str).collect();
            let message = format!("there are several cells: {}", names.join(", "));
            Err(CommandFailure::usage(ErrorCode::BadRequest, message).help("name one with --cell"))
        }
    }
}

/// Runs a command that uses NATS directly.
pub(super) async fn with_bus<T>(
    nats: &NatsConfig,
    command: impl AsyncFnOnce(&Bus) -> Result<T, CommandFailure>,
) -> Result<T, CommandFailure> {
    let bus = Bus::connect(nats).await.map_err(|error| CommandFailure::from(error).at(nats.shown_url()))?;
    let result = command(&bus).await;
    bus.close().await;
    result
}

/// Whether the command line, a fleet that runs or the configuration says where NATS is.
pub(super) fn is_nats_named(args: &NatsArgs, nats: &NatsConfig) -> bool {
    args.nats.is_some() || args.cell.is_some() || nats.url != NatsConfig::default().url
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn key_hint_key_set_only_in_this_shell_is_named() {
        let run = RunFile {
            pid: 7,
            version: String::new(),
            grpc: String::new(),
            http: String::new(),
            ws: String::new(),
            nats: String::new(),
            token: None,
            one_session: false,
            missing_keys: vec!["A_KEY".to_owned(), "B_KEY".to_owned()],
        };
        let fleet = FleetLocation::Directory(Home::below(Path::new("")), run, None);
        let hint = fleet.key_hint(|name| name == "B_KEY").unwrap();
        assert!(hint.starts_with("B_KEY is set here, but the fleet (process 7) was started without it"), "{hint}");
        assert_eq!(fleet.key_hint(|_| false), None);
        assert_eq!(FleetLocation::Edge(EdgeTarget::default()).key_hint(|_| true), None);
    }
}
