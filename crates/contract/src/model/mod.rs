//! The model call: the request to a gateway, and its result. Messages are provider-neutral.

mod message;
mod reply_text;
mod request;
mod result;
mod stream;

pub use message::{
    Content, Function, HistoryCall, HistoryMessage, ImageUrl, Message, Part, ReasoningParts, ReplayPosition,
    SIGNAL_TOOL, ToolCall,
};
pub use reply_text::ReplyText;
pub use request::{AfterPart, ItemMeta, ModelItem, SignalForm, Streaming, StreamingOverride, ToolDefinition};
pub use result::{FailureKind, FinishReason, ModelFailed, ModelFinished, ResultMeta, Usage};
pub use stream::{Channel, Chunk, PartialCall, ReplySnapshot, parse_attempt};
