//! Sessions of the MCP transport before 2026-07-28. They keep nothing: their id says what the client can do, and each
//! request stands for itself, so that every replica serves it.

use std::sync::{Mutex, PoisonError};

use axum::http::request::Parts;
use edge_core::api_error::ApiError;
use futures::channel::mpsc as handshake;
use futures::{SinkExt, Stream, StreamExt, stream};
use rmcp::RoleServer;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientNotification, ElicitationCapability, GetExtensions, Implementation,
    InitializeRequestParams, InitializedNotification, ProtocolVersion, ServerJsonRpcMessage,
};
use rmcp::service::serve_directly_with_ct;
use rmcp::transport::OneshotTransport;
use rmcp::transport::sink_stream::SinkStreamTransport;
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::handler::McpHandler;
use super::turn_follower::ClientOutlet;

/// Messages that wait for a client on the stream of a request.
const QUEUE_MAX: usize = 16;
/// Begins the id of each session; a version of the form follows.
const ID_PREFIX: &str = "ailoop1";
/// Ends the id of a client that shows forms.
const WITH_FORMS: &str = "forms";
const WITHOUT_FORMS: &str = "plain";

/// The sessions, as one HTTP request sees them.
#[derive(Debug)]
pub(super) struct ClientSessions {
    handler: McpHandler,
    has_forms: bool,
    /// The other end of the transport of a handshake.
    handshake: Mutex<Option<HandshakePeer>>,
}

#[derive(Debug)]
struct HandshakePeer {
    to_server: handshake::Sender<ClientJsonRpcMessage>,
    from_server: handshake::Receiver<ServerJsonRpcMessage>,
}

/// The transport of a handshake: it ends after it.
type HandshakeTransport =
    SinkStreamTransport<handshake::Sender<ServerJsonRpcMessage>, handshake::Receiver<ClientJsonRpcMessage>>;

impl ClientSessions {
    /// Makes the sessions for one request. `has_forms` is what the client declares in a handshake.
    pub(super) fn new(handler: McpHandler, has_forms: bool) -> Self {
        Self { handler, has_forms, handshake: Mutex::new(None) }
    }
}

impl SessionManager for ClientSessions {
    type Error = ApiError;
    type Transport = HandshakeTransport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (to_server, from_client) = handshake::channel(QUEUE_MAX);
        let (to_client, from_server) = handshake::channel(QUEUE_MAX);
        *self.handshake.lock().unwrap_or_else(PoisonError::into_inner) = Some(HandshakePeer { to_server, from_server });
        let forms = if self.has_forms { WITH_FORMS } else { WITHOUT_FORMS };
        let id = format!("{ID_PREFIX}.{}.{forms}", uuid::Uuid::new_v4().simple());
        Ok((id.into(), SinkStreamTransport::new(to_client, from_client)))
    }

    async fn initialize_session(
        &self,
        _id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        let failed = || ApiError::new(contract::ErrorCode::Internal, "the handshake failed");
        let peer = self.handshake.lock().unwrap_or_else(PoisonError::into_inner).take();
        let HandshakePeer { mut to_server, mut from_server } = peer.ok_or_else(failed)?;
        to_server.send(message).await.map_err(|_| failed())?;
        let response = from_server.next().await.ok_or_else(failed)?;
        let initialized = ClientNotification::InitializedNotification(InitializedNotification::default());
        // A handshake that was refused is over.
        let _ = to_server.send(ClientJsonRpcMessage::notification(initialized)).await;
        Ok(response)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(parse_id(id).is_some())
    }

    async fn close_session(&self, _id: &SessionId) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let ClientJsonRpcMessage::Request(mut request) = message else {
            return Err(ApiError::bad_request("only a request has a stream"));
        };
        let client = to_client_info(id, request.request.extensions().get::<Parts>());
        let (outlet, mut asked) = mpsc::channel(QUEUE_MAX);
        request.request.extensions_mut().insert(ClientOutlet(outlet));
        let (transport, mut answers) = OneshotTransport::<RoleServer>::new(ClientJsonRpcMessage::Request(request));
        let ending = CancellationToken::new();
        let running = serve_directly_with_ct(self.handler.clone(), transport, Some(client), ending.clone());
        self.handler.api().tasks().spawn("mcp request", async move {
            let _ = running.waiting().await;
        });
        // A client that closes the stream waits no more.
        let guard = ending.drop_guard();
        let messages = stream::select(
            stream::poll_fn(move |context| answers.poll_recv(context)),
            stream::poll_fn(move |context| asked.poll_recv(context)),
        );
        Ok(messages.map(move |message| {
            let _is_held = &guard;
            ServerSseMessage::from_message(message)
        }))
    }

    async fn accept_message(&self, _id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        match message {
            ClientJsonRpcMessage::Response(response) => {
                self.handler.accept_form(&response.id, serde_json::to_value(&response.result).ok()).await
            }
            ClientJsonRpcMessage::Error(error) => match &error.id {
                Some(id) => self.handler.accept_form(id, None).await,
                None => Ok(()),
            },
            // A call ends when its stream is closed, and the session goes on.
            ClientJsonRpcMessage::Notification(_) | ClientJsonRpcMessage::Request(_) => Ok(()),
        }
    }

    async fn create_standalone_stream(
        &self,
        _id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(stream::empty())
    }

    async fn resume(
        &self,
        _id: &SessionId,
        _last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(stream::empty())
    }
}

/// Returns whether the client of a session shows forms; `None` if the id is of another server.
fn parse_id(id: &str) -> Option<bool> {
    let (uuid, forms) = id.strip_prefix(ID_PREFIX)?.strip_prefix('.')?.split_once('.')?;
    uuid::Uuid::try_parse(uuid).ok()?;
    match forms {
        WITH_FORMS => Some(true),
        WITHOUT_FORMS => Some(false),
        _ => None,
    }
}

/// Returns the facts that the library must know about the client of a request.
fn to_client_info(id: &str, parts: Option<&Parts>) -> InitializeRequestParams {
    let mut capabilities = ClientCapabilities::default();
    capabilities.elicitation = parse_id(id).unwrap_or_default().then(ElicitationCapability::new);
    let version = parts.and_then(|parts| parts.headers.get("mcp-protocol-version")?.to_str().ok());
    let version = version.and_then(|text| serde_json::from_value(text.into()).ok());
    InitializeRequestParams::new(capabilities, Implementation::new("client", "0"))
        .with_protocol_version(version.unwrap_or(ProtocolVersion::V_2025_03_26))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_id_says_what_the_client_can_do() {
        let uuid = uuid::Uuid::new_v4().simple();
        let rows = [
            (format!("ailoop1.{uuid}.forms"), Some(true)),
            (format!("ailoop1.{uuid}.plain"), Some(false)),
            (format!("ailoop1.{uuid}.other"), None),
            (format!("ailoop2.{uuid}.plain"), None),
            ("ailoop1.x.plain".to_owned(), None),
            (uuid.to_string(), None),
            (String::new(), None),
        ];
        for (id, wanted) in rows {
            assert_eq!(parse_id(&id), wanted, "{id}");
        }
    }
}
