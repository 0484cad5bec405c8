//! Reads the bytes of a response as a stream of events or as one JSON body; the first byte decides which.

use contract::limits::{REPLY_BYTES_MAX, SSE_EVENT_BYTES_MAX};
use contract::model::{FailureKind, FinishReason};
use serde_json::Value;

use super::classify;
use crate::failure::CallFailure;
use crate::reply::Delta;
use crate::sse::SseDecoder;

/// Maximum bytes of a JSON body: the limit of the content, with room for escapes and envelope.
const WHOLE_BYTES_MAX: usize = 3 * REPLY_BYTES_MAX;

/// Progress in reading a reply.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReplyStage {
    /// Nothing of the reply has arrived.
    #[default]
    Waiting,
    /// The reply began without content.
    Started,
    /// The reply has content.
    Content,
    /// The provider gave its finish reason.
    Finished,
}

/// State of reading a response, with the deltas that were read and not taken yet.
#[derive(Debug, Default)]
pub(crate) struct ReadProgress {
    stage: ReplyStage,
    has_model: bool,
    is_done: bool,
    deltas: Vec<Delta>,
}

impl ReadProgress {
    /// Advances to this stage, never back.
    pub(crate) fn advance_to(&mut self, stage: ReplyStage) {
        self.stage = self.stage.max(stage);
    }

    /// Adds a delta that does not advance the reply.
    pub(crate) fn push(&mut self, delta: Delta) {
        self.deltas.push(delta);
    }

    /// Adds content of the reply.
    pub(crate) fn push_content(&mut self, delta: Delta) {
        self.advance_to(ReplyStage::Content);
        self.deltas.push(delta);
    }

    /// Adds a text of the reply, unless it is empty.
    pub(crate) fn push_text(&mut self, variant: fn(String) -> Delta, text: String) {
        if !text.is_empty() {
            self.push_content(variant(text));
        }
    }

    /// Records the finish reason; the first one counts. Fails if a filter left nothing of the reply.
    pub(crate) fn finish(&mut self, reason: FinishReason, raw: &str) -> Result<(), CallFailure> {
        if reason == FinishReason::ContentFilter && self.stage < ReplyStage::Content {
            return Err(CallFailure::new(FailureKind::Refused, "the provider's content filter withheld the reply"));
        }
        if self.stage != ReplyStage::Finished {
            self.stage = ReplyStage::Finished;
            self.deltas.push(Delta::Finish { reason, raw: raw.to_owned() });
        }
        Ok(())
    }

    /// Records the name of the model; the first one counts.
    pub(crate) fn set_model(&mut self, name: &Value) {
        if let (false, Some(name)) = (self.has_model, name.as_str().filter(|name| !name.is_empty())) {
            self.has_model = true;
            self.deltas.push(Delta::Model(name.to_owned()));
        }
    }

    /// Records that the rest of the response does not matter.
    pub(crate) fn set_done(&mut self) {
        self.is_done = true;
    }
}

/// Reads the JSON of one protocol.
pub(crate) trait ProtocolReader: std::fmt::Debug + Send {
    /// Reads an event of a stream.
    fn read_event(&mut self, value: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure>;

    /// Reads a JSON body; one without a reply is a protocol error.
    fn read_whole(&mut self, value: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure>;
}

/// Reads one response. [`ResponseReader::finish`] fails unless the provider marked the reply as complete.
#[derive(Debug)]
pub struct ResponseReader {
    body: Body,
    reader: Box<dyn ProtocolReader>,
    progress: ReadProgress,
}

#[derive(Debug, Default)]
enum Body {
    /// Only white space has arrived.
    #[default]
    Unknown,
    Events(SseDecoder),
    Whole(Vec<u8>),
}

impl ResponseReader {
    /// A reader of a response that has not arrived yet.
    pub(crate) fn new(reader: Box<dyn ProtocolReader>) -> Self {
        Self { body: Body::default(), reader, progress: ReadProgress::default() }
    }

    /// Reads the next bytes, and returns their deltas.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<Delta>, CallFailure> {
        if let Body::Unknown = self.body {
            bytes = bytes.trim_ascii_start();
            let Some(first) = bytes.first() else { return Ok(Vec::new()) };
            self.body = match first {
                b'{' | b'[' | b'"' => Body::Whole(Vec::new()),
                b'<' => return Err(protocol_error("the answer is a web page, not a reply of a model: check base_url")),
                // A comment, a field of an event (data, event, id, retry), or a byte order mark.
                b':' | b'd' | b'e' | b'i' | b'r' | 0xEF => Body::Events(SseDecoder::new(SSE_EVENT_BYTES_MAX)),
                _ => return Err(protocol_error("the answer is neither JSON nor a stream of events")),
            };
        }
        let mut events = Vec::new();
        match &mut self.body {
            Body::Unknown => {}
            Body::Whole(body) if body.len() + bytes.len() > WHOLE_BYTES_MAX => {
                return Err(protocol_error(&format!("the reply is over the limit of {WHOLE_BYTES_MAX} bytes")));
            }
            Body::Whole(body) => body.extend_from_slice(bytes),
            Body::Events(decoder) => {
                decoder.push(bytes, &mut events).map_err(|error| protocol_error(&error.to_string()))?;
            }
        }
        for event in events {
            self.read_event(&event)?;
        }
        Ok(std::mem::take(&mut self.progress.deltas))
    }

    /// Whether the rest does not matter, so that the connection may be dropped.
    pub(crate) fn is_done(&self) -> bool {
        self.progress.is_done
    }

    /// Whether the content is complete. Then only usage may follow, and a failure does not matter.
    pub(crate) fn is_finished(&self) -> bool {
        self.progress.stage == ReplyStage::Finished
    }

    /// Ends the response where the provider ended it. Returns the last deltas, or fails if the reply is incomplete.
    pub fn finish(&mut self) -> Result<Vec<Delta>, CallFailure> {
        match std::mem::take(&mut self.body) {
            Body::Unknown => {}
            Body::Whole(body) => self.read_whole(&body)?,
            Body::Events(mut decoder) => {
                let mut events = Vec::new();
                decoder.finish(&mut events);
                for event in events {
                    self.read_last_event(&event)?;
                }
            }
        }
        if self.progress.is_done && self.progress.stage == ReplyStage::Content {
            // Some servers give no finish reason, but mark the end of the reply by a last event.
            self.progress.finish(FinishReason::Other, "")?;
        }
        let message = match self.progress.stage {
            ReplyStage::Finished => return Ok(std::mem::take(&mut self.progress.deltas)),
            ReplyStage::Waiting => "the answer ended before the reply began",
            ReplyStage::Started | ReplyStage::Content => "the reply broke off",
        };
        Err(CallFailure::new(FailureKind::Truncated, message))
    }

    /// Reads a last event without a blank line, if its JSON is complete.
    fn read_last_event(&mut self, event: &str) -> Result<(), CallFailure> {
        if event.trim() != "[DONE]" && serde_json::from_str::<serde::de::IgnoredAny>(event).is_err() {
            return Ok(());
        }
        self.read_event(event)
    }

    fn read_event(&mut self, data: &str) -> Result<(), CallFailure> {
        let data = data.trim();
        if data.is_empty() || self.progress.is_done {
            return Ok(());
        }
        if data == "[DONE]" {
            self.progress.set_done();
            return Ok(());
        }
        let value: Value =
            serde_json::from_str(data).map_err(|_| protocol_error("an event of the stream is not JSON"))?;
        if !value.is_object() {
            return Err(protocol_error("an event of the stream is not a JSON object"));
        }
        if let Some(failure) = classify::find_in_band_error(&value) {
            return if self.is_finished() { Ok(()) } else { Err(failure) };
        }
        self.reader.read_event(&value, &mut self.progress)
    }

    fn read_whole(&mut self, body: &[u8]) -> Result<(), CallFailure> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            if error.is_eof() {
                CallFailure::new(FailureKind::Truncated, "the reply broke off")
            } else {
                protocol_error("the answer is not JSON")
            }
        })?;
        if let Some(failure) = classify::find_in_band_error(&value) {
            return Err(failure);
        }
        self.reader.read_whole(&value, &mut self.progress)?;
        self.progress.finish(FinishReason::Other, "")?;
        self.progress.set_done();
        Ok(())
    }
}

/// A failure of a response that does not follow the protocol.
pub(crate) fn protocol_error(message: &str) -> CallFailure {
    CallFailure::new(FailureKind::ProtocolError, message)
}
