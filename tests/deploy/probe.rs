//! A connection that reports what the server refuses.

use std::path::Path;

use ailoop_tests::nats::NatsServer;
use ailoop_tests::wait::{PATIENCE, soon};
use async_nats::{Client, ConnectOptions, Event};
use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// No user may publish to this subject: its refusal shows that the server has processed everything before.
const NEVER: &str = "probe.never";

/// A connection as one user.
pub(crate) struct Probe {
    pub(crate) client: Client,
    refusals: UnboundedReceiver<String>,
}

impl Probe {
    /// Connects as the user of a role.
    pub(crate) async fn of(server: &NatsServer, role: &str) -> anyhow::Result<Self> {
        Self::with_credentials(server, role, &server.credentials_of(role)).await
    }

    /// Connects as the user of a credentials file. `name` is that of its inboxes.
    pub(crate) async fn with_credentials(server: &NatsServer, name: &str, file: &Path) -> anyhow::Result<Self> {
        let (tell, refusals) = unbounded_channel();
        let options = ConnectOptions::with_credentials_file(file)
            .await?
            .connection_timeout(PATIENCE)
            .custom_inbox_prefix(format!("_INBOX_{name}"))
            .event_callback(move |event| {
                if let Event::ServerError(error) = event {
                    // The test may have dropped the receiver.
                    drop(tell.send(error.to_string()));
                }
                std::future::ready(())
            });
        Ok(Self { client: options.connect(server.url()).await?, refusals })
    }

    /// Whether the server lets this user publish.
    pub(crate) async fn may_publish(&mut self, subject: &str) -> anyhow::Result<bool> {
        self.client.publish(subject.to_owned(), Bytes::new()).await?;
        self.verdict().await
    }

    /// Whether the server lets this user subscribe; `<subject> <queue group>` does so within the group.
    pub(crate) async fn may_subscribe(&mut self, subject: &str) -> anyhow::Result<bool> {
        let _subscription = match subject.split_once(' ') {
            Some((subject, group)) => self.client.queue_subscribe(subject.to_owned(), group.to_owned()).await?,
            None => self.client.subscribe(subject.to_owned()).await?,
        };
        self.verdict().await
    }

    /// Returns when the server has processed everything that this connection sent; a flush only sends it.
    pub(crate) async fn round_trip(&mut self) -> anyhow::Result<()> {
        self.verdict().await.map(drop)
    }

    async fn verdict(&mut self) -> anyhow::Result<bool> {
        self.client.publish(NEVER, Bytes::new()).await?;
        self.client.flush().await?;
        let mut refused = false;
        while !soon("the server's verdict", self.refusals.recv()).await?.unwrap_or_default().contains(NEVER) {
            refused = true;
        }
        Ok(!refused)
    }
}
