//! Core NATS: subscriptions, queue groups, inboxes.

use std::collections::BTreeMap;

use contract::subject::matches;
use tokio::sync::mpsc;

use crate::{Message, SubscriptionEvent};

/// Messages that one subscription may fall behind; then it loses some and hears of a gap.
const SUBSCRIPTION_MAX: usize = 65_536;

#[derive(Debug)]
struct Sub {
    client: String,
    filter: String,
    queue: Option<String>,
    to: mpsc::Sender<SubscriptionEvent>,
    gap: bool,
}

impl Sub {
    fn tell(&mut self, message: &Message) {
        if self.gap && self.to.try_send(SubscriptionEvent::Gap).is_err() {
            return;
        }
        self.gap = self.to.try_send(SubscriptionEvent::Message(message.clone())).is_err();
    }
}

/// Every subscription and every request that waits.
#[derive(Debug, Default)]
pub(super) struct Core {
    subs: BTreeMap<u64, Sub>,
    inboxes: BTreeMap<String, mpsc::Sender<SubscriptionEvent>>,
    count: u64,
    turn: usize,
}

impl Core {
    pub(super) fn subscribe(
        &mut self,
        client: &str,
        filter: &str,
        queue: Option<&str>,
    ) -> (u64, mpsc::Receiver<SubscriptionEvent>) {
        self.count += 1;
        let (to, from) = mpsc::channel(SUBSCRIPTION_MAX);
        let (client, filter, queue) = (client.to_owned(), filter.to_owned(), queue.map(str::to_owned));
        self.subs.insert(self.count, Sub { client, filter, queue, to, gap: false });
        (self.count, from)
    }

    pub(super) fn unsubscribe(&mut self, id: u64) {
        self.subs.remove(&id);
    }

    /// A client is gone: so are its subscriptions.
    pub(super) fn disconnect(&mut self, client: &str) {
        self.subs.retain(|_, sub| sub.client != client);
    }

    /// The server was away: everybody may have missed something.
    pub(super) fn gaps(&mut self) {
        for sub in self.subs.values_mut() {
            sub.gap = sub.to.try_send(SubscriptionEvent::Gap).is_err();
        }
        for inbox in self.inboxes.values() {
            // Whoever is so far behind hears of it no sooner than of what came before.
            drop(inbox.try_send(SubscriptionEvent::Gap));
        }
    }

    /// An address for answers.
    pub(super) fn inbox(&mut self) -> (String, mpsc::Receiver<SubscriptionEvent>) {
        self.count += 1;
        let (to, from) = mpsc::channel(SUBSCRIPTION_MAX);
        let name = format!("_INBOX.{}", self.count);
        self.inboxes.insert(name.clone(), to);
        (name, from)
    }

    pub(super) fn drop_inbox(&mut self, name: &str) {
        self.inboxes.remove(name);
    }

    /// Delivers what was written to a stream: plain subscriptions get a copy, and nobody owes an answer.
    pub(super) fn observe(&mut self, message: &Message) {
        for sub in self.subs.values_mut() {
            if sub.queue.is_none() && matches(&sub.filter, &message.subject) {
                sub.tell(message);
            }
        }
    }

    /// Delivers a message: to every plain subscription, and to one of each queue group. Returns whether anybody got it.
    pub(super) fn route(&mut self, message: &Message) -> bool {
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
        self.turn = self.turn.wrapping_add(1);
        chosen.extend(groups.into_values().filter_map(|ids| ids.get(self.turn % ids.len().max(1)).copied()));
        for id in &chosen {
            if let Some(sub) = self.subs.get_mut(id) {
                sub.tell(message);
            }
        }
        !chosen.is_empty()
    }
}
