//! The HTTP listener: JSON-RPC over WebSocket on `/ws`, and a word for people on `/`.

mod calls;
mod connection;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use contract::ErrorCode;
use contract::limits::FRAME_BYTES_MAX;
use tokio::sync::Semaphore;

use crate::failure::Failure;
use crate::guard::{Guard, Knock};
use crate::sessions::Sessions;

/// WebSocket connections of one replica.
pub(crate) const CONNECTIONS_MAX: usize = 4_096;

const ABOUT: &str = "This is the edge of ailoop, which runs AI agent sessions.\n\
    JSON-RPC 2.0 over WebSocket: /ws (session.start, session.send, session.watch, …).\n\
    gRPC with reflection: the next port, unless it was configured otherwise.\n";

#[derive(Clone)]
struct Door {
    sessions: Sessions,
    guard: Arc<Guard>,
    places: Arc<Semaphore>,
}

/// The routes of the HTTP listener.
pub(crate) fn routes(sessions: Sessions, guard: Guard) -> Router {
    let door = Door { sessions, guard: Arc::new(guard), places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) };
    Router::new().route("/", get(async || ABOUT)).route("/ws", get(upgrade)).with_state(door)
}

async fn upgrade(
    State(door): State<Door>,
    headers: HeaderMap,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let knock = Knock {
        authorization: header(header::AUTHORIZATION),
        origin: header(header::ORIGIN),
        host: header(header::HOST),
    };
    let caller = match door.guard.admit(knock) {
        Ok(caller) => caller,
        Err(failure) => return refuse(StatusCode::UNAUTHORIZED, &failure),
    };
    let socket = match socket {
        Ok(socket) => socket,
        Err(rejection) => {
            return refuse(StatusCode::UPGRADE_REQUIRED, &Failure::bad_request(rejection.to_string()));
        }
    };
    if door.sessions.draining().is_cancelled() {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, &Sessions::going_down());
    }
    let Ok(place) = door.places.try_acquire_owned() else {
        let failure = Failure::new(ErrorCode::Overloaded, format!("{CONNECTIONS_MAX} connections are open already"));
        return refuse(StatusCode::SERVICE_UNAVAILABLE, &failure);
    };
    let sessions = door.sessions;
    let socket = socket.max_message_size(FRAME_BYTES_MAX).max_frame_size(FRAME_BYTES_MAX);
    socket.on_upgrade(async move |socket| {
        let tasks = sessions.tasks().clone();
        tasks.spawn("connection", async move {
            telemetry::metric::connections("ws", 1);
            connection::serve(socket, sessions, caller).await;
            telemetry::metric::connections("ws", -1);
            drop(place);
        });
    })
}

fn refuse(status: StatusCode, failure: &Failure) -> Response {
    let body = serde_json::json!({"code": failure.code, "message": failure.message});
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}
