//! From a JSON-RPC method to the call, and from its outcome to an answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use contract::Json;
use contract::command::{Answer, Configure, ControlReason, SendUserMessage, Start};
use contract::{ErrorCode, SessionId};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::commands::Pending;
use crate::failure::Failure;
use crate::guard::Caller;
use crate::jsonrpc::Request;
use crate::params::{self, Checked, Given, Unchecked};
use crate::sessions::Sessions;
use crate::watch::viewer::{Viewer, Watching};

/// Every method.
const METHODS: &[&str] = &[
    "session.start",
    "session.send",
    "session.pause",
    "session.resume",
    "session.stop",
    "session.answer",
    "session.clear",
    "session.configure",
    "session.history",
    "session.transcript",
    "session.get",
    "session.list",
    "session.replay",
    "session.stats",
    "session.repair",
    "session.watch",
    "session.unwatch",
    "agents.list",
    "models.list",
    "tools.list",
    "tools.result",
    "gates.list",
    "mail.list",
    "mail.send",
    "mail.reply",
    "fleet.queues",
    "dead.list",
    "dead.show",
    "dead.retry",
    "dead.drop",
];

/// What a call comes to: a result, and what the connection must do after it was sent.
pub(super) struct Outcome {
    pub(super) result: Json,
    pub(super) then: Then,
}

/// What a connection does after an answer.
pub(super) enum Then {
    Nothing,
    Watch(Box<Viewer>),
    Unwatch(SessionId),
}

/// The part of a call that may run beside those of later requests.
pub(super) type Rest = BoxFuture<'static, Result<Outcome, Failure>>;

/// The watches of one connection that wait for the start of their session, at most as many as it has requests in flight.
/// Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitingWatches {
    by_session: Arc<Mutex<HashMap<SessionId, CancellationToken>>>,
}

impl WaitingWatches {
    /// Adds a watch, in place of one of the same session; returns what is cancelled when it is taken back.
    fn add(&self, session: SessionId) -> CancellationToken {
        let token = CancellationToken::new();
        let mut waiting = self.by_session.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, token| !token.is_cancelled());
        if let Some(before) = waiting.insert(session, token.clone()) {
            before.cancel();
        }
        token
    }

    /// Takes back a watch of a session, where one waits.
    fn take_back(&self, session: &SessionId) {
        let waiting = self.by_session.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
        if let Some(token) = waiting {
            token.cancel();
        }
    }
}

/// Does the part of a call that must be done in the order of the requests: for a command, sending it.
pub(super) async fn begin(sessions: &Sessions, caller: &Caller, waiting: &WaitingWatches, request: Request) -> Rest {
    let method = METHODS.iter().copied().find(|method| *method == request.method);
    let session = request.params.get("session_id").and_then(Value::as_str);
    let span = telemetry::span::edge_request(method.unwrap_or("unknown"), session);
    let begun = async {
        let method = method.ok_or_else(|| {
            let known = METHODS.join(", ");
            let asked: String = request.method.chars().take(80).collect();
            Failure::new(ErrorCode::UnknownMethod, format!("there is no method {asked:?}; there are {known}"))
        })?;
        route(sessions, caller, waiting, method, request.params).await
    };
    let begun = begun.instrument(span.clone()).await;
    async move {
        let outcome = match begun {
            Ok(rest) => rest.await,
            Err(failure) => Err(failure),
        };
        let code = outcome.as_ref().err().map(|failure| failure.code.clone());
        if let Some(code) = &code {
            telemetry::span::failed(&tracing::Span::current(), code.as_str());
        }
        telemetry::metric::request(method.unwrap_or("unknown"), code.as_ref().map_or("ok", ErrorCode::as_str));
        outcome
    }
    .instrument(span)
    .boxed()
}

async fn route(
    sessions: &Sessions,
    caller: &Caller,
    waiting: &WaitingWatches,
    method: &'static str,
    params: Map<String, Value>,
) -> Result<Rest, Failure> {
    let (sessions, caller) = (sessions.clone(), caller.clone());
    let rest = match method {
        "session.start" => done(sessions.start(&caller, given::<Start>(&sessions, &caller, params).await?).await?),
        "session.send" => {
            done(sessions.send(&caller, given::<SendUserMessage>(&sessions, &caller, params).await?).await?)
        }
        "session.pause" => {
            done(sessions.pause(&caller, given::<ControlReason>(&sessions, &caller, params).await?).await?)
        }
        "session.resume" => {
            done(sessions.resume(&caller, given::<ControlReason>(&sessions, &caller, params).await?).await?)
        }
        "session.stop" => {
            done(sessions.stop(&caller, given::<ControlReason>(&sessions, &caller, params).await?).await?)
        }
        "session.answer" => done(sessions.answer(&caller, given::<Answer>(&sessions, &caller, params).await?).await?),
        "session.configure" => {
            done(sessions.configure(&caller, given::<Configure>(&sessions, &caller, params).await?).await?)
        }
        "session.clear" => {
            done(sessions.clear(&caller, given::<ControlReason>(&sessions, &caller, params).await?).await?)
        }
        "session.watch" => {
            let wanted: params::Watch = params::from_object(params)?;
            match sessions.watch(&caller, &wanted).await {
                // It may be about to start: then the watch waits, and the requests behind it do not.
                Err(failure) if failure.code == ErrorCode::UnknownSession => {
                    let token = waiting.add(wanted.session_id.clone());
                    async move { watch_started(&sessions, &caller, &wanted, token).await }.boxed()
                }
                outcome => std::future::ready(outcome.map(watched)).boxed(),
            }
        }
        "session.unwatch" => {
            let params::One { session_id } = params::from_object(params)?;
            waiting.take_back(&session_id);
            let result = Json::of(&serde_json::json!({"session_id": session_id}));
            std::future::ready(Ok(Outcome { result, then: Then::Unwatch(session_id) })).boxed()
        }
        // Requests behind a mail do not wait for the executor: mails of one connection may be stored in another order.
        "mail.send" => {
            let wanted: params::SendMailParams = params::from_object(params)?;
            async move { told(sessions.send_mail(&caller, wanted).await) }.boxed()
        }
        "mail.reply" => {
            let wanted: params::ReplyMailParams = params::from_object(params)?;
            async move { told(sessions.reply_mail(&caller, wanted).await) }.boxed()
        }
        _ => look(sessions, caller, method, params)?,
    };
    Ok(rest)
}

/// Calls that only look, and those of operators.
fn look(sessions: Sessions, caller: Caller, method: &str, params: Map<String, Value>) -> Result<Rest, Failure> {
    Ok(match method {
        "session.history" => {
            let params::One { session_id } = params::from_object(params)?;
            async move { told(sessions.history(&caller, session_id).await) }.boxed()
        }
        "session.transcript" => {
            let wanted: params::Transcript = params::from_object(params)?;
            async move { told(sessions.transcript(&caller, wanted).await) }.boxed()
        }
        "session.get" => {
            let params::One { session_id } = params::from_object(params)?;
            async move { told(sessions.get(&caller, session_id).await) }.boxed()
        }
        "session.repair" => {
            let params::One { session_id } = params::from_object(params)?;
            async move { told(sessions.repair(&caller, session_id).await) }.boxed()
        }
        "session.replay" => {
            let wanted: params::Replay = params::from_object(params)?;
            async move { told(sessions.replay(&caller, wanted).await) }.boxed()
        }
        "session.stats" => {
            let wanted: params::Stats = params::from_object(params)?;
            async move { told(sessions.stats(&caller, &wanted).await.map(|stats| serde_json::json!({"stats": stats}))) }
                .boxed()
        }
        "session.list" => {
            let list: params::List = params::from_object(params)?;
            async move { told(sessions.list(&caller, &list).await) }.boxed()
        }
        "gates.list" => {
            let wanted: params::Gates = params::from_object(params)?;
            async move { told(sessions.gates(&caller, &wanted).await.map(|gates| serde_json::json!({"gates": gates}))) }
                .boxed()
        }
        "agents.list" => {
            let params::Nothing {} = params::from_object(params)?;
            async move { told(sessions.agents(&caller).await.map(|agents| serde_json::json!({"agents": agents}))) }
                .boxed()
        }
        "models.list" => {
            let params::Nothing {} = params::from_object(params)?;
            async move { told(sessions.models(&caller).await.map(|models| serde_json::json!({"models": models}))) }
                .boxed()
        }
        "mail.list" => {
            let wanted: params::ListMailParams = params::from_object(params)?;
            async move { told(sessions.mails(&caller, wanted).await) }.boxed()
        }
        "tools.result" => {
            let wanted: params::Call = params::from_object(params)?;
            async move { told(sessions.whole_result(&caller, &wanted).await) }.boxed()
        }
        "fleet.queues" => {
            let params::Nothing {} = params::from_object(params)?;
            async move { told(sessions.queues(&caller).await) }.boxed()
        }
        "dead.list" => {
            let wanted: params::DeadList = params::from_object(params)?;
            async move { told(sessions.dead(&caller, &wanted).await.map(|dead| serde_json::json!({"dead": dead}))) }
                .boxed()
        }
        "dead.show" => {
            let wanted: params::DeadOne = params::from_object(params)?;
            async move { told(sessions.dead_letter(&caller, wanted).await) }.boxed()
        }
        "dead.retry" => {
            let wanted: params::DeadOne = params::from_object(params)?;
            async move { told(sessions.retry_dead(&caller, wanted).await) }.boxed()
        }
        "dead.drop" => {
            let wanted: params::DeadOne = params::from_object(params)?;
            async move { told(sessions.drop_dead(&caller, wanted).await) }.boxed()
        }
        _ => {
            let params::Nothing {} = params::from_object(params)?;
            async move { told(sessions.tools(&caller).await.map(|tools| Tools { tools })) }.boxed()
        }
    })
}

async fn watch_started(
    sessions: &Sessions,
    caller: &Caller,
    wanted: &params::Watch,
    token: CancellationToken,
) -> Result<Outcome, Failure> {
    let outcome = token.run_until_cancelled(sessions.watch_started(caller, wanted)).await;
    // It waits no more.
    token.cancel();
    match outcome {
        Some(outcome) => outcome.map(watched),
        None => Err(Failure::new(ErrorCode::NotNow, "a later request for this session took the watch back")),
    }
}

fn watched((watching, viewer): (Watching, Viewer)) -> Outcome {
    Outcome { result: Json::of(&watching), then: Then::Watch(Box::new(viewer)) }
}

#[derive(Serialize)]
struct Tools {
    tools: Vec<contract::tool::ToolSpec>,
}

async fn given<T>(sessions: &Sessions, caller: &Caller, params: Map<String, Value>) -> Result<Given<T>, Failure>
where
    T: Checked + DeserializeOwned + Send + 'static,
{
    sessions.check(caller, Unchecked::from_json(params)?).await
}

fn done(pending: Pending) -> Rest {
    async move { told(pending.done().await) }.boxed()
}

fn told<T: Serialize>(outcome: Result<T, Failure>) -> Result<Outcome, Failure> {
    outcome.map(|result| Outcome { result: Json::of(&result), then: Then::Nothing })
}
