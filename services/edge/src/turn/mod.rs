//! One turn of a session as its parts: text as it streams, calls with their results, and the end. Protocols of requests and
//! answers begin their turns here and translate the parts, so that they need to know nothing of commands and events.

mod begin;
mod call_address;
mod client_tool_names;
mod follower;
mod history;
mod instructions;
mod named;
mod question;
mod reply_text;
mod request;
mod request_identity;
mod stream;

pub(crate) use begin::{
    BegunTurn, CallResult, GENERATIONS_MAX, SessionChoice, TurnStart, answer_calls, answer_gate, answer_to_question,
    authorize_turns, begin_turn, find_answered_question, has_message, successor,
};
pub(crate) use call_address::{call_id, parse_call_id};
pub(crate) use client_tool_names::name_for_client;
pub(crate) use follower::{TurnEnd, TurnFollower, TurnPart};
pub(crate) use history::{ClientTurn, HistoryBuilder, OrphanedResult, describe_part, result_text};
pub(crate) use instructions::{add_instructions, before_message, without_instructions};
pub(crate) use named::find_named;
pub(crate) use question::GateQuestion;
pub use reply_text::ReplyText;
pub(crate) use request::{TurnRequest, client_tool};
pub(crate) use request_identity::RequestIdentity;
pub(crate) use stream::TurnStream;
