//! The HTTP client of the library, with observed event streams.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use http::{HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use tokio::time::sleep;

use super::pace::ReadPace;
use super::task_tools::TaskTools;

type ClientError = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// Observes all messages of a server.
#[derive(Debug, Clone)]
pub(super) struct StreamObserver {
    pub(super) pace: ReadPace,
    pub(super) tasks: TaskTools,
}

/// A client whose streams are observed.
#[derive(Clone)]
pub(super) struct ObservedClient {
    pub(super) client: reqwest::Client,
    pub(super) observer: StreamObserver,
}

impl StreamObserver {
    fn observe_stream(&self, stream: BoxedSseResponse) -> BoxedSseResponse {
        let observer = self.clone();
        let paced = stream.then(move |event| {
            let data = event.as_ref().ok().and_then(|event| event.data.as_deref()).unwrap_or_default();
            observer.tasks.read(data.as_bytes());
            let pause = observer.pace.count(1, data.len());
            async move {
                if !pause.is_zero() {
                    sleep(pause).await;
                }
                event
            }
        });
        paced.boxed()
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the library's kinds are not ours to count")]
    fn observe_response(&self, response: StreamableHttpPostResponse) -> StreamableHttpPostResponse {
        match response {
            StreamableHttpPostResponse::Sse(stream, session) => {
                StreamableHttpPostResponse::Sse(self.observe_stream(stream), session)
            }
            other => other,
        }
    }
}

impl StreamableHttpClient for ObservedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, ClientError> {
        let response = self.client.post_message(uri, message, session, auth, headers).await?;
        Ok(self.observer.observe_response(response))
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, ClientError> {
        let post = self.client.post_message_with_response_limits(uri, message, session, auth, headers, limits);
        Ok(self.observer.observe_response(post.await?))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<(), ClientError> {
        self.client.delete_session(uri, session, auth, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<BoxedSseResponse, ClientError> {
        Ok(self.observer.observe_stream(self.client.get_stream(uri, session, last, auth, headers).await?))
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        auth: Option<String>,
        headers: Headers,
        max: usize,
    ) -> Result<BoxedSseResponse, ClientError> {
        let stream = self.client.get_stream_with_max_sse_event_size(uri, session, last, auth, headers, max).await?;
        Ok(self.observer.observe_stream(stream))
    }
}
