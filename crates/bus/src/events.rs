//! Public events and notices on core NATS: sent once to the current subscribers, and not stored.

use contract::command::CommandAck;
use contract::event::{Envelope, Topic};
use contract::ids::{CommandId, TenantId};
use contract::subject::{self, SessionKey};
use futures::StreamExt;

use crate::json::encode;
use crate::{Bus, BusError, Subscription};

impl Bus {
    /// Publishes a public event.
    pub async fn publish_event(&self, key: &SessionKey, topic: Topic, event: &Envelope) -> Result<(), BusError> {
        self.transport().publish(&subject::event(key, topic), Vec::new(), encode(event)?).await
    }

    /// Every public event of a session. Bodies are [`Envelope`]s; `contract::subject::parse_event` reads the topic.
    pub async fn events(&self, key: &SessionKey) -> Result<Subscription, BusError> {
        let events = self.events_of_new(key).await?;
        self.confirm_subscriptions().await?;
        Ok(events)
    }

    /// As [`Bus::events`], of a session that is about to be started over this connection: the server takes what is sent
    /// over one connection in order, so there is nothing to wait for.
    pub async fn events_of_new(&self, key: &SessionKey) -> Result<Subscription, BusError> {
        let [one, two] = subject::viewer(key);
        let one = self.transport().subscribe(&one, None).await?;
        let two = self.transport().subscribe(&two, None).await?;
        Ok(futures::stream::select(one, two).boxed())
    }

    /// One topic of every session of a tenant.
    pub async fn topic(&self, tenant: &TenantId, topic: Topic) -> Result<Subscription, BusError> {
        self.listen(&subject::tenant_topic(tenant, topic), None).await
    }

    /// Tells an edge replica that a command's commit is in the log.
    pub async fn publish_done(&self, edge: &CommandId, done: &CommandAck) -> Result<(), BusError> {
        self.transport().publish(&subject::done(edge, &done.id), Vec::new(), encode(done)?).await
    }

    /// The notices for one edge replica; bodies are [`CommandAck`]s.
    pub async fn dones(&self, edge: &CommandId) -> Result<Subscription, BusError> {
        self.listen(&subject::done_of(edge), None).await
    }
}
