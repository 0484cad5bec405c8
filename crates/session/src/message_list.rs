//! The messages of a transcript, and how many bytes they are.

use contract::Json;
use serde::{Deserialize, Serialize};

/// Messages in their order, each serialised once. Their bytes are summed up, because each step asks for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Json>", into = "Vec<Json>")]
pub(crate) struct MessageList {
    list: Vec<Json>,
    bytes: usize,
}

impl MessageList {
    pub(crate) fn push(&mut self, message: Json) {
        self.bytes += message.get().len();
        self.list.push(message);
    }

    /// Puts a message before that at `index`.
    pub(crate) fn insert(&mut self, index: usize, message: Json) {
        self.bytes += message.get().len();
        self.list.insert(index, message);
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Json> {
        self.list.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes of all texts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl From<Vec<Json>> for MessageList {
    fn from(list: Vec<Json>) -> Self {
        let bytes = list.iter().map(|message| message.get().len()).sum();
        Self { list, bytes }
    }
}

impl From<MessageList> for Vec<Json> {
    fn from(messages: MessageList) -> Self {
        messages.list
    }
}

impl FromIterator<Json> for MessageList {
    fn from_iter<I: IntoIterator<Item = Json>>(messages: I) -> Self {
        messages.into_iter().collect::<Vec<Json>>().into()
    }
}

impl Extend<Json> for MessageList {
    fn extend<I: IntoIterator<Item = Json>>(&mut self, messages: I) {
        messages.into_iter().for_each(|message| self.push(message));
    }
}
