//! One turn of a session as its parts: text as it streams, calls with their results, and the end. Protocols of requests and
//! answers begin their turns here and translate the parts, so that they need to know nothing of commands and events.

mod begin;
mod follower;
mod reply_text;
mod request_identity;
mod stream;

pub(crate) use begin::{
    BegunTurn, CallResult, GENERATIONS_MAX, SessionChoice, TurnRequest, TurnStart, answer_calls, answer_gate,
    begin_turn, successor,
};
pub(crate) use follower::{TurnEnd, TurnFollower, TurnPart};
pub use reply_text::ReplyText;
pub(crate) use request_identity::RequestIdentity;
pub(crate) use stream::TurnStream;
