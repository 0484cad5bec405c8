//! The store of a fleet that does not run, served for one command that reads.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bus::Bus;
use configuration::{Paths, Secret, Settings};
use contract::ErrorCode;
use edge::{Edge, EdgeConfig};
use fleet_connection::client::{EdgeClient, EdgeTarget};
use fleet_connection::instance::{Home, Lock};
use fleet_connection::local_credentials::CredentialSource;
use service::common::CommonSettings;
use telemetry::Telemetry;
use terminal::failure::CommandFailure;

use super::plan::{SESSION_FILTER, nats_search_paths, set_log_filter};
use super::startup::{internal_failure, wait_until_ready};
use crate::nats_binary;
use crate::nats_server::{NatsServer, wait_until_unused};

/// Longest wait for the end of the nats-server of a fleet that was killed.
const SERVER_END_MAX: Duration = Duration::from_secs(5);
/// Longest wait for the end of the requests of the command.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// The store of a directory: its nats-server, and the edge if the command needs one. There is no other service, so that
/// nothing in the store goes on: no command is handled, no call is made, and no timer is.
#[derive(Debug)]
pub struct LocalStore {
    config: EdgeConfig,
    edge: Option<Edge>,
    bus: Bus,
    server: NatsServer,
    telemetry: Telemetry,
    /// Dropped last, so that the directory is free only when nothing uses it any more.
    _lock: Lock,
}

impl LocalStore {
    /// Locks the store and starts its nats-server. If another process uses the store, nothing is started.
    pub async fn open(home: &Home) -> Result<Self, CommandFailure> {
        let lock = home.lock_when_free().await?;
        if !wait_until_unused(&home.nats(), SERVER_END_MAX).await {
            let message = format!("the nats-server of a fleet that was killed still uses {}", home.nats().display());
            return Err(CommandFailure::new(ErrorCode::NotNow, message).help("wait for it, or end it"));
        }
        // A fleet that was killed has left its run file.
        lock.remove_run_file();
        // The configuration of the fleet is beside its store, which may be above the working directory.
        let settings = Settings::of(Paths::find_beside(home.parent().unwrap_or(Path::new("")))?)?;
        let (mut common, config) = (CommonSettings::read(&settings)?, settings.section("edge")?);
        set_log_filter(&mut common, SESSION_FILTER);
        // The command is no part of a fleet that somebody monitors.
        common.telemetry.otlp_endpoint = None;
        let telemetry = telemetry::init("ailoop", &common.telemetry).map_err(|error| internal_failure(&error))?;
        let binary = nats_binary::find(&nats_search_paths()).await?;
        let password = lock.credentials(CredentialSource::Kept)?.map(|credentials| credentials.nats_password);
        let server = NatsServer::start(&binary, &home.nats(), -1, password).await?;
        let nats = bus::NatsConfig { url: server.url(), name: "ailoop".to_owned(), ..common.nats };
        let bus = Bus::connect(&nats).await.map_err(|error| CommandFailure::from(error).at(nats.shown_url()))?;
        bus.ensure().await.map_err(|error| CommandFailure::from(error).at(nats.shown_url()))?;
        Ok(Self { config, edge: None, bus, server, telemetry, _lock: lock })
    }

    /// Returns the connection to the nats-server.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Starts the edge on free ports of this machine, and connects to it. A credential of the caller is used if the edge
    /// has credentials with tenants of their own; else only this command can use the edge.
    pub async fn connect(&mut self, credential: Option<&str>) -> Result<EdgeClient, CommandFailure> {
        let mut config = self.config.clone();
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        (config.ws.listen, config.grpc.listen) = (free, free);
        (config.tls, config.console) = (None, false);
        // The store is one set of streams, whatever the fleet has elsewhere.
        config.cells.clear();
        config.tenant_cells.clear();
        let has_tenants = config.tokens_dir.is_some() || config.keys_file.is_some() || !config.issuers.is_empty();
        let token = if let Some(token) = credential.filter(|_| has_tenants) {
            token.to_owned()
        } else {
            (config.tokens_dir, config.keys_file) = (None, None);
            config.issuers.clear();
            let token = uuid::Uuid::new_v4().to_string();
            config.token = Some(Secret::new(token.clone()));
            token
        };
        let edge = Edge::start(config, self.bus.clone()).await?;
        let (url, readiness) = (format!("http://{}", edge.addresses().grpc), edge.readiness());
        self.edge = Some(edge);
        wait_until_ready(&readiness).await?;
        EdgeClient::connect(EdgeTarget { url, token: Some(token), ..EdgeTarget::default() }).await
    }

    /// Ends the edge and the nats-server.
    pub async fn end(self) {
        if let Some(edge) = self.edge {
            edge.drain(DRAIN_MAX).await;
        }
        self.bus.close().await;
        self.server.end().await;
        self.telemetry.shutdown().await;
    }
}
