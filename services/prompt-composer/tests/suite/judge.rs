//! The model that is asked where nothing else decides: it must exist, and somebody must ask it.

use crate::world::{World, request};
use contract::ErrorCode;
use contract::compose::ComposeRequest;
use prompt_composer::{Book, Config};

const AGENTS: &str = "
continuation_templates: {t: {TEMPLATE}}
tenants: {acme: {continuation_config: {TENANT}}}
agents: {x: {name: Xaver, prompt_file: x.md, continuation_config: {AGENT}}}
";
const MODELS: &str = "
providers: {p: {kind: scripted, script: s.yaml}}
models: {big: {provider: p, continuation_config: {MODEL}}, small: {provider: p}}
";

fn files(place: &str, says: &str) -> (String, String) {
    let fill = |text: &str| {
        ["TEMPLATE", "TENANT", "AGENT", "MODEL"].iter().fold(text.to_owned(), |text, name| {
            text.replace(&format!("{{{name}}}"), &format!("{{{}}}", if *name == place { says } else { "" }))
        })
    };
    (fill(AGENTS), fill(MODELS))
}

fn asked(judge: Option<&str>) -> ComposeRequest {
    ComposeRequest { judge: judge.map(str::to_owned), ..request(Some("x"), Some("big")) }
}

#[test]
fn judge_of_a_file_that_is_no_model_is_refused_with_its_place() {
    for (place, wanted) in [
        ("TEMPLATE", "agents.yaml:2:"),
        ("TENANT", "agents.yaml:3:"),
        ("AGENT", "agents.yaml:4:"),
        ("MODEL", "models.yaml:3:"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (agents, models) = files(place, "judge: smal");
        std::fs::write(dir.path().join("agents.yaml"), agents).unwrap();
        std::fs::write(dir.path().join("models.yaml"), models).unwrap();
        let refused = Book::read(&Config { config_dir: Some(dir.path().to_owned()), ..Config::default() });
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(wanted) && refused.contains("did you mean \"small\"?"), "{place}: {refused}");
    }
}

#[test]
fn judge_of_a_session_that_is_no_model_is_refused() {
    let world = World::new();
    let (agents, models) = files("AGENT", "require_explicit_signal: false, judge: small");
    world.write("agents.yaml", &agents);
    world.write("models.yaml", &models);
    let (code, why) = world.refused(&asked(Some("nobody")));
    assert_eq!((code, why.starts_with("continuation.judge: ")), (ErrorCode::UnknownModel, true), "{why}");
    for judge in [None, Some("small"), Some("p/anything"), Some("")] {
        assert_eq!(world.composed(&asked(judge)).warnings, Vec::<String>::new(), "{judge:?}");
    }
}

#[test]
fn judge_that_nobody_asks_is_told() {
    for (place, is_told) in [("AGENT", true), ("MODEL", false)] {
        let world = World::new();
        let (agents, models) = files(place, "judge: small");
        world.write("agents.yaml", &agents);
        world.write("models.yaml", &models);
        let warnings = world.composed(&asked(None)).warnings;
        let warns = warnings.iter().any(|why| why.starts_with("continuation_config.judge is never asked"));
        assert_eq!(warns, is_told, "{place}: {warnings:?}");
    }
}
