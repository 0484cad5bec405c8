//! Each protocol over real HTTP: the same replies and failures have the same results.

mod dialect;
mod garbage;
mod hostile;
mod mishaps;
mod parameters;
mod replies;
mod server;
mod third_party;

use std::io::Write;
use std::time::Duration;

use configuration::models;
use configuration::{Paths, TextFile};
use contract::model::{FailureKind, ItemMeta, ModelItem, Streaming};
use contract::settings::ModelSettings;
use contract::{CallId, Json};
use flate2::Compression;
use flate2::write::GzEncoder;
use model_gateway::adapter::ProviderProtocol;
use model_gateway::failure::CallFailure;
use model_gateway::provider::{ProviderRequest, Providers};
use model_gateway::reply::{Delta, ModelReply};
use model_gateway::{Clock, SystemClock};
use serde_json::{Map, json};
use tokio::sync::mpsc;

use server::{Response, Server};

/// Timeout for silence of a provider, in seconds.
const IDLE: u64 = 1;

fn item(streamed: bool) -> ModelItem {
    let meta = ItemMeta {
        v: 1,
        slot: 1,
        turn: 1,
        step: 1,
        call: CallId::model(1, 1),
        attempt: 1,
        deadline: SystemClock.now().after(Duration::from_mins(1)),
        agent: "a".to_owned(),
    };
    ModelItem {
        signal: contract::model::SignalForm::Text,
        opened_by: String::new(),
        response_format: None,
        meta,
        model: "m/up-1".to_owned(),
        messages: vec![Json::of(&json!({"role": "user", "content": "hi"}))],
        after: None,
        tools: vec![],
        parallel_tool_calls: true,
        parameters: Map::new(),
        streaming: Streaming { enabled: streamed, connect: 5, first_byte: IDLE, idle: IDLE, ..Streaming::default() },
    }
}

fn config_name(protocol: ProviderProtocol) -> &'static str {
    match protocol {
        ProviderProtocol::OpenaiChat => "openai_chat",
        ProviderProtocol::OpenaiResponses => "openai_responses",
        ProviderProtocol::Anthropic => "anthropic",
        ProviderProtocol::Gemini => "gemini",
    }
}

/// Calls a provider with this response. Returns the reply, complete or not, and how the call ended.
async fn call(protocol: ProviderProtocol, streamed: bool, answer: Response) -> (ModelReply, Result<(), CallFailure>) {
    let server = Server::start(vec![answer]).await.unwrap();
    let called = call_at(protocol, &server.url(), item(streamed)).await;
    // A call may have timed out before the server has read its request.
    let may_be_unread = matches!(&called.1, Err(failure) if failure.kind == FailureKind::TimedOut);
    let requests = server.requests().len();
    assert!(requests == 1 || requests == 0 && may_be_unread, "one request for one call, not {requests}");
    called
}

/// Calls a running provider as [`call`] does.
async fn call_at(protocol: ProviderProtocol, url: &str, item: ModelItem) -> (ModelReply, Result<(), CallFailure>) {
    let text = format!("providers: {{m: {{kind: {}, base_url: \"{url}\"}}}}", config_name(protocol));
    let file = TextFile { origin: "models.yaml".to_owned(), text };
    let providers = Providers::new(models::parse(&file).unwrap(), &Paths::default()).unwrap();
    let provider = providers.find_routes(&item.model).unwrap().routes.remove(0).client;
    let (send, mut deltas) = mpsc::channel::<Vec<Delta>>(64);
    let settings = ModelSettings { reasoning: true, ..ModelSettings::default() };
    let request = ProviderRequest {
        item: &item,
        parts: &[],
        upstream: "up-1",
        provider: "m",
        settings: &settings,
        traceparent: None,
    };
    let call = async {
        let send = send;
        provider.call(&request, &send, &SystemClock).await
    };
    let collect = async move {
        let mut reply = ModelReply::default();
        while let Some(more) = deltas.recv().await {
            for delta in more {
                if let Err(failure) = reply.add(&delta) {
                    return (reply, Err(failure));
                }
            }
        }
        (reply, Ok(()))
    };
    let (ended, (reply, added)) = tokio::join!(call, collect);
    (reply, added.and(ended))
}

/// Calls a provider whose stream must be a complete reply.
async fn reply(protocol: ProviderProtocol, answer: Response) -> ModelReply {
    let (reply, ended) = call(protocol, true, answer).await;
    ended.unwrap_or_else(|failure| panic!("{protocol:?}: {:?} {failure}", failure.kind));
    reply
}

/// Calls a provider whose stream must fail.
async fn failure(protocol: ProviderProtocol, answer: Response) -> CallFailure {
    let (reply, ended) = call(protocol, true, answer).await;
    ended.map(|()| panic!("{protocol:?}: a reply: {reply:?}")).unwrap_err()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[allow(clippy::print_stderr, reason = "the figures of a long run")]
fn figures(line: &str) {
    eprintln!("{line}");
}
