//! The judge must be a model that exists, and it warns if no setting uses it.

use crate::world::{World, request};
use contract::ErrorCode;
use contract::compose::ComposeRequest;
use prompt_composer::{Catalog, ComposerConfig};

const AGENTS: &str = "
continuation_templates: {t: {TEMPLATE}}
tenants: {acme: {continuation_config: {TENANT}}}
agents: {x: {name: Xaver, prompt_file: x.md, continuation_config: {AGENT}}}
";
const MODELS: &str = "
providers: {p: {kind: scripted, script: s.yaml}}
models: {big: {provider: p, continuation_config: {MODEL}}, small: {provider: p}}
";

fn files(place: &str, field: &str) -> (String, String) {
    let fill = |text: &str| {
        ["TEMPLATE", "TENANT", "AGENT", "MODEL"].iter().fold(text.to_owned(), |text, name| {
            text.replace(&format!("{{{name}}}"), &format!("{{{}}}", if *name == place { field } else { "" }))
        })
    };
    (fill(AGENTS), fill(MODELS))
}

fn compose_request(judge: Option<&str>) -> ComposeRequest {
    ComposeRequest { judge: judge.map(str::to_owned), ..request(Some("x"), Some("big")) }
}

#[test]
fn judge_of_a_file_unknown_is_refused_with_its_position() {
    for (place, expected_position) in [
        ("TEMPLATE", "agents.yaml:2:"),
        ("TENANT", "agents.yaml:3:"),
        ("AGENT", "agents.yaml:4:"),
        ("MODEL", "models.yaml:3:"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (agents, models) = files(place, "judge: smal");
        std::fs::write(dir.path().join("agents.yaml"), agents).unwrap();
        std::fs::write(dir.path().join("models.yaml"), models).unwrap();
        let expect_refusal =
            Catalog::read(&ComposerConfig { config_dir: Some(dir.path().to_owned()), ..ComposerConfig::default() });
        let expect_refusal = expect_refusal.unwrap_err().to_string();
        assert!(
            expect_refusal.contains(expected_position) && expect_refusal.contains("did you mean \"small\"?"),
            "{place}: {expect_refusal}"
        );
    }
}

#[test]
fn judge_of_a_session_unknown_is_refused() {
    let world = World::new();
    let (agents, models) = files("AGENT", "require_explicit_signal: false, judge: small");
    world.write("agents.yaml", &agents);
    world.write("models.yaml", &models);
    let (code, why) = world.expect_refusal(&compose_request(Some("nobody")));
    assert_eq!((code, why.starts_with("continuation.judge: ")), (ErrorCode::UnknownModel, true), "{why}");
    for judge in [None, Some("small"), Some("p/anything"), Some("")] {
        assert_eq!(world.composed(&compose_request(judge)).warnings, Vec::<String>::new(), "{judge:?}");
    }
}

#[test]
fn judge_never_used_warns() {
    for (place, has_warning) in [("AGENT", true), ("MODEL", false)] {
        let world = World::new();
        let (agents, models) = files(place, "judge: small");
        world.write("agents.yaml", &agents);
        world.write("models.yaml", &models);
        let warnings = world.composed(&compose_request(None)).warnings;
        let warns = warnings.iter().any(|why| why.starts_with("continuation_config.judge is never asked"));
        assert_eq!(warns, has_warning, "{place}: {warnings:?}");
    }
}
