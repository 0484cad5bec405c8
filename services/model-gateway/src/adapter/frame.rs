//! From the bytes of an answer to the JSON in it: streamed or whole, told apart by how the bytes begin.

use contract::limits::{REPLY_BYTES_MAX, SSE_EVENT_BYTES_MAX};
use contract::model::{FailureKind, FinishReason};
use serde_json::Value;

use super::classify;
use crate::failure::Failure;
use crate::reply::Delta;
use crate::sse::Decoder;

/// Bytes of a whole answer's JSON: the content's limit, and room for its escapes and envelope.
const WHOLE_BYTES_MAX: usize = 3 * REPLY_BYTES_MAX;

/// How far a reply has come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing of a reply so far.
    #[default]
    Waiting,
    /// It began.
    Begun,
    /// It holds something.
    Content,
    /// The provider gave its reason to end.
    Finished,
}

/// What a protocol has made of an answer so far.
#[derive(Debug, Default)]
pub struct Progress {
    stage: Stage,
    model: bool,
    done: bool,
}

impl Progress {
    /// How far it is.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// It is so far at least.
    pub fn reach(&mut self, stage: Stage) {
        self.stage = self.stage.max(stage);
    }

    /// The provider's reason to end; the first one counts.
    pub fn finish(&mut self, reason: FinishReason, raw: &str, deltas: &mut Vec<Delta>) {
        if self.stage != Stage::Finished {
            self.stage = Stage::Finished;
            deltas.push(Delta::Finish { reason, raw: raw.to_owned() });
        }
    }

    /// The model that answers; the first name counts.
    pub fn model(&mut self, name: &Value, deltas: &mut Vec<Delta>) {
        if let (false, Some(name)) = (self.model, name.as_str().filter(|name| !name.is_empty())) {
            self.model = true;
            deltas.push(Delta::Model(name.to_owned()));
        }
    }

    /// Nothing that matters can follow.
    pub fn done(&mut self) {
        self.done = true;
    }
}

/// What the JSON of one protocol means.
pub trait Reader: std::fmt::Debug + Send {
    /// An event of a stream.
    fn event(&mut self, value: &Value, progress: &mut Progress, deltas: &mut Vec<Delta>) -> Result<(), Failure>;

    /// A whole answer; one that is no reply is garbage.
    fn whole(&mut self, value: &Value, progress: &mut Progress, deltas: &mut Vec<Delta>) -> Result<(), Failure>;
}

/// Reads one answer. No half reply passes: [`Answer::finish`] fails unless the provider said that it was done.
#[derive(Debug)]
pub struct Answer {
    body: Body,
    reader: Box<dyn Reader>,
    progress: Progress,
}

#[derive(Debug, Default)]
enum Body {
    /// Nothing but white space so far.
    #[default]
    Unknown,
    Events(Decoder),
    Whole(Vec<u8>),
}

impl Answer {
    /// An answer of which nothing has come yet.
    pub fn new(reader: Box<dyn Reader>) -> Self {
        Self { body: Body::default(), reader, progress: Progress::default() }
    }

    /// Takes in the next bytes and yields what they mean.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<Delta>, Failure> {
        if let Body::Unknown = self.body {
            bytes = bytes.trim_ascii_start();
            let Some(first) = bytes.first() else { return Ok(Vec::new()) };
            self.body = match first {
                b'{' | b'[' | b'"' => Body::Whole(Vec::new()),
                b'<' => return Err(garbage("the answer is a web page, not a reply of a model: check base_url")),
                // A comment, a field of an event (data, event, id, retry), or a byte order mark.
                b':' | b'd' | b'e' | b'i' | b'r' | 0xEF => Body::Events(Decoder::new(SSE_EVENT_BYTES_MAX)),
                _ => return Err(garbage("the answer is neither JSON nor a stream of events")),
            };
        }
        let mut events = Vec::new();
        match &mut self.body {
            Body::Unknown => {}
            Body::Whole(body) if body.len() + bytes.len() > WHOLE_BYTES_MAX => {
                return Err(garbage(&format!("the reply is over the limit of {WHOLE_BYTES_MAX} bytes")));
            }
            Body::Whole(body) => body.extend_from_slice(bytes),
            Body::Events(decoder) => decoder.push(bytes, &mut events).map_err(|error| garbage(&error.to_string()))?,
        }
        let mut deltas = Vec::new();
        for event in events {
            self.event(&event, &mut deltas)?;
        }
        Ok(deltas)
    }

    /// Whether nothing that matters can follow, so that the connection may be dropped.
    pub fn is_done(&self) -> bool {
        self.progress.done
    }

    /// Whether the content is complete: only usage may follow, and is not worth a failure.
    pub fn is_finished(&self) -> bool {
        self.progress.stage == Stage::Finished
    }

    /// Ends the answer where the provider ended it: yields what is left, or says what is missing.
    pub fn finish(&mut self) -> Result<Vec<Delta>, Failure> {
        let mut deltas = Vec::new();
        match std::mem::take(&mut self.body) {
            Body::Unknown => {}
            Body::Whole(body) => return self.whole(&body),
            Body::Events(mut decoder) => {
                let mut events = Vec::new();
                decoder.finish(&mut events);
                for event in events {
                    self.last_event(&event, &mut deltas)?;
                }
            }
        }
        if self.is_finished() {
            return Ok(deltas);
        }
        if self.progress.done && self.progress.stage == Stage::Content {
            // A server that never gives a reason, but says by its last event that the reply is complete.
            self.progress.finish(FinishReason::Other, "", &mut deltas);
            return Ok(deltas);
        }
        let message = match self.progress.stage {
            Stage::Waiting => "the answer ended before the reply began",
            Stage::Begun | Stage::Content | Stage::Finished => "the reply broke off",
        };
        Err(Failure::new(FailureKind::Truncated, message))
    }

    /// The last event has no blank line after it: it counts when it is whole, and is part of the loss otherwise.
    fn last_event(&mut self, event: &str, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        if event.trim() != "[DONE]" && serde_json::from_str::<serde::de::IgnoredAny>(event).is_err() {
            return Ok(());
        }
        self.event(event, deltas)
    }

    fn event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        let data = data.trim();
        if data.is_empty() || self.progress.done {
            return Ok(());
        }
        if data == "[DONE]" {
            self.progress.done();
            return Ok(());
        }
        let value: Value = serde_json::from_str(data).map_err(|_| garbage("an event of the stream is not JSON"))?;
        if !value.is_object() {
            return Err(garbage("an event of the stream is not a JSON object"));
        }
        if let Some(failure) = classify::in_band(&value) {
            return if self.is_finished() { Ok(()) } else { Err(failure) };
        }
        self.reader.event(&value, &mut self.progress, deltas)
    }

    fn whole(&mut self, body: &[u8]) -> Result<Vec<Delta>, Failure> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            if error.is_eof() {
                Failure::new(FailureKind::Truncated, "the reply broke off")
            } else {
                garbage("the answer is not JSON")
            }
        })?;
        if let Some(failure) = classify::in_band(&value) {
            return Err(failure);
        }
        let mut deltas = Vec::new();
        self.reader.whole(&value, &mut self.progress, &mut deltas)?;
        self.progress.finish(FinishReason::Other, "", &mut deltas);
        self.progress.done();
        Ok(deltas)
    }
}

/// What is not the protocol.
pub fn garbage(message: &str) -> Failure {
    Failure::new(FailureKind::ProtocolError, message)
}
