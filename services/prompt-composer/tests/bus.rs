//! The composer on a bus: several replicas, one answer each.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use bus::MemoryServer;
use contract::ErrorCode;
use contract::compose::{ComposeReply, ComposeRequest};
use contract::ids::TenantId;
use prompt_composer::{Composer, Config};

fn request(model: Option<&str>) -> ComposeRequest {
    serde_json::from_value(serde_json::json!({"tenant": TenantId::default(), "model": model})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn answers_until_it_is_drained() {
    let server = MemoryServer::new();
    let asking = server.bus();
    assert!(asking.compose(&request(None)).await.is_err(), "nobody is there yet");

    let empty = tempfile::tempdir().unwrap();
    let config = Config { config_dir: Some(empty.path().to_owned()), ..Config::default() };
    let first = Composer::start(config.clone(), server.bus()).await.unwrap();
    let second = Composer::start(config, server.bus()).await.unwrap();
    assert!(first.readiness().is_ready());

    let ComposeReply::Composed(composed) = asking.compose(&request(Some("rehearsal"))).await.unwrap() else {
        unreachable!("the shipped default agent takes any model")
    };
    assert_eq!((composed.agent.id.as_str(), composed.model.id.as_str()), ("a", "rehearsal"));
    assert!(matches!(
        asking.compose(&request(None)).await.unwrap(),
        ComposeReply::Refused { code: ErrorCode::UnknownModel, .. }
    ));

    let known = asking.agents(&TenantId::default()).await.unwrap();
    assert_eq!(known.iter().map(|agent| agent.id.as_str()).collect::<String>(), "adept");

    let readiness = first.readiness();
    first.drain(Duration::from_secs(1)).await;
    assert!(!readiness.is_ready());
    // A request that was on its way to the drained replica is lost; whoever asked asks again.
    let mut answers = 0;
    for _ in 0..3 {
        answers += usize::from(asking.compose(&request(Some("rehearsal"))).await.is_ok());
    }
    assert!(answers >= 2, "the other replica goes on");
    second.drain(Duration::from_secs(1)).await;
    assert!(asking.compose(&request(Some("rehearsal"))).await.is_err());
    assert!(asking.agents(&TenantId::default()).await.is_err());
}
