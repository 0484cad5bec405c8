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
pub(super) struct Listener {
    /// The server says that its tools are others now.
    pub(super) changed: Arc<Notify>,
    pub(super) progress: Progress,
}

/// The calls whose progress is wanted, by the token that they were sent with.
#[derive(Clone, Default)]
pub(super) struct Progress(Arc<Mutex<HashMap<ProgressToken, Hearer>>>);

/// Who wants to hear of one call.
struct Hearer {
    /// What it says.
    tell: mpsc::Sender<String>,
    /// That it said something.
    heard: Arc<Notify>,
}

/// A call's place among them, given up when dropped.
pub(super) struct Place {
    progress: Progress,
    token: ProgressToken,
    /// Told of each piece of progress, also of one that is not passed on.
    pub(super) heard: Arc<Notify>,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("ailoop", env!("CARGO_PKG_VERSION")))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let text = params.message.unwrap_or_else(|| match params.total {
            Some(total) => format!("{} of {total}", params.progress),
            None => params.progress.to_string(),
        });
        self.progress.tell(&params.progress_token, &text);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}

impl Progress {
    pub(super) fn enter(&self, token: ProgressToken, tell: mpsc::Sender<String>) -> Place {
        let heard = Arc::new(Notify::new());
        self.lock().insert(token.clone(), Hearer { tell, heard: heard.clone() });
        Place { progress: self.clone(), token, heard }
    }

    /// Best effort: what a call cannot take in is forgotten.
    fn tell(&self, token: &ProgressToken, text: &str) {
        if let Some(hearer) = self.lock().get(token) {
            let text = &text[..text.floor_char_boundary(PROGRESS_BYTES_MAX)];
            let _full_or_gone = hearer.tell.try_send(text.to_owned()).is_err();
            hearer.heard.notify_one();
        }
    }

    // A lock and not a task: the library calls from tasks of its own, and it is held for one access to the map only.
    fn lock(&self) -> MutexGuard<'_, HashMap<ProgressToken, Hearer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.progress.lock().remove(&self.token);
    }
}
