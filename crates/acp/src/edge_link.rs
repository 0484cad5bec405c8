//! The connection to the fleet, made with the first request that needs it.

use std::fmt;

use fleet_connection::client::{EdgeClient, SessionsApi};
use futures::future::BoxFuture;
use proto::{ListAgentsRequest, ListModelsRequest};
use terminal::failure::CommandFailure;
use tokio::sync::Mutex;
use tonic::{Request, Response, Status};

use super::settings::Catalogue;

/// Connects to the fleet of the command.
pub(crate) type Connector = Box<dyn Fn() -> BoxFuture<'static, Result<EdgeClient, CommandFailure>> + Send + Sync>;

/// The fleet, which may start after the editor.
pub struct EdgeLink {
    connect: Connector,
    client: Mutex<Option<EdgeClient>>,
}

impl fmt::Debug for EdgeLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EdgeLink").finish_non_exhaustive()
    }
}

impl EdgeLink {
    /// Makes a link that is not connected yet.
    pub fn new(connect: Connector) -> Self {
        Self { connect, client: Mutex::new(None) }
    }

    /// Returns the client; connects if there is none yet, or if the fleet has moved.
    pub(super) async fn client(&self) -> Result<EdgeClient, CommandFailure> {
        let mut client = self.client.lock().await;
        let current = match client.take() {
            Some(current) => current,
            None => (self.connect)().await?,
        };
        let moved = current.reconnect_if_moved().await;
        *client = Some(current.clone());
        moved.map(|()| current)
    }

    /// Makes a call, with retries while the connection is broken; by its command id the fleet handles it once.
    pub(super) async fn call<R: Clone, T>(
        &self,
        request: R,
        method: impl AsyncFn(&mut SessionsApi, Request<R>) -> Result<Response<T>, Status>,
    ) -> Result<T, CommandFailure> {
        self.client().await?.call_with_retries(request, |_| {}, method).await
    }

    /// Fetches the agents and models that a session may have.
    pub(super) async fn catalogue(&self) -> Result<Catalogue, CommandFailure> {
        let agents = self.call(ListAgentsRequest {}, SessionsApi::list_agents).await?.agents;
        let models = self.call(ListModelsRequest {}, SessionsApi::list_models).await?.models;
        Ok(Catalogue { agents, models })
    }
}
