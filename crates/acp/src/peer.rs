//! The editor: the only writer of stdout, and the requests that the editor has not answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use service::tasks::Tasks;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::update::SessionUpdate;
use super::wire::{RpcError, answer_line, notification_line, request_line};

/// Lines that wait until the editor reads. When there are as many, sessions wait, and so does the fleet.
const LINES_MAX: usize = 64;
/// Requests that the editor has not answered.
const REQUESTS_MAX: usize = 256;
/// Timeout for writing the last lines.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// The answer of the editor to a request.
pub(super) type PeerAnswer = Result<Value, String>;

/// The editor; clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    output: mpsc::Sender<OutputItem>,
    open: Arc<Mutex<OpenRequests>>,
}

#[derive(Debug)]
enum OutputItem {
    Line(String),
    /// Asks whether everything before is written.
    Flush(oneshot::Sender<()>),
}

#[derive(Debug, Default)]
struct OpenRequests {
    newest: u64,
    waiting: HashMap<u64, oneshot::Sender<PeerAnswer>>,
}

impl Peer {
    /// Starts the writer. The token is cancelled when the editor reads no more.
    pub(super) fn open(output: impl AsyncWrite + Unpin + Send + 'static, tasks: &Tasks) -> (Self, CancellationToken) {
        let (sender, receiver) = mpsc::channel(LINES_MAX);
        let closed = CancellationToken::new();
        let (guard, ending) = (closed.clone().drop_guard(), tasks.token());
        tasks.spawn("acp-writer", async move {
            let _guard = guard;
            ending.run_until_cancelled(write_all(output, receiver)).await;
        });
        (Self { output: sender, open: Arc::default() }, closed)
    }

    /// Waits until everything is written.
    pub(super) async fn close(&self) {
        let (sender, written) = oneshot::channel();
        if self.output.send(OutputItem::Flush(sender)).await.is_ok() {
            let _late_or_gone = timeout(FLUSH_MAX, written).await;
        }
    }

    /// Answers a request of the editor.
    pub(super) async fn answer(&self, id: &Value, outcome: &Result<Value, RpcError>) {
        self.write(answer_line(id, outcome)).await;
    }

    /// Sends an update of a session.
    pub(super) async fn update(&self, session: &str, update: &SessionUpdate) {
        let params = json!({"sessionId": session, "update": update});
        self.write(notification_line("session/update", &params)).await;
    }

    /// Sends a request to the editor; none if too many are not answered.
    pub(super) async fn request(&self, method: &str, params: &Value) -> Option<(u64, oneshot::Receiver<PeerAnswer>)> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut open = self.lock();
            if open.waiting.len() >= REQUESTS_MAX {
                return None;
            }
            open.newest += 1;
            let id = open.newest;
            open.waiting.insert(id, sender);
            id
        };
        self.write(request_line(id, method, params)).await;
        Some((id, answer))
    }

    /// Takes a request back that the editor has not answered.
    pub(super) async fn cancel_request(&self, id: u64) {
        if self.lock().waiting.remove(&id).is_some() {
            self.write(notification_line("$/cancel_request", &json!({"requestId": id}))).await;
        }
    }

    /// Passes an answer of the editor on. An answer to a request that was taken back is dropped.
    pub(super) fn resolve(&self, id: u64, outcome: PeerAnswer) {
        let waiting = self.lock().waiting.remove(&id);
        let _nobody_waits = waiting.map(|waiting| waiting.send(outcome));
    }

    /// Writes a line. After the end of the editor there is nobody to report a failure to.
    async fn write(&self, line: String) {
        let _closed = self.output.send(OutputItem::Line(line)).await;
    }

    fn lock(&self) -> MutexGuard<'_, OpenRequests> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes lines until nobody reads them.
async fn write_all(mut output: impl AsyncWrite + Unpin, mut items: mpsc::Receiver<OutputItem>) {
    while let Some(item) = items.recv().await {
        match item {
            OutputItem::Line(line) => {
                if output.write_all(line.as_bytes()).await.is_err() || output.flush().await.is_err() {
                    return;
                }
            }
            OutputItem::Flush(written) => {
                let _gone = written.send(());
            }
        }
    }
}
