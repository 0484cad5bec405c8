//! Inputs of a session: sent once however often they are repeated, read in stream order.

use bytes::Bytes;
use contract::CommandId;
use contract::command::Verb;
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey, Subject};

use crate::headers::{marked_again, trace_headers};
use crate::transport::ReadMany;
use crate::verify::{Verified, Write};
use crate::{Bus, BusError, Headers, Read};

/// The outcome of sending a message to a stream that holds one per subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOutcome {
    /// Stored under this sequence.
    Stored(u64),
    /// A message of the same subject waits there already.
    Duplicate,
}

/// The waiting inputs of a session. An acknowledged one may still be among them, and a waiting one may be missing. If
/// there are too many, handle the delivered one alone.
pub type Inbox = ReadMany;

impl Bus {
    /// Sends an input. An input of the same verb and id that still waits is success; one that was handled before is
    /// stored again and found in the session's handled ids. [`BusError::Full`] is back-pressure.
    pub async fn send_control(
        &self,
        key: &SessionKey,
        verb: Verb,
        id: &CommandId,
        body: Bytes,
    ) -> Result<SendOutcome, BusError> {
        let body = self.offload_body(Objects::Work, body).await?;
        self.send_once(Stream::Control, &subject::control(key, verb, id), trace_headers(), body).await
    }

    /// Whether one of these inputs of a session waits, as the leader knows it.
    pub async fn waits(&self, key: &SessionKey, verbs: &[Verb], id: &CommandId) -> Result<bool, BusError> {
        for verb in verbs {
            let subject = subject::control(key, *verb, id);
            if self.transport().last(Stream::Control, &subject, Read::Leader).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The waiting inputs of a session; bodies may be references.
    pub async fn inbox(&self, key: &SessionKey) -> Result<Inbox, BusError> {
        self.transport().last_many(Stream::Control, &[subject::control_inbox(key)]).await
    }

    /// Appends to a stream that holds one message per subject. A refusal is believed only after the leader showed the
    /// message; a refusal without one is tried again, since it may have been taken meanwhile; in the end it is
    /// [`BusError::Full`] where the stream has no room. What is offered again says so: the first one may have been
    /// stored, taken and dealt with before its publisher had an answer.
    pub(crate) async fn send_once(
        &self,
        stream: Stream,
        subject: &Subject,
        headers: Headers,
        body: Bytes,
    ) -> Result<SendOutcome, BusError> {
        Verified::at(subject)
            .write(
                |round| {
                    let headers = if round == 1 { headers.clone() } else { marked_again(headers.clone()) };
                    let append = self.transport().append(subject, false, headers, body.clone());
                    async { Ok(Write::of(append.await?, SendOutcome::Stored)) }
                },
                || async {
                    let waits = self.transport().last(stream, subject, Read::Leader).await?.is_some();
                    Ok(waits.then_some(SendOutcome::Duplicate))
                },
            )
            .await
    }
}
