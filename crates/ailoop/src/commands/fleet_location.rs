//! Which fleet and which NATS server a command is for.

use service::common::CommonSettings;
use std::path::Path;

use bus::NatsConfig;
use configuration::Settings;
use contract::ErrorCode;

use crate::args::FleetTarget;
use crate::client::EdgeClient;
use crate::failure::CommandFailure;
use crate::instance::{Home, RunFile};

/// The fleet that a command is for.
pub(super) enum FleetLocation {
    /// The address in `--url` or `AILOOP_URL`.
    Url(String),
    /// The fleet that runs in this directory.
    Directory(Home, RunFile),
}

impl FleetLocation {
    pub(super) fn url(&self) -> &str {
        match self {
            Self::Url(url) => url,
            Self::Directory(_, run) => &run.grpc,
        }
    }

    pub(super) async fn connect(&self, token: Option<&str>) -> Result<EdgeClient, CommandFailure> {
        let client = EdgeClient::connect(self.url(), token).await?;
        Ok(match self {
            Self::Url(_) => client,
            Self::Directory(home, _) => client.with_home(home.clone()),
        })
    }

    /// A warning about keys that this shell has and the fleet was started without: the fleet cannot use them.
    pub(super) fn key_hint(&self, is_set: impl Fn(&str) -> bool) -> Option<String> {
        let Self::Directory(_, run) = self else { return None };
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

/// Finds the fleet of a command: `--url`, `AILOOP_URL`, or the one that runs in this directory.
pub(super) fn find_fleet(target: &FleetTarget) -> Option<FleetLocation> {
    find_fleet_where(target, |_| true)
}

/// As [`find_fleet`], without a fleet that `ailoop run` started for its own session: it accepts no other session.
pub(super) fn find_shared_fleet(target: &FleetTarget) -> Option<FleetLocation> {
    find_fleet_where(target, |run| !run.one_session)
}

fn find_fleet_where(target: &FleetTarget, is_wanted: fn(&RunFile) -> bool) -> Option<FleetLocation> {
    if let Some(url) = &target.url {
        return Some(FleetLocation::Url(url.clone()));
    }
    let home = Home::below(Path::new(""));
    let run = home.running().filter(is_wanted)?;
    Some(FleetLocation::Directory(home, run))
}

/// Connects to the fleet of a command, which must be running.
pub(super) async fn connect(target: &FleetTarget) -> Result<EdgeClient, CommandFailure> {
    let fleet = find_fleet(target).ok_or_else(|| {
        CommandFailure::new(ErrorCode::Unavailable, "no fleet runs in this directory")
            .help("start one with `ailoop up`, or pass --url or set AILOOP_URL")
    })?;
    fleet.connect(target.token.as_deref()).await
}

/// Returns how to reach NATS: at `url`, else where the fleet of this directory has it, else as configured.
pub(super) fn nats_config(url: Option<&String>) -> Result<NatsConfig, CommandFailure> {
    let nats = CommonSettings::read(&Settings::read(None)?)?.nats;
    let running = || Home::below(Path::new(".")).running().map(|run| run.nats);
    Ok(match url.cloned().or_else(running) {
        Some(url) => NatsConfig { url, ..nats },
        None => nats,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_hint_key_set_only_in_this_shell_is_named() {
        let run = RunFile {
            pid: 7,
            version: String::new(),
            grpc: String::new(),
            ws: String::new(),
            nats: String::new(),
            one_session: false,
            missing_keys: vec!["A_KEY".to_owned(), "B_KEY".to_owned()],
        };
        let fleet = FleetLocation::Directory(Home::below(Path::new("")), run);
        let hint = fleet.key_hint(|name| name == "B_KEY").unwrap();
        assert!(hint.starts_with("B_KEY is set here, but the fleet (process 7) was started without it"), "{hint}");
        assert_eq!(fleet.key_hint(|_| false), None);
        assert_eq!(FleetLocation::Url("http://x".to_owned()).key_hint(|_| true), None);
    }
}
