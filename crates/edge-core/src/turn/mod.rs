//! One turn of a session as its parts: text as it streams, calls with their results, and the end. Protocols of requests and
//! answers begin their turns here and translate the parts, so that they need to know nothing of commands and events.

mod begin;
mod call_address;
mod client_tool_names;
mod follower;
mod history;
mod instructions;
mod named;
mod request;
mod request_identity;
mod stream;

pub use begin::{
    BegunTurn, GENERATIONS_MAX, GivenResult, SessionChoice, TurnStart, answer_calls, answer_gate, answer_to_gate,
    answer_to_question, authorize_turns, begin_turn, find_answered_question, has_message, successor,
};
pub use call_address::{call_id, parse_call_id};
pub use client_tool_names::name_for_client;
pub use follower::{TurnFollower, TurnOutcome, TurnPart, open_gate};
pub use history::{ClientTurn, HistoryBuilder, OrphanedResult, describe_part, result_text};
pub use instructions::{add_instructions, before_message, without_instructions};
pub use named::find_named;
pub use request::{NewTurn, client_tool};
pub use request_identity::RequestIdentity;
pub use stream::TurnStream;
