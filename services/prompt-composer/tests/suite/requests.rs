//! The composer on a bus: several replicas, and one reply to each request.

use std::time::Duration;

use bus_memory::MemoryServer;
use contract::ErrorCode;
use contract::compose::{ComposeReply, ComposeRequest};
use contract::ids::TenantId;
use contract::proposal::ModelProposal;
use prompt_composer::{Composer, ComposerConfig};

fn request(model: Option<&str>) -> ComposeRequest {
    serde_json::from_value(serde_json::json!({"tenant": TenantId::default(), "model": model})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn composer_replies_until_it_is_drained() {
    let server = MemoryServer::new();
    let asking = server.bus();
    assert!(asking.compose(&request(None)).await.is_err(), "nobody is there yet");

    let empty = tempfile::tempdir().unwrap();
    let config = ComposerConfig { config_dir: Some(empty.path().to_owned()), ..ComposerConfig::default() };
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
    assert_eq!(known.agents.iter().map(|agent| agent.id.as_str()).collect::<String>(), "adept");

    let readiness = first.readiness();
    first.drain(Duration::from_secs(1)).await;
    assert!(!readiness.is_ready());
    // A request on its way to the drained replica is lost, and its sender repeats it.
    let mut answers = 0;
    for _ in 0..3 {
        answers += usize::from(asking.compose(&request(Some("rehearsal"))).await.is_ok());
    }
    assert!(answers >= 2, "the other replica goes on");
    second.drain(Duration::from_secs(1)).await;
    assert!(asking.compose(&request(Some("rehearsal"))).await.is_err());
    assert!(asking.agents(&TenantId::default()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn model_that_nothing_names_is_the_one_that_gateways_propose() {
    let server = MemoryServer::new();
    let asking = server.bus();
    let empty = tempfile::tempdir().unwrap();
    let config = ComposerConfig { config_dir: Some(empty.path().to_owned()), ..ComposerConfig::default() };
    let composer = Composer::start(config.clone(), server.bus()).await.unwrap();
    assert!(matches!(asking.compose(&request(None)).await.unwrap(), ComposeReply::Refused { .. }), "no gateway");

    let propose = async |model: &'static str| {
        server.bus().serve_model_proposal(|| ModelProposal { model: Some(model.to_owned()) }).await.unwrap()
    };
    let until = async |model: &str| {
        for _ in 0..100 {
            if let ComposeReply::Composed(composed) = asking.compose(&request(None)).await.unwrap()
                && composed.model.id == model
            {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        unreachable!("nobody proposes {model:?} within 100 s")
    };
    let gateway = propose("rehearsal").await;
    until("rehearsal").await;
    let known = asking.agents(&TenantId::default()).await.unwrap();
    assert!(known.models.iter().any(|model| model.is_default && model.settings.id == "rehearsal"));
    // A composer that starts later asks before it serves.
    composer.drain(Duration::from_secs(1)).await;
    let composer = Composer::start(config, server.bus()).await.unwrap();
    assert!(matches!(asking.compose(&request(None)).await.unwrap(), ComposeReply::Composed(_)));
    drop(gateway);
    let _gateway = propose("gpt-4o-mini").await;
    until("gpt-4o-mini").await;
    // What the request names counts first.
    let ComposeReply::Composed(named) = asking.compose(&request(Some("rehearsal"))).await.unwrap() else {
        unreachable!("composed before")
    };
    assert_eq!(named.model.id, "rehearsal");
    composer.drain(Duration::from_secs(1)).await;
}

/// End to end: a file is written, and after a while requests get its content.
#[tokio::test(start_paused = true)]
async fn prompt_changed_is_in_later_replies_and_broken_file_is_not() {
    let server = MemoryServer::new();
    let asking = server.bus();
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("prompts/agents/alice_assistant.md", "I am the first Alice.");
    let config = ComposerConfig { config_dir: Some(dir.path().to_owned()), ..ComposerConfig::default() };
    let composer = Composer::start(config, server.bus()).await.unwrap();
    let until = async |expect: &str| {
        for _ in 0..1_000 {
            if let Ok(ComposeReply::Composed(composed)) = asking.compose(&request(Some("rehearsal"))).await
                && composed.prompt.starts_with(expect)
            {
                return;
            }
            // The clock is virtual, so that waiting costs no time.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        unreachable!("nobody says {expect:?} within 100 s")
    };
    until("I am the first Alice.").await;
    write("prompts/agents/alice_assistant.md", "I am the second Alice.");
    until("I am the second Alice.").await;

    write("agents.yaml", "agents:\n  a: {nmae: Anna}\n");
    while composer.readiness().warnings().next().is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    until("I am the second Alice.").await;
    let (_, warning) = composer.readiness().warnings().next().unwrap();
    assert!(warning.contains("agents.yaml:2:7: "), "{warning}");
    assert!(composer.readiness().is_ready(), "a warning is no failure");

    write("agents.yaml", "default_agent: a\nagents:\n  a: {name: Anna, prompt_file: anna.md}\n");
    write("prompts/agents/anna.md", "I am Anna.");
    until("I am Anna.").await;
    assert_eq!(composer.readiness().warnings().count(), 0);
    composer.drain(Duration::from_secs(1)).await;
}
