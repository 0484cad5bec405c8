//! Run AI agents of an ailoop fleet from a program.
//!
//! A fleet runs sessions of agents as services. This crate is a client of its gRPC API: it starts sessions, sends messages,
//! follows turns and events, answers approvals and questions, and performs calls of functions of the program.
//!
//! ```no_run
//! use ailoop_client::{Client, GateDecision, LocalTool, ToolEffect};
//! use futures::StreamExt;
//! use serde_json::json;
//!
//! #[derive(serde::Deserialize)]
//! struct Place {
//!     city: String,
//! }
//!
//! # async fn run() -> Result<(), ailoop_client::ClientError> {
//! let client = Client::connect("https://ailoop.example.com").api_key("…").await?;
//!
//! // A task in a session of its own.
//! println!("{}", client.run("e", "Survey this directory").await?.text);
//!
//! // A session of many turns, with a function of this program as a tool.
//! let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
//! let weather = LocalTool::new("weather", schema, async |Place { city }| {
//!     Ok::<_, std::io::Error>(format!("rain in {city}"))
//! })
//! .description("The weather of a city.")
//! .effect(ToolEffect::Pure);
//! let session = client
//!     .start()
//!     .agent("e")
//!     .tool(weather)
//!     .on_gate(async |gate| gate.is_question().then(|| GateDecision::answer("the second one")))
//!     .await?;
//! let mut turn = session.turn("What is the weather in Bonn?").follow();
//! while let Some(text) = turn.next().await {
//!     print!("{}", text?);
//! }
//! let result = turn.result().await?;
//! println!("{:?} {:?}", result.stop_reason, result.cost);
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - **A command takes effect once.** It has its idempotency key before it is first sent. If the connection breaks, or the
//!   fleet asks to try later, it is sent again with the same key, after pauses from 0.2 s to 5 s with jitter, for
//!   [`ClientBuilder::retry_for`]. With a key of your own, a program that was restarted finds its session or turn again.
//! - **No event is lost or comes twice.** [`AgentSession::events`] connects again by itself, and goes on behind the last
//!   event. Chunks of replies are no events of the log, and may be lost.
//! - **Text is only added.** A [`Turn`] yields no text twice and takes none back, whatever happens to the connection or to
//!   the reply.
//! - **A call of a local tool is answered once.** A program that takes up a session does not perform an open call of an
//!   [`AtMostOnce`](ToolEffect::AtMostOnce) tool, since an earlier process may have performed it.
//! - **A key is not sent in clear** to another machine, unless [`ClientBuilder::allow_plaintext_key`] says so.
//!
//! # The fleet of a directory
//!
//! [`Client::connect_here`] finds the fleet that `ailoop up` runs in the working directory, with its address and token.
//!
//! # Errors
//!
//! Every error is a [`ClientError`] with a stable code, such as `unknown_agent`. [`ErrorKind`] groups the codes by what a
//! caller can do.
//!
//! # Further calls
//!
//! [`Client::api`] is the generated client of [`proto`], with all calls of the API. [`Client::call`] repeats one of them.
//!
//! A client needs a Tokio runtime, and spawns no task of its own except those of the connection.

mod call_claims;
mod client;
mod connection;
mod error;
mod event;
mod event_stream;
mod gate;
mod local_tool;
mod message;
mod reply_text;
mod responder;
mod retry;
#[cfg(unix)]
pub mod run_file;
mod session;
mod session_context;
mod start;
mod target;
mod transcript;
mod turn;
mod watch;

pub use client::{Client, ClientBuilder};
pub use connection::{SessionsApi, bounded};
pub use error::{ClientError, ErrorKind};
pub use event::{
    AcceptedMessage, ChunkChannel, ClosedGate, CompletedCall, CompletedReply, EventContent, GateRequest, LocalCall,
    ReplyChunk, SessionEnd, SessionEvent, SessionFailure, TurnCost, TurnEnd, TurnStopReason,
};
pub use event_stream::EventStream;
pub use gate::{GateDecision, GateRef};
pub use local_tool::{LocalTool, ToolEffect};
pub use message::{MessageRequest, SendMode};
pub use proto;
#[cfg(unix)]
pub use run_file::RunFile;
pub use session::AgentSession;
pub use start::StartSession;
pub use target::BearerKey;
pub use transcript::{SessionTranscript, TranscriptCall, TranscriptMessage, TranscriptTurn};
pub use turn::{Turn, TurnRequest, TurnResult};
pub use watch::{Watch, WatchItem};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
