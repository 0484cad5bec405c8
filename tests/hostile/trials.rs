//! The list of trials, each with its hostile party.

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};

use ailoop_tests::model::{RecordedRequest, ScriptedReply};

use crate::hostile::attempts::{AccessTrial, Attempts};
use crate::hostile::fleet::Target;
use crate::hostile::{clients, issuer, listener, local, models, nats, reach, repetition, tools};

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

const fn access(
    name: &'static str,
    attack: fn(Attempts) -> LocalBoxFuture<'static, anyhow::Result<()>>,
) -> AccessTrial {
    AccessTrial { name, attack }
}

pub(crate) const ACCESS_TRIALS: &[AccessTrial] = &[
    access("key of one agent starts another one", |attempts| reach::other_agents(attempts).boxed_local()),
    access("key of one agent reads what another one was told", |attempts| {
        reach::items_of_others(attempts).boxed_local()
    }),
    access("message into a session that begins", |attempts| reach::session_that_begins(attempts).boxed_local()),
    access("administrator of a tenant looks at the fleet", |attempts| reach::administrator(attempts).boxed_local()),
    access("key of a public page sets how an agent works", |attempts| reach::public_page(attempts).boxed_local()),
    access("model of an MCP host approves its own call", |attempts| reach::model_approves(attempts).boxed_local()),
    access("single calls use up the sessions of a tenant", |attempts| reach::quota_of_sessions(attempts).boxed_local()),
    access("repeated request of another user", |attempts| repetition::session_of_another_user(attempts).boxed_local()),
    access("many equal requests", |attempts| repetition::equal_requests(attempts).boxed_local()),
    access("directory of somebody else", |attempts| local::foreign_directory(attempts).boxed_local()),
    access("fleet of another user of the machine", |attempts| local::other_user(attempts).boxed_local()),
    access("store that another user prepared", |attempts| local::prepared_store(attempts).boxed_local()),
    access("page that makes the model carry a file away", |attempts| local::obedient_model(attempts).boxed_local()),
    access("guessed credentials", |attempts| listener::guesses(attempts).boxed_local()),
    access("documents for a foreign page", |attempts| listener::documents(attempts).boxed_local()),
    access("flood on the connection of a proxy", |attempts| listener::shared_connection(attempts).boxed_local()),
    access("idle connection of a proxy", |attempts| listener::idle_connection(attempts).boxed_local()),
    access("traces that a client wants sampled", |attempts| listener::samples(attempts).boxed_local()),
    access("forged tokens of an issuer", |attempts| issuer::forged_tokens(attempts).boxed_local()),
    access("many tokens of one holder", |attempts| issuer::rate_of_a_holder(attempts).boxed_local()),
    access("stream whose key was taken back", |attempts| issuer::key_taken_back(attempts).boxed_local()),
    access("consumer of objects by a NATS user", |attempts| nats::consumers_of_objects(attempts).boxed_local()),
    access("nats-server that wants no encryption", |attempts| nats::server_in_clear(attempts).boxed_local()),
];
