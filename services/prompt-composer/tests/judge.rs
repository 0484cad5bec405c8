//! The model that is asked where nothing else decides: it must exist, and somebody must ask it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod world;

use contract::ErrorCode;
use contract::compose::ComposeRequest;
use world::{World, request};

const MODELS: &str = "
providers:
  p: {kind: scripted, script: s.yaml}
models:
  big: {provider: p}
  small: {provider: p}
";

fn world(continuation: &str) -> World {
    let world = World::new();
    let agents = "agents: {x: {name: Xaver, prompt_file: x.md, continuation_config: {CONTINUATION}}}";
    world.write("agents.yaml", &agents.replace("CONTINUATION", continuation));
    world.write("models.yaml", MODELS);
    world
}

fn asked(judge: Option<&str>) -> ComposeRequest {
    ComposeRequest { judge: judge.map(str::to_owned), ..request(Some("x"), Some("big")) }
}

#[test]
fn judge_of_an_agent_or_a_session_that_is_no_model_is_refused() {
    let world_of_agent = world("require_explicit_signal: false, judge: smal");
    let (code, why) = world_of_agent.refused(&asked(None));
    assert_eq!(code, ErrorCode::UnknownModel);
    assert!(why.starts_with("continuation_config.judge: ") && why.contains("smal"), "{why}");
    let (code, _) = world("require_explicit_signal: false").refused(&asked(Some("nobody")));
    assert_eq!(code, ErrorCode::UnknownModel);
    // What the session says goes over it; the empty name takes it off.
    for judge in ["small", "p/anything", ""] {
        assert_eq!(world_of_agent.composed(&asked(Some(judge))).warnings, Vec::<String>::new(), "{judge}");
    }
}

#[test]
fn judge_that_nobody_asks_is_told() {
    let warnings = world("judge: small").composed(&asked(None)).warnings;
    assert!(warnings.iter().any(|why| why.starts_with("continuation_config.judge is never asked")), "{warnings:?}");
}
