//! The connection to an edge: calls with a timeout and retries, also to a fleet that moved to another address.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proto::sessions_client::SessionsClient;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::error::{ClientError, root_cause};
use crate::retry::Retries;
use crate::target::{BearerKey, Target, add_scheme};

/// Longest wait for a response; the edge itself waits up to 30 s for a command to be handled.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(35);
/// Bytes of one response: enough for a whole reply of a model as escaped JSON.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// The generated client, with the API key of each call.
pub type SessionsApi = SessionsClient<InterceptedService<Channel, BearerKey>>;

/// Returns the present address of a fleet, if it is known.
pub(crate) type Locate = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// A connection to an edge. Clones share it.
#[derive(Clone)]
pub(crate) struct EdgeConnection(Arc<Shared>);

struct Shared {
    target: Target,
    locate: Option<Locate>,
    retry_for: Duration,
    current: Mutex<Current>,
}

#[derive(Clone)]
struct Current {
    url: String,
    api: SessionsApi,
}

impl fmt::Debug for EdgeConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EdgeConnection").field("url", &self.url()).finish_non_exhaustive()
    }
}

impl EdgeConnection {
    pub(crate) async fn open(target: Target, locate: Option<Locate>, retry_for: Duration) -> Result<Self, ClientError> {
        let current = Mutex::new(connect(&target).await?);
        Ok(Self(Arc::new(Shared { target, locate, retry_for, current })))
    }

    /// Returns the time for which failures are retried before one is returned.
    pub(crate) fn retry_for(&self) -> Duration {
        self.0.retry_for
    }

    pub(crate) fn url(&self) -> String {
        self.current().url
    }

    pub(crate) fn api(&self) -> SessionsApi {
        self.current().api
    }

    /// Connects again if the fleet has another address by now. A lost connection to the same address comes back by itself.
    pub(crate) async fn reconnect_if_moved(&self) -> Result<(), ClientError> {
        let Some(url) = self.0.locate.as_ref().and_then(|locate| locate()) else { return Ok(()) };
        let url = add_scheme(&url);
        if url == self.url() {
            return Ok(());
        }
        let current = connect(&Target { url, ..self.0.target.clone() }).await?;
        *self.0.current.lock().unwrap_or_else(PoisonError::into_inner) = current;
        Ok(())
    }

    /// Makes a call, and repeats it while that can help. It must be one that the fleet handles once, such as a command
    /// with an id, or one that changes nothing.
    pub(crate) async fn call<R: Clone, T>(
        &self,
        request: R,
        method: impl AsyncFn(&mut SessionsApi, Request<R>) -> Result<Response<T>, Status>,
    ) -> Result<T, ClientError> {
        let mut retries = Retries::new(self.0.retry_for);
        loop {
            match method(&mut self.api(), bounded(request.clone())).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => retries.wait(&status.into()).await?,
            }
            // If the fleet is still down, the next call fails.
            let _down = self.reconnect_if_moved().await;
        }
    }

    fn current(&self) -> Current {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn connect(target: &Target) -> Result<Current, ClientError> {
    let (endpoint, key) = (target.endpoint()?, target.credentials()?);
    let channel = endpoint
        .connect()
        .await
        .map_err(|error| ClientError::unreachable(format!("the fleet cannot be reached ({})", root_cause(&error))))?;
    let api = SessionsClient::with_interceptor(channel, key).max_decoding_message_size(RESPONSE_BYTES_MAX);
    Ok(Current { url: add_scheme(&target.url), api })
}

/// Makes a request with the timeout that fits calls of the API, except `watch`.
pub fn bounded<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(RESPONSE_TIMEOUT);
    request
}
