//! What is too much is refused at the door; what was taken in goes on.

use contract::ids::CallAttempt;
use contract::streams::Stream;
use contract::subject::{self, SessionKey};
use contract::{CallId, TenantId};
use proto::{ControlRequest, QueuesRequest, SendRequest, StartRequest};
use serde_json::json;

use crate::support::{World, code_of, config, eventually, key};

fn call(session: &str) -> subject::Subject {
    subject::model_item(&key(session), &CallAttempt { call: CallId::model(1, 1), attempt: 1 })
}

fn start() -> StartRequest {
    StartRequest {
        session_id: "one".to_owned(),
        command_id: "begin".to_owned(),
        prompt: "go".to_owned(),
        interactive: true,
        ..StartRequest::default()
    }
}

#[tokio::test]
async fn a_tenant_that_floods_the_queue_is_refused_before_others_are() {
    for (floods, refused) in [("acme", false), ("default", true)] {
        let world = World::with(edge::Config { waiting_calls_max: 5, ..config() }).await;
        for session in ["a", "b", "c", "d"] {
            let key = SessionKey { tenant: TenantId::new(floods).unwrap(), ..key(session) };
            let call = CallAttempt { call: CallId::model(1, 1), attempt: 1 };
            let item = subject::model_item(&key, &call);
            world.bus.transport().append(&item, false, Vec::new(), "{}".into()).await.unwrap();
        }
        let mut client = world.grpc().await.0;
        let queues = client.queues(QueuesRequest {}).await.unwrap().into_inner();
        assert_eq!((queues.waiting_calls_max, queues.tenant_waiting_calls_max), (5, 4));
        match client.start(start()).await {
            Ok(_) => assert!(!refused),
            Err(status) => {
                assert!(refused && code_of(&status) == "overloaded", "{floods}: {status}");
                assert!(status.message().contains("4 model calls of tenant default"), "{status}");
            }
        }
    }
}

#[tokio::test]
async fn turns_are_refused_while_too_many_calls_wait() {
    let world = World::with(edge::Config { waiting_calls_max: 2, ..config() }).await;
    let mut client = world.grpc().await.0;
    // Model calls that no gateway takes.
    for session in ["a", "b"] {
        world.bus.transport().append(&call(session), false, Vec::new(), "{}".into()).await.unwrap();
    }
    let refused = client.start(start()).await.unwrap_err();
    assert_eq!(code_of(&refused), "overloaded");
    assert_eq!(refused.metadata().get("ailoop-retry-after-ms").unwrap(), "2000");

    let queues = client.queues(QueuesRequest {}).await.unwrap().into_inner();
    let model = queues.queues.iter().find(|queue| queue.queue == "model").unwrap();
    assert_eq!((model.waiting, model.held, queues.waiting_calls_max), (2, 0, 2));
    let told = world.ws().await.ok("fleet.queues", json!({})).await;
    assert_eq!(told["queues"][2], json!({"queue": "model", "waiting": 2, "held": 0}));

    world.bus.transport().purge(Stream::Model, &call("a")).await.unwrap();
    eventually("there is room", async || world.grpc().await.0.start(start()).await.is_ok()).await;
    world.bus.transport().append(&call("a"), false, Vec::new(), "{}".into()).await.unwrap();
    let send = || SendRequest { session_id: "one".to_owned(), text: "more".to_owned(), ..SendRequest::default() };
    eventually("there is none", async || {
        world.grpc().await.0.send(send()).await.is_err_and(|status| code_of(&status) == "overloaded")
    })
    .await;
    // Whoever wants to stop can.
    client.stop(ControlRequest { session_id: "one".to_owned(), ..ControlRequest::default() }).await.unwrap();
}
