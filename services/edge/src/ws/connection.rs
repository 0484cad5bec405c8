//! One WebSocket connection: frames in, answers and notifications out, each at its own pace.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use contract::limits::FRAME_BYTES_MAX;
use contract::{ErrorCode, SessionId};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, SplitSink, SplitStream};
use futures::{FutureExt, SinkExt, StreamExt};
use serde_json::Value;
use service::connections::{BookedBytes, ByteBudget, Connection};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::calls::{self, Then, WaitingWatches};
use crate::failure::Failure;
use crate::guard::Caller;
use crate::jsonrpc::{self, Frame};
use crate::queue::{ClientQueue, End, Item};
use crate::sessions::Sessions;
use crate::watch::notice::notification;
use crate::watch::viewer::Viewer;

/// Pause between pings.
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long a client may be silent, pongs included.
const SILENCE_MAX: Duration = Duration::from_mins(1);
/// Frames that wait for their turn.
const FRAMES_MAX: usize = 64;
/// Bytes of the frames of one connection that wait for their turn: two of full size.
const FRAMES_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;
/// Requests whose answers are awaited; a batch that goes beyond it is begun whole.
const IN_FLIGHT_MAX: usize = 64;
/// Sessions that one connection watches.
const WATCHES_MAX: usize = 256;
/// How long answers in flight are awaited when the replica goes down.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// How long a frame under way and the close frame may take at the end.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Bytes of a close frame's reason, by the protocol.
const CLOSE_REASON_MAX: usize = 123;

/// Serves a connection to its end.
pub(super) async fn serve(socket: WebSocket, sessions: Sessions, caller: Caller, connection: &Connection) {
    let (sink, stream) = socket.split();
    let queue = Arc::new(sessions.client_queue());
    let (frames, waiting) = mpsc::channel(FRAMES_MAX);
    let budgets = [sessions.budget().clone(), ByteBudget::new(FRAMES_BYTES_MAX)];
    let work =
        Work { sessions, caller, queue: queue.clone(), watches: HashMap::new(), waiting: WaitingWatches::default() };
    let inward = async {
        tokio::select! {
            () = read(stream, connection, &frames, &budgets, &queue) => queue.end(End::Gone),
            () = work.run(waiting) => {}
            _ = queue.until_end() => {}
        }
    };
    let outward = async {
        write(sink, &queue).await;
        queue.end(End::Gone);
    };
    tokio::join!(inward, outward);
}

/// A frame that waits for its turn, and the bytes that it takes meanwhile.
struct Received {
    frame: Frame,
    _booked: Vec<BookedBytes>,
}

/// Reads frames until the client is gone or silent for too long.
async fn read(
    mut stream: SplitStream<WebSocket>,
    connection: &Connection,
    frames: &mpsc::Sender<Received>,
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
                let frame = jsonrpc::read(&text);
                pause = connection.pace().count(frame.parts.len().max(1), text.len());
                let booked: Option<Vec<_>> = budgets.iter().map(|budget| budget.book(text.len())).collect();
                let Some(booked) = booked else {
                    refuse_all(frame, "requests that wait already take all the bytes there are for them", queue);
                    continue;
                };
                if let Err(refused) = frames.try_send(Received { frame, _booked: booked }) {
                    let why = format!("{FRAMES_MAX} requests of this connection wait already");
                    refuse_all(refused.into_inner().frame, &why, queue);
                }
            }
            Ok(Message::Binary(bytes)) => {
                pause = connection.pace().count(1, bytes.len());
                let message = "binary frames are not understood: send JSON-RPC 2.0 as text";
                queue.push(Item::Text(jsonrpc::protocol_error(&Value::Null, -32600, message)));
            }
            Ok(Message::Ping(_) | Message::Pong(_)) => pause = connection.pace().count(1, 0),
            Ok(Message::Close(_)) => return,
            Err(error) => {
                // Only an oversized frame leaves a connection that can still be told something.
                if error.to_string().starts_with("Space limit exceeded") {
                    queue.end(End::Failed(Failure::new(ErrorCode::TooLarge, error.to_string())));
                }
                return;
            }
        }
    }
}

fn refuse_all(frame: Frame, why: &str, queue: &ClientQueue) {
    let failure = Failure::new(ErrorCode::Overloaded, why).retry_after(Duration::from_secs(1));
    let ids = frame.parts.into_iter().filter_map(|part| part.ok().and_then(|request| request.id));
    for id in ids {
        queue.push(Item::Text(jsonrpc::error(&id, &failure)));
    }
}

/// Writes what waits, and pings, until the queue ends; then closes.
async fn write(mut sink: SplitSink<WebSocket, Message>, queue: &ClientQueue) {
    let mut ping = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    let end = loop {
        let message = tokio::select! {
            item = queue.pop() => match item {
                Ok(Item::Text(text)) => Message::Text(text.into()),
                Ok(Item::Notice(notice)) => Message::Text(Utf8Bytes::from(&*notice.json_rpc())),
                Err(end) => break end,
            },
            _ = ping.tick() => Message::Ping(axum::body::Bytes::new()),
        };
        let mut sending = pin!(sink.send(message));
        let sent = tokio::select! {
            sent = &mut sending => sent.is_ok(),
            // A frame half sent is brought to its end, but not for ever.
            _ = queue.until_end() => matches!(tokio::time::timeout(CLOSE_MAX, sending).await, Ok(Ok(()))),
        };
        if !sent {
            break queue.ended().unwrap_or(End::Gone);
        }
    };
    if let End::Slow { .. } = end {
        telemetry::metric::slow_client();
    }
    let close = Message::Close(Some(close_frame(&end)));
    // A client that does not read does not read this either: it is no loss.
    let _ = tokio::time::timeout(CLOSE_MAX, sink.send(close)).await;
}

fn close_frame(end: &End) -> CloseFrame {
    let code = match end {
        End::Complete => close_code::NORMAL,
        End::Gone => close_code::AWAY,
        End::Slow { .. } => close_code::AGAIN,
        End::Failed(failure) if failure.code == ErrorCode::Draining => close_code::RESTART,
        End::Failed(failure) if failure.code == ErrorCode::TooLarge => close_code::SIZE,
        End::Failed(_) => close_code::ERROR,
    };
    let mut reason = serde_json::Map::new();
    if let Some(failure) = end.failure() {
        reason.insert("code".to_owned(), Value::from(failure.code.as_str()));
    }
    if let End::Slow { session, seq } = end {
        reason.insert("seq".to_owned(), Value::from(*seq));
        let named = session.as_ref().map(|session| Value::from(session.as_str()));
        // Ids are at most 64 bytes; only with a very great `seq` may the two not fit together.
        if let Some(session) = named.filter(|session| session.to_string().len() + 64 < CLOSE_REASON_MAX) {
            reason.insert("session_id".to_owned(), session);
        }
    }
    let reason = if reason.is_empty() { String::new() } else { Value::Object(reason).to_string() };
    CloseFrame { code, reason: reason.into() }
}

/// What a frame comes to: its answer, and what is to be done when that is on its way.
type Finished = (Option<String>, Vec<Then>);

struct Work {
    sessions: Sessions,
    caller: Caller,
    queue: Arc<ClientQueue>,
    watches: HashMap<SessionId, Watch>,
    waiting: WaitingWatches,
}

/// A viewer that runs; it ends with this.
struct Watch {
    token: CancellationToken,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

impl Work {
    /// Begins frames in their order and answers them as they are done.
    async fn run(mut self, mut frames: mpsc::Receiver<Received>) {
        let draining = self.sessions.draining().clone();
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
                    let Some(Received { frame, .. }) = frame else { return };
                    let count = frame.parts.len();
                    let (sessions, caller, waiting) =
                        (self.sessions.clone(), self.caller.clone(), self.waiting.clone());
                    // On the heap, so that a connection without requests does not hold the room for one.
                    let mut begun = Box::pin(begin(&sessions, &caller, &waiting, frame));
                    let rest = loop {
                        tokio::select! {
                            rest = &mut begun => break rest,
                            Some((count, finished)) = in_flight.next(), if !in_flight.is_empty() => {
                                requests -= count;
                                self.finish(finished);
                            }
                        }
                    };
                    requests += count;
                    in_flight.push(async move { (count, rest.await) });
                }
            }
        }
        self.queue.push(Item::Text(notification("server.draining", &serde_json::json!({}))));
        let rest = async {
            while let Some((_, finished)) = in_flight.next().await {
                self.finish(finished);
            }
        };
        // What is not answered now was stored all the same; the client asks again with the same id.
        let _ = tokio::time::timeout(DRAIN_MAX, rest).await;
        self.queue.end(End::Failed(Sessions::going_down()));
    }

    fn finish(&mut self, (answer, then): Finished) {
        if let Some(answer) = answer {
            self.queue.push(Item::Text(answer));
        }
        for then in then {
            match then {
                Then::Nothing => {}
                Then::Watch(viewer) => self.watch(*viewer),
                Then::Unwatch(session) => {
                    self.watches.remove(&session);
                    self.queue.forget(&session);
                }
            }
        }
    }

    /// Starts a viewer; one of the same session that runs already makes room.
    fn watch(&mut self, viewer: Viewer) {
        let session = viewer.session().clone();
        self.watches.retain(|_, watch| !watch.token.is_cancelled());
        if self.watches.len() >= WATCHES_MAX && !self.watches.contains_key(&session) {
            let failure = Failure::new(ErrorCode::Overloaded, format!("{WATCHES_MAX} sessions are watched already"));
            self.queue.push(Item::Text(failed(&session, &failure)));
            return;
        }
        let token = CancellationToken::new();
        self.watches.insert(session.clone(), Watch { token: token.clone() });
        let queue = self.queue.clone();
        self.sessions.tasks().spawn("viewer", async move {
            tokio::select! {
                () = token.cancelled() => {}
                outcome = viewer.run(&queue) => {
                    if let Err(failure) = outcome {
                        queue.push(Item::Text(failed(&session, &failure)));
                    }
                    token.cancel();
                }
            }
        });
    }
}

/// A watch that cannot go on: `resync` when its cursor is gone, else `watch.failed`.
fn failed(session: &SessionId, failure: &Failure) -> String {
    let method = if failure.code == ErrorCode::Resync { "resync" } else { "watch.failed" };
    let params = serde_json::json!({
        "session_id": session, "code": failure.code, "message": failure.message, "seq": failure.seq,
    });
    notification(method, &params)
}

/// Begins the requests of a frame one after another; what is returned finishes them together.
async fn begin(
    sessions: &Sessions,
    caller: &Caller,
    waiting: &WaitingWatches,
    frame: Frame,
) -> BoxFuture<'static, Finished> {
    let mut rests = Vec::new();
    for part in frame.parts {
        let rest: BoxFuture<'static, (Option<String>, Then)> = match part {
            Err(answer) => std::future::ready((Some(answer), Then::Nothing)).boxed(),
            Ok(request) => {
                let id = request.id.clone();
                let rest = calls::begin(sessions, caller, waiting, request).await;
                rest.map(move |outcome| answer(id.as_ref(), outcome)).boxed()
            }
        };
        rests.push(rest);
    }
    let batch = frame.batch;
    async move {
        let (answers, then): (Vec<_>, Vec<_>) = futures::future::join_all(rests).await.into_iter().unzip();
        let answers: Vec<String> = answers.into_iter().flatten().collect();
        let answer = if batch { jsonrpc::batch(&answers) } else { answers.into_iter().next() };
        (answer, then)
    }
    .boxed()
}

fn answer(id: Option<&Value>, outcome: Result<calls::Outcome, Failure>) -> (Option<String>, Then) {
    match outcome {
        Ok(outcome) => (id.map(|id| jsonrpc::result(id, &outcome.result)), outcome.then),
        Err(failure) => (id.map(|id| jsonrpc::error(id, &failure)), Then::Nothing),
    }
}
