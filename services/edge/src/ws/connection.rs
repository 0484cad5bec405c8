//! One WebSocket connection: it reads requests and writes responses and notifications, each at its own pace.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use contract::limits::FRAME_BYTES_MAX;
use contract::{ErrorCode, SessionId};
use edge_core::access::ApiCaller;
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::client_queue::{ClientQueue, QueueEnd, QueueItem};
use edge_core::feed::viewer_event::format_notification;
use edge_core::jsonrpc::{self, RequestFrame};
use edge_core::watch::WATCH_FAILED;
use edge_core::watch::viewer::Viewer;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, SplitSink, SplitStream};
use futures::{FutureExt, SinkExt, StreamExt};
use serde_json::Value;
use service::connections::{BookedBytes, ByteBudget};
use service::pace::Pace;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::dispatch::{self, FollowUp, PendingWatches};

const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Time without any frame of the client, pongs included, after which the connection is closed.
const SILENCE_MAX: Duration = Duration::from_mins(1);
/// Frames of one connection that wait to be handled.
const FRAMES_MAX: usize = 64;
/// Bytes of the frames of one connection that wait to be handled: two of full size.
const FRAMES_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;
/// Requests without a response yet, above which no further frame is handled. A batch is handled as a whole.
const IN_FLIGHT_MAX: usize = 64;
/// Maximum number of sessions that one connection watches.
const WATCHES_MAX: usize = 256;
/// Longest time that a draining replica waits for the responses to open requests.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// Timeout for sending the last frame and the close frame.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Maximum bytes of the reason of a close frame, by the protocol.
const CLOSE_REASON_MAX: usize = 123;

/// Serves a connection to its end.
pub(super) async fn serve(socket: WebSocket, api: SessionApi, caller: ApiCaller) {
    let (sink, stream) = socket.split();
    let queue = Arc::new(api.client_queue());
    let (frames, waiting) = mpsc::channel(FRAMES_MAX);
    let budgets = [api.budget().clone(), ByteBudget::new(FRAMES_BYTES_MAX)];
    let (grant, pace) = (caller.grant.clone(), caller.pace.clone());
    let request_loop =
        RequestLoop { api, caller, queue: queue.clone(), viewers: HashMap::new(), waiting: PendingWatches::default() };
    let inward = async {
        tokio::select! {
            () = read_frames(stream, &pace, &frames, &budgets, &queue) => queue.end(QueueEnd::Disconnected),
            () = request_loop.run(waiting) => {}
            _ = queue.wait_for_end() => {}
            error = grant.wait_for_end() => queue.end(QueueEnd::Failed(error)),
        }
    };
    let outward = async {
        write_items(sink, &queue).await;
        queue.end(QueueEnd::Disconnected);
    };
    tokio::join!(inward, outward);
}

/// A frame that waits to be handled, with the bytes that are booked for it.
struct QueuedFrame {
    frame: RequestFrame,
    _booked: Vec<BookedBytes>,
}

/// Reads frames until the client disconnects or is silent for too long.
async fn read_frames(
    mut stream: SplitStream<WebSocket>,
    pace: &Pace,
    frames: &mpsc::Sender<QueuedFrame>,
    budgets: &[ByteBudget],
    queue: &ClientQueue,
) {
    let mut pause = Duration::ZERO;
    loop {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let Ok(Some(message)) = tokio::time::timeout(SILENCE_MAX, stream.next()).await else { return };
        match message {
            Ok(Message::Text(text)) => {
                let frame = jsonrpc::parse_frame(&text);
                pause = pace.count(frame.parts.len().max(1), text.len());
                let booked: Option<Vec<_>> = budgets.iter().map(|budget| budget.book(text.len())).collect();
                let Some(booked) = booked else {
                    refuse_all(
                        frame,
                        "waiting requests take all bytes that the edge has for them: send less at once, or try again",
                        queue,
                    );
                    continue;
                };
                if let Err(refused) = frames.try_send(QueuedFrame { frame, _booked: booked }) {
                    let why = format!("{FRAMES_MAX} frames of this connection wait already: send fewer at once");
                    refuse_all(refused.into_inner().frame, &why, queue);
                }
            }
            Ok(Message::Binary(bytes)) => {
                pause = pace.count(1, bytes.len());
                let message = "binary frames are not supported: send JSON-RPC 2.0 as text";
                queue.push(QueueItem::Text(jsonrpc::format_protocol_error(&Value::Null, -32600, message)));
            }
            Ok(Message::Ping(_) | Message::Pong(_)) => pause = pace.count(1, 0),
            Ok(Message::Close(_)) => return,
            Err(error) => {
                // Only after an oversized frame can the connection still be written to.
                if error.to_string().starts_with("Space limit exceeded") {
                    queue.end(QueueEnd::Failed(ApiError::new(ErrorCode::TooLarge, error.to_string())));
                }
                return;
            }
        }
    }
}

fn refuse_all(frame: RequestFrame, why: &str, queue: &ClientQueue) {
    let error = ApiError::new(ErrorCode::Overloaded, why).with_retry_after(Duration::from_secs(1));
    let ids = frame.parts.into_iter().filter_map(|part| part.ok().and_then(|request| request.id));
    for id in ids {
        queue.push(QueueItem::Text(jsonrpc::format_error(&id, &error)));
    }
}

/// Writes the items of the queue, and pings, until the queue ends; then closes the connection.
async fn write_items(mut sink: SplitSink<WebSocket, Message>, queue: &ClientQueue) {
    let mut ping = tokio::time::interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    let end = loop {
        let message = tokio::select! {
            item = queue.pop() => match item {
                Ok(QueueItem::Text(text)) => Message::Text(text.into()),
                Ok(QueueItem::Event(event)) => Message::Text(Utf8Bytes::from(&*event.to_json_rpc())),
                Err(end) => break end,
            },
            _ = ping.tick() => Message::Ping(axum::body::Bytes::new()),
        };
        let mut sending = pin!(sink.send(message));
        let is_sent = tokio::select! {
            is_sent = &mut sending => is_sent.is_ok(),
            // A frame that is half sent must be completed before the close frame.
            _ = queue.wait_for_end() => matches!(tokio::time::timeout(CLOSE_MAX, sending).await, Ok(Ok(()))),
        };
        if !is_sent {
            break queue.end_reason().unwrap_or(QueueEnd::Disconnected);
        }
    };
    if let QueueEnd::Slow { .. } = end {
        telemetry::metric::slow_client();
    }
    let close = Message::Close(Some(close_frame(&end)));
    // A client that does not read does not get the close frame either.
    let _ = tokio::time::timeout(CLOSE_MAX, sink.send(close)).await;
}

fn close_frame(end: &QueueEnd) -> CloseFrame {
    let code = match end {
        QueueEnd::Complete => close_code::NORMAL,
        QueueEnd::Disconnected => close_code::AWAY,
        QueueEnd::Slow { .. } => close_code::AGAIN,
        QueueEnd::Failed(error) if error.code == ErrorCode::Draining => close_code::RESTART,
        QueueEnd::Failed(error) if error.code == ErrorCode::TooLarge => close_code::SIZE,
        QueueEnd::Failed(error) if error.code == ErrorCode::Unauthorized => close_code::POLICY,
        QueueEnd::Failed(_) => close_code::ERROR,
    };
    let mut reason = serde_json::Map::new();
    if let Some(error) = end.error() {
        reason.insert("code".to_owned(), Value::from(error.code.as_str()));
    }
    if let QueueEnd::Slow { session, seq } = end {
        reason.insert("seq".to_owned(), Value::from(*seq));
        let session_id = session.as_ref().map(|session| Value::from(session.as_str()));
        // Ids are at most 64 bytes, so only a very long `seq` leaves no room for one.
        if let Some(session) = session_id.filter(|session| session.to_string().len() + 64 < CLOSE_REASON_MAX) {
            reason.insert("session_id".to_owned(), session);
        }
    }
    let reason = if reason.is_empty() { String::new() } else { Value::Object(reason).to_string() };
    CloseFrame { code, reason: reason.into() }
}

/// Response to a frame, if it has one, and what to do after it is queued.
type FrameReply = (Option<String>, Vec<FollowUp>);

/// Handles the requests of one connection and starts its viewers.
struct RequestLoop {
    api: SessionApi,
    caller: ApiCaller,
    queue: Arc<ClientQueue>,
    viewers: HashMap<SessionId, RunningViewer>,
    waiting: PendingWatches,
}

/// A running viewer; dropping this ends it.
struct RunningViewer {
    token: CancellationToken,
}

impl Drop for RunningViewer {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

impl RequestLoop {
    /// Begins requests in their order, and queues each response as soon as it is complete.
    async fn run(mut self, mut frames: mpsc::Receiver<QueuedFrame>) {
        let draining = self.api.draining().clone();
        let (mut in_flight, mut requests) = (FuturesUnordered::new(), 0);
        loop {
            let has_room = requests < IN_FLIGHT_MAX;
            tokio::select! {
                () = draining.cancelled() => break,
                Some((count, finished)) = in_flight.next(), if !in_flight.is_empty() => {
                    requests -= count;
                    self.finish(finished);
                }
                frame = frames.recv(), if has_room => {
                    let Some(QueuedFrame { frame, .. }) = frame else { return };
                    let count = frame.parts.len();
                    let (api, caller, waiting) =
                        (self.api.clone(), self.caller.clone(), self.waiting.clone());
                    // The future is on the heap, so that an idle connection does not reserve memory for it.
                    let mut starting = Box::pin(begin_frame(&api, &caller, &waiting, frame));
                    let reply = loop {
                        tokio::select! {
                            reply = &mut starting => break reply,
                            Some((count, finished)) = in_flight.next(), if !in_flight.is_empty() => {
                                requests -= count;
                                self.finish(finished);
                            }
                        }
                    };
                    requests += count;
                    in_flight.push(async move { (count, reply.await) });
                }
            }
        }
        self.queue.push(QueueItem::Text(format_notification("server.draining", &serde_json::json!({}))));
        let remaining = async {
            while let Some((_, finished)) = in_flight.next().await {
                self.finish(finished);
            }
        };
        // Commands without a response are stored all the same; the client repeats them with the same id.
        let _ = tokio::time::timeout(DRAIN_MAX, remaining).await;
        self.queue.end(QueueEnd::Failed(SessionApi::draining_error()));
    }

    fn finish(&mut self, (response, follow_up): FrameReply) {
        if let Some(response) = response {
            self.queue.push(QueueItem::Text(response));
        }
        for follow_up in follow_up {
            match follow_up {
                FollowUp::Nothing => {}
                FollowUp::Watch(viewer) => self.watch(*viewer),
                FollowUp::Unwatch(session) => {
                    self.viewers.remove(&session);
                    self.queue.forget_session(&session);
                }
            }
        }
    }

    /// Starts a viewer, in place of a running one of the same session.
    fn watch(&mut self, viewer: Viewer) {
        let session = viewer.session().clone();
        self.viewers.retain(|_, viewer| !viewer.token.is_cancelled());
        if self.viewers.len() >= WATCHES_MAX && !self.viewers.contains_key(&session) {
            let error = ApiError::new(
                ErrorCode::Overloaded,
                format!("this connection watches {WATCHES_MAX} sessions already: unwatch one of them first"),
            );
            self.queue.push(QueueItem::Text(format_watch_failure(&session, &error)));
            return;
        }
        let token = CancellationToken::new();
        self.viewers.insert(session.clone(), RunningViewer { token: token.clone() });
        let queue = self.queue.clone();
        self.api.tasks().spawn("viewer", async move {
            tokio::select! {
                () = token.cancelled() => {}
                outcome = viewer.run(&queue) => {
                    if let Err(error) = outcome {
                        queue.push(QueueItem::Text(format_watch_failure(&session, &error)));
                    }
                    token.cancel();
                }
            }
        });
    }
}

/// Formats the notification of a watch that cannot continue: `resync` if its cursor is lost, otherwise `watch.failed`.
fn format_watch_failure(session: &SessionId, error: &ApiError) -> String {
    let method = if error.code == ErrorCode::Resync { "resync" } else { WATCH_FAILED };
    let params = serde_json::json!({
        "session_id": session, "code": error.code, "message": error.message, "seq": error.seq,
    });
    format_notification(method, &params)
}

/// Begins the requests of a frame one after another; the returned future completes them together.
async fn begin_frame(
    api: &SessionApi,
    caller: &ApiCaller,
    waiting: &PendingWatches,
    frame: RequestFrame,
) -> BoxFuture<'static, FrameReply> {
    let mut replies = Vec::new();
    for part in frame.parts {
        let reply: BoxFuture<'static, (Option<String>, FollowUp)> = match part {
            Err(response) => std::future::ready((Some(response), FollowUp::Nothing)).boxed(),
            Ok(request) => {
                let id = request.id.clone();
                let reply = dispatch::begin_request(api, caller, waiting, request).await;
                reply.map(move |outcome| to_response(id.as_ref(), outcome)).boxed()
            }
        };
        replies.push(reply);
    }
    let is_batch = frame.is_batch;
    async move {
        let (responses, follow_up): (Vec<_>, Vec<_>) = futures::future::join_all(replies).await.into_iter().unzip();
        let responses: Vec<String> = responses.into_iter().flatten().collect();
        let response = if is_batch { jsonrpc::format_batch(&responses) } else { responses.into_iter().next() };
        (response, follow_up)
    }
    .boxed()
}

fn to_response(id: Option<&Value>, outcome: Result<dispatch::MethodReply, ApiError>) -> (Option<String>, FollowUp) {
    match outcome {
        Ok(outcome) => (id.map(|id| jsonrpc::format_result(id, &outcome.result)), outcome.follow_up),
        Err(error) => (id.map(|id| jsonrpc::format_error(id, &error)), FollowUp::Nothing),
    }
}
