//! A model that records its requests, so that the oracle knows them without the fleet.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tool::Effect;
use contract::limits::INLINE_BYTES_MAX;
use serde_json::{Value, json};

/// Delay between two pieces of a reply.
const PIECE: Duration = Duration::from_millis(20);

/// A request that the model served.
#[derive(Debug, Clone)]
pub(crate) struct ServedRequest {
    pub(crate) session: String,
    /// Call id, as in the log.
    pub(crate) call: String,
    pub(crate) at: SystemTime,
}

/// The model server, and its requests.
pub(crate) struct RecordedModel {
    pub(crate) server: ModelServer,
    served: Arc<Mutex<Vec<ServedRequest>>>,
}

impl RecordedModel {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let served: Arc<Mutex<Vec<ServedRequest>>> = Arc::default();
        let recorded = served.clone();
        let model = ModelServer::start(move |request| {
            let (session, turn, step) = position(request);
            let call =
                ServedRequest { session: session.clone(), call: format!("m{turn}-{step}"), at: SystemTime::now() };
            recorded.lock().unwrap_or_else(PoisonError::into_inner).push(call);
            reply(&session, turn, step)
        })
        .await?;
        Ok(Self { server: model, served })
    }

    /// The requests of a session.
    pub(crate) fn served(&self, session: &str) -> Vec<ServedRequest> {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.iter().filter(|served| served.session == session).cloned().collect()
    }
}

/// Session, turn and step of a request: the last word of each user message is the name of the session.
fn position(request: &RecordedRequest) -> (String, usize, usize) {
    let role = |message: &&Value, role: &str| message["role"] == role;
    let turn = request.messages().iter().filter(|message| role(message, "user")).count();
    let since_user = request.messages().iter().rev().take_while(|message| !role(message, "user"));
    let step = since_user.filter(|message| role(message, "assistant")).count() + 1;
    (request.last_user().rsplit(' ').next().unwrap_or_default().to_owned(), turn, step)
}

/// The name of a session begins so whose later replies are too large for a request.
pub(crate) const LARGE: &str = "large";

/// Two steps with calls, a final text, and one text in each later turn.
fn reply(session: &str, turn: usize, step: usize) -> ScriptedReply {
    let spoken = |text: &str| {
        let words = text.split_inclusive(' ');
        words.fold(ScriptedReply::text(""), |reply, word| reply.and_delay(PIECE).and_text(word))
    };
    let call =
        |effect: Effect| (effect.as_str(), json!({"mark": format!("{session}-{turn}-{step}-{}", effect.as_str())}));
    match (turn, step) {
        (1, 1) => spoken("I look at it first. ").and_calls(&[call(Effect::Pure), call(Effect::Idempotent)]),
        (1, 2) => spoken("Now I do it. ").and_calls(&[call(Effect::AtMostOnce)]),
        (1, _) => spoken("That is all."),
        _ if session.starts_with(LARGE) => spoken("Good bye. ").and_text(&"Good bye. ".repeat(INLINE_BYTES_MAX / 10)),
        _ => spoken("You are welcome."),
    }
}
