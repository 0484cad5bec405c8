//! Progress notifications of a call: text so far and calls of tools, for clients that gave a token.

use std::time::Duration;

use contract::SessionId;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::time::Instant;

/// Least pause between two notifications about text.
const TEXT_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause between two notifications: clients count a request as lost after a time without any.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Bytes of a message: the end of the text so far.
const MESSAGE_BYTES_MAX: usize = 1 << 10;

/// The notifications of one call. Without a token nothing goes out.
#[derive(Debug)]
pub(super) struct Progress {
    target: Option<(Peer<RoleServer>, ProgressToken)>,
    count: u32,
    sent: Instant,
    step: u32,
    /// The end of the text of the current step.
    text: String,
    has_news: bool,
}

impl Progress {
    pub(super) fn new(target: Option<(Peer<RoleServer>, ProgressToken)>) -> Self {
        Self { target, count: 0, sent: Instant::now(), step: 0, text: String::new(), has_news: false }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.target.is_some()
    }

    /// Names the session, by which the client finds it again if it loses the connection.
    pub(super) async fn begin(&mut self, session: &SessionId) {
        self.notify(format!("session {session}")).await;
    }

    /// Takes text of a step.
    pub(super) async fn add_text(&mut self, step: u32, delta: &str) {
        if step != self.step {
            self.step = step;
            self.text.clear();
        }
        self.text.push_str(delta);
        let surplus = self.text.len().saturating_sub(MESSAGE_BYTES_MAX);
        self.text.drain(..self.text.ceil_char_boundary(surplus));
        self.has_news = true;
        if self.sent.elapsed() >= TEXT_PAUSE {
            self.notify_text().await;
        }
    }

    /// Takes the end of a reply: all of its text goes out.
    pub(super) async fn end_reply(&mut self) {
        if self.has_news {
            self.notify_text().await;
        }
    }

    /// Takes the call of a tool.
    pub(super) async fn add_call(&mut self, tool: &str) {
        self.notify(format!("calls {tool}")).await;
    }

    /// Waits until the client must hear something, forever if it wants nothing.
    pub(super) async fn wait_for_silence(&self) {
        if self.is_wanted() {
            tokio::time::sleep_until(self.sent + SILENCE_MAX).await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Repeats what is known.
    pub(super) async fn repeat(&mut self) {
        if self.text.is_empty() {
            self.notify("works".to_owned()).await;
        } else {
            self.notify_text().await;
        }
    }

    async fn notify_text(&mut self) {
        self.has_news = false;
        self.notify(self.text.clone()).await;
    }

    async fn notify(&mut self, message: String) {
        let Some((peer, token)) = &self.target else { return };
        self.count += 1;
        self.sent = Instant::now();
        let progress = ProgressNotificationParam::new(token.clone(), f64::from(self.count)).with_message(message);
        // A client that is gone is noticed by the call.
        let _ = peer.notify_progress(progress).await;
    }
}
