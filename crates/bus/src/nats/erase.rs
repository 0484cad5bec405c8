//! Removal of messages together with their bytes, for `ailoop sessions rm`.
//!
//! A removed message stays in the files of nats-server until it compacts them. An erased one is overwritten first.

use contract::streams::Objects;

use super::connection::NatsTransport;
use crate::BusError;

impl NatsTransport {
    /// Erases every message of a stream whose subject matches the filter; returns how many. One that is removed by
    /// somebody else meanwhile is fine.
    pub async fn erase_messages(&self, stream: &str, filter: &str) -> Result<u64, BusError> {
        let (mut erased, mut seq) = (0, 1);
        while let Some(message) = self.message_from(stream, seq, filter).await? {
            self.erase_message(stream, message.seq).await?;
            (erased, seq) = (erased + 1, message.seq + 1);
        }
        Ok(erased)
    }

    /// Overwrites a message and removes it; one that is not there any more is fine.
    pub async fn erase_message(&self, stream: &str, seq: u64) -> Result<(), BusError> {
        self.delete_message(stream, seq, true).await
    }

    /// Erases an object; `false` when there is none.
    pub async fn erase_object(&self, store: Objects, name: &str) -> Result<bool, BusError> {
        let Some(subjects) = self.object_subjects(store, name).await? else { return Ok(false) };
        // The chunks first: as long as the description is there, an interrupted run finds them again.
        for subject in subjects {
            self.erase_messages(&format!("OBJ_{}", store.name()), &subject).await?;
        }
        Ok(true)
    }
}
