//! A model that records what it was asked, so that the oracle knows it without asking the fleet.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tool::Effect;
use serde_json::{Value, json};

/// Between two pieces of a reply.
const PIECE: Duration = Duration::from_millis(20);

/// One request that the model served.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) session: String,
    /// The call's id, as it stands in the log.
    pub(crate) call: String,
    pub(crate) at: SystemTime,
}

/// The model.
pub(crate) struct Model {
    pub(crate) server: ModelServer,
    served: Arc<Mutex<Vec<Served>>>,
}

impl Model {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let served: Arc<Mutex<Vec<Served>>> = Arc::default();
        let asked_for = served.clone();
        let model = ModelServer::start(move |request| {
            let (session, turn, step) = position(request);
            let call = Served { session: session.clone(), call: format!("m{turn}-{step}"), at: SystemTime::now() };
            asked_for.lock().unwrap_or_else(PoisonError::into_inner).push(call);
            reply(&session, turn, step)
        })
        .await?;
        Ok(Self { server: model, served })
    }

    /// What it was asked for a session.
    pub(crate) fn served(&self, session: &str) -> Vec<Served> {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.iter().filter(|served| served.session == session).cloned().collect()
    }
}

/// The session that a request is for, its turn and its step: the last word of each user message is the session's name.
fn position(request: &RecordedRequest) -> (String, usize, usize) {
    let role = |message: &&Value, role: &str| message["role"] == role;
    let turn = request.messages().iter().filter(|message| role(message, "user")).count();
    let said = request.messages().iter().rev().take_while(|message| !role(message, "user"));
    let step = said.filter(|message| role(message, "assistant")).count() + 1;
    (request.last_user().rsplit(' ').next().unwrap_or_default().to_owned(), turn, step)
}

/// Two steps with calls, a last word, and short answers after that.
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
        _ => spoken("You are welcome."),
    }
}
