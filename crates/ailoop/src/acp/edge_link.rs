//! The connection to the fleet, made with the first request that needs it.

use std::fmt;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use proto::{ListAgentsRequest, ListModelsRequest};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::settings::Catalogue;
use crate::client::{EdgeClient, SessionsApi, bounded};
use crate::failure::CommandFailure;

/// Connects to the fleet of the command.
pub(crate) type Connector = Box<dyn Fn() -> BoxFuture<'static, Result<EdgeClient, CommandFailure>> + Send + Sync>;

/// The fleet, which may start after the editor.
pub(crate) struct EdgeLink {
    connect: Connector,
    client: Mutex<Option<EdgeClient>>,
}

impl fmt::Debug for EdgeLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EdgeLink").finish_non_exhaustive()
    }
}

impl EdgeLink {
    pub(crate) fn new(connect: Connector) -> Self {
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
    pub(super) async fn call<R, T, F>(&self, request: R, call: F) -> Result<T, CommandFailure>
    where
        R: Clone,
        F: Fn(SessionsApi, Request<R>) -> BoxFuture<'static, Result<Response<T>, Status>>,
    {
        let (client, began) = (self.client().await?, Instant::now());
        loop {
            match call(client.sessions(), bounded(request.clone())).await {
                Ok(reply) => return Ok(reply.into_inner()),
                Err(status) => client.wait_for_retry(&status, began).await?,
            }
        }
    }

    /// Fetches the agents and models that a session may have.
    pub(super) async fn catalogue(&self) -> Result<Catalogue, CommandFailure> {
        let list_agents = |mut api: SessionsApi, request| async move { api.list_agents(request).await }.boxed();
        let list_models = |mut api: SessionsApi, request| async move { api.list_models(request).await }.boxed();
        let agents = self.call(ListAgentsRequest {}, list_agents).await?.agents;
        let models = self.call(ListModelsRequest {}, list_models).await?.models;
        Ok(Catalogue { agents, models })
    }
}
