//! Notifications of an MCP server: progress, and changes of its tools.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken};
use rmcp::service::{NotificationContext, RoleClient};
use tokio::sync::{Notify, mpsc};

/// Bytes of one progress message, which is a line for people.
const PROGRESS_BYTES_MAX: usize = 1 << 10;

/// Receives the notifications of one server. It declines every request of the server.
#[derive(Clone, Default)]
pub(super) struct NotificationHandler {
    /// Notified when the tools of the server have changed.
    pub(super) changed: Arc<Notify>,
    pub(super) progress: ProgressRouter,
}

/// The calls that want progress, by the tokens of their requests.
#[derive(Clone, Default)]
pub(super) struct ProgressRouter(Arc<Mutex<HashMap<ProgressToken, ProgressSubscriber>>>);

/// Subscriber to the progress of one call.
struct ProgressSubscriber {
    sender: mpsc::Sender<String>,
    /// Notified of each message.
    updated: Arc<Notify>,
}

/// Subscription of one call, which ends when dropped.
pub(super) struct ProgressGuard {
    progress: ProgressRouter,
    token: ProgressToken,
    /// Notified of each progress message, also of a dropped one.
    pub(super) updated: Arc<Notify>,
}

impl ClientHandler for NotificationHandler {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("ailoop", env!("CARGO_PKG_VERSION")))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let text = params.message.unwrap_or_else(|| match params.total {
            Some(total) => format!("{} of {total}", params.progress),
            None => params.progress.to_string(),
        });
        self.progress.forward(&params.progress_token, &text);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}

impl ProgressRouter {
    pub(super) fn subscribe(&self, token: ProgressToken, sender: mpsc::Sender<String>) -> ProgressGuard {
        let updated = Arc::new(Notify::new());
        self.lock().insert(token.clone(), ProgressSubscriber { sender, updated: updated.clone() });
        ProgressGuard { progress: self.clone(), token, updated }
    }

    /// Forwards a message to its call; best effort: it is dropped where the queue of the call is full.
    fn forward(&self, token: &ProgressToken, text: &str) {
        if let Some(subscriber) = self.lock().get(token) {
            let text = &text[..text.floor_char_boundary(PROGRESS_BYTES_MAX)];
            let _full_or_gone = subscriber.sender.try_send(text.to_owned()).is_err();
            subscriber.updated.notify_one();
        }
    }

    // A lock and not a task: the library calls from its own tasks, and the lock is held for one access to the map only.
    fn lock(&self) -> MutexGuard<'_, HashMap<ProgressToken, ProgressSubscriber>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.progress.lock().remove(&self.token);
    }
}
