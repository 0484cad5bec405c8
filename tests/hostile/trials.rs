//! The list of trials, each with its hostile party.

use futures::FutureExt;
use futures::future::BoxFuture;

use ailoop_tests::model::{RecordedRequest, ScriptedReply};

use crate::hostile::fleet::Target;
use crate::hostile::{clients, models, tools};

pub(crate) struct Trial {
    pub(crate) name: &'static str,
    pub(crate) attack: fn(Target) -> BoxFuture<'static, anyhow::Result<()>>,
    /// Reply of the hostile model; `None` uses the model of the other sessions.
    pub(crate) reply: Option<fn(&RecordedRequest) -> ScriptedReply>,
}

const fn trial(name: &'static str, attack: fn(Target) -> BoxFuture<'static, anyhow::Result<()>>) -> Trial {
    Trial { name, attack, reply: None }
}

const fn with_reply(mut trial: Trial, reply: fn(&RecordedRequest) -> ScriptedReply) -> Trial {
    trial.reply = Some(reply);
    trial
}

pub(crate) const TRIALS: &[Trial] = &[
    trial("silent connections, WebSocket port", |target| clients::silent(target.ws, target).boxed()),
    trial("silent connections, gRPC port", |target| clients::silent(target.grpc, target).boxed()),
    trial("silent connections, health port", |target| clients::silent(target.health, target).boxed()),
    trial("idle WebSockets", |target| clients::idle(target).boxed()),
    trial("flood of calls on one connection", |target| clients::flood(target).boxed()),
    trial("flood of HTTP/2 frames", |target| clients::frames(target).boxed()),
    trial("90,000 empty messages in a start", |target| clients::empty_messages(target).boxed()),
    trial("patterns that are large when compiled", |target| clients::patterns(target).boxed()),
    with_reply(trial("turns that wait", |target| clients::waiting_turns(target).boxed()), models::silent),
    trial("JSON nested deeply", |target| clients::nested(target).boxed()),
    trial("huge bodies", |target| clients::huge(target).boxed()),
    trial("damaged JSON", |target| clients::damaged(target).boxed()),
    with_reply(trial("tool schema with doubling references", |target| tools::schema(target).boxed()), tools::call_evil),
    with_reply(trial("tool that floods", |target| tools::flooding_tool(target).boxed()), tools::call_evil),
    with_reply(
        trial("MCP server that floods", |target| async move { tools::sessions(&target).await }.boxed()),
        tools::call_server,
    ),
    with_reply(trial("hostile model streams", |target| models::streams(target).boxed()), models::hostile_stream),
    with_reply(trial("calls for what may not be read", |target| models::readers(target).boxed()), models::read_secrets),
];
