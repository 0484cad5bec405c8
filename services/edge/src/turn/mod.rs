//! One turn of a session as its parts: text as it streams, calls with their results, and the end. Protocols of requests and
//! answers translate these, so that they need to know nothing of events.

mod follower;
mod reply_text;
mod stream;

pub(crate) use follower::{TurnEnd, TurnPart};
pub(crate) use stream::TurnStream;
