//! Core NATS: subscriptions, queue groups, inboxes.

use std::collections::BTreeMap;

use bus::{CoreMessage, SubscriptionEvent};
use contract::subject::matches;
use tokio::sync::mpsc;

/// Messages that one subscription may fall behind; then it loses some and gets a gap.
const SUBSCRIPTION_MAX: usize = 65_536;

#[derive(Debug)]
struct Subscriber {
    client: String,
    filter: String,
    queue: Option<String>,
    to: mpsc::Sender<SubscriptionEvent>,
    gap: bool,
}

impl Subscriber {
    fn send(&mut self, message: &CoreMessage) {
        if self.gap && self.to.try_send(SubscriptionEvent::Gap).is_err() {
            return;
        }
        self.gap = self.to.try_send(SubscriptionEvent::Message(message.clone())).is_err();
    }
}

/// Every subscription, and the inbox of every request that waits.
#[derive(Debug, Default)]
pub(crate) struct CoreNats {
    subs: BTreeMap<u64, Subscriber>,
    inboxes: BTreeMap<String, mpsc::Sender<SubscriptionEvent>>,
    count: u64,
    /// Counts messages, to take turns within a queue group.
    rotation: usize,
}

impl CoreNats {
    pub(crate) fn subscribe(
        &mut self,
        client: &str,
        filter: &str,
        queue: Option<&str>,
    ) -> (u64, mpsc::Receiver<SubscriptionEvent>) {
        self.count += 1;
        let (to, from) = mpsc::channel(SUBSCRIPTION_MAX);
        let (client, filter, queue) = (client.to_owned(), filter.to_owned(), queue.map(str::to_owned));
        self.subs.insert(self.count, Subscriber { client, filter, queue, to, gap: false });
        (self.count, from)
    }

    pub(crate) fn unsubscribe(&mut self, id: u64) {
        self.subs.remove(&id);
    }

    /// Removes the subscriptions of a client that is gone.
    pub(crate) fn disconnect(&mut self, client: &str) {
        self.subs.retain(|_, sub| sub.client != client);
    }

    /// Sends a gap to every subscription and request: the server was away, and messages may have been lost.
    pub(crate) fn send_gaps(&mut self) {
        for sub in self.subs.values_mut() {
            sub.gap = sub.to.try_send(SubscriptionEvent::Gap).is_err();
        }
        for inbox in self.inboxes.values() {
            // A full inbox takes no gap: its reader has to read what came before first.
            drop(inbox.try_send(SubscriptionEvent::Gap));
        }
    }

    /// Registers an inbox, an address for the answers to one request.
    pub(crate) fn inbox(&mut self) -> (String, mpsc::Receiver<SubscriptionEvent>) {
        self.count += 1;
        let (to, from) = mpsc::channel(SUBSCRIPTION_MAX);
        let name = format!("_INBOX.{}", self.count);
        self.inboxes.insert(name.clone(), to);
        (name, from)
    }

    pub(crate) fn drop_inbox(&mut self, name: &str) {
        self.inboxes.remove(name);
    }

    /// Delivers a copy of what was written to a bucket to every subscription without a queue group.
    pub(crate) fn observe(&mut self, message: &CoreMessage) {
        for sub in self.subs.values_mut() {
            if sub.queue.is_none() && matches(&sub.filter, &message.subject) {
                sub.send(message);
            }
        }
    }

    /// Delivers a message to every subscription without a queue group, and to one of each queue group. Returns whether
    /// anybody got it.
    pub(crate) fn route(&mut self, message: &CoreMessage) -> bool {
        if let Some(inbox) = self.inboxes.get(&message.subject) {
            return inbox.try_send(SubscriptionEvent::Message(message.clone())).is_ok();
        }
        let mut chosen = Vec::new();
        let mut groups: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
        for (id, sub) in &self.subs {
            if matches(&sub.filter, &message.subject) {
                match &sub.queue {
                    None => chosen.push(*id),
                    Some(queue) => groups.entry((&sub.filter, queue)).or_default().push(*id),
                }
            }
        }
        self.rotation = self.rotation.wrapping_add(1);
        chosen.extend(groups.into_values().filter_map(|ids| ids.get(self.rotation % ids.len().max(1)).copied()));
        for id in &chosen {
            if let Some(sub) = self.subs.get_mut(id) {
                sub.send(message);
            }
        }
        !chosen.is_empty()
    }
}
