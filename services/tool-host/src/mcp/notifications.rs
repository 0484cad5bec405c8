//! What an MCP server says without being asked: progress, and changes of its tools.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken};
use rmcp::service::{NotificationContext, RoleClient};
use tokio::sync::{Notify, mpsc};

/// Bytes of one piece of progress that are told; it is a line for people.
const PROGRESS_BYTES_MAX: usize = 1 << 10;

/// Hears one server. It grants nothing: what a server asks of its client is declined.
#[derive(Clone, Default)]
pub(super) struct NotificationHandler {
    /// The server says that its tools are others now.
    pub(super) changed: Arc<Notify>,
    pub(super) progress: ProgressRouter,
}

/// The calls whose progress is wanted, by the token that they were sent with.
#[derive(Clone, Default)]
pub(super) struct ProgressRouter(Arc<Mutex<HashMap<ProgressToken, ProgressSubscriber>>>);

/// Who wants to hear of one call.
struct ProgressSubscriber {
    /// What it says.
    sender: mpsc::Sender<String>,
    /// That it said something.
    updated: Arc<Notify>,
}

/// A call's place among them, given up when dropped.
pub(super) struct ProgressGuard {
    progress: ProgressRouter,
    token: ProgressToken,
    /// Told of each piece of progress, also of one that is not passed on.
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

    /// Best effort: what a call cannot take in is forgotten.
    fn forward(&self, token: &ProgressToken, text: &str) {
        if let Some(subscriber) = self.lock().get(token) {
            let text = &text[..text.floor_char_boundary(PROGRESS_BYTES_MAX)];
            let _full_or_gone = subscriber.sender.try_send(text.to_owned()).is_err();
            subscriber.updated.notify_one();
        }
    }

    // A lock and not a task: the library calls from tasks of its own, and it is held for one access to the map only.
    fn lock(&self) -> MutexGuard<'_, HashMap<ProgressToken, ProgressSubscriber>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.progress.lock().remove(&self.token);
    }
}
