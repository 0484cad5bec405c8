//! Origins of the settings of a session: the entry whose value holds.

use std::collections::BTreeMap;

use contract::compose::{ComposeReply, ComposeRequest};
use contract::{AiConfig, TenantId};
use prompt_composer::Catalog;
use serde_json::{Value, json};

use crate::world::{World, features, request};

const AGENTS: &str = "
continuation_templates:
  chatty: {template: plain_words, max_iterations: 30, limits: {tokens: 9}}
tenants:
  acme: {continuation_config: {template: chatty, timeout: 900, limits: {tokens: null}}}
agents:
  x:
    name: Xaver
    prompt_file: x.md
    continuation_config: {max_iterations: 7, on_error: ask, patterns: [go]}
    ai_config: {parameters: {temperature: 1, seed: 7}, streaming: {idle: 60}}
";
const MODELS: &str = "
default: big
providers: {p: {kind: scripted, script: s.yaml}}
models:
  big:
    provider: p
    continuation_config: {template: chatty, retries: 1, max_iterations: 3}
    ai_config: {parameters: {top_p: 0.5}, streaming: {idle: 50, connect: 2}}
";

fn world() -> World {
    let world = World::new();
    world.write("agents.yaml", AGENTS);
    world.write("models.yaml", MODELS);
    world
}

/// Values and origins by the names of the settings. Origins are without the directory of the files.
fn explain(world: &World, request: &ComposeRequest) -> BTreeMap<String, (Value, String)> {
    let explanation = Catalog::read(&world.config).unwrap().explain(request).unwrap();
    let dir = format!("{}/", world.dir.path().display());
    let rows = explanation.settings.into_iter();
    rows.map(|row| (row.name, (row.value, row.origin.replace(&dir, "")))).collect()
}

#[test]
fn setting_has_the_origin_of_the_entry_whose_value_holds() {
    let (agent, model) = ("agent x (agents.yaml)", "model big (models.yaml)");
    let found = explain(&world(), &request(Some("x"), None));
    for (name, value, origin) in [
        ("continuation_config.max_iterations", json!(7), agent),
        ("continuation_config.on_error", json!("ask"), agent),
        ("continuation_config.continuation_patterns", json!(["go"]), agent),
        ("continuation_config.retries", json!(1), model),
        ("continuation_config.termination_patterns", json!([]), "template chatty of model big (models.yaml)"),
        ("continuation_config.limits.tokens", json!(9), "template chatty of model big (models.yaml)"),
        ("continuation_config.on_limit", json!("answer"), "built in"),
        ("continuation_config.timeout", json!(300), "built in"),
        ("ai_config.parameters.temperature", json!(1), agent),
        ("ai_config.parameters.top_p", json!(0.5), model),
        ("ai_config.streaming.idle", json!(60), agent),
        ("ai_config.streaming.connect", json!(2), model),
        ("ai_config.streaming.enabled", json!(true), "built in"),
    ] {
        assert_eq!(found.get(name), Some(&(value, origin.to_owned())), "{name}");
    }
    assert!(found.keys().all(|name| !name.contains("ends_at_once") && !name.contains("limit_action")), "{found:?}");
}

#[test]
fn setting_of_tenant_and_session_has_its_origin() {
    let ai_config: AiConfig = serde_json::from_value(json!({"parameters": {"seed": 8}})).unwrap();
    let of_acme = ComposeRequest { tenant: TenantId::new("acme").unwrap(), ai_config, ..request(Some("x"), None) };
    let found = explain(&world(), &of_acme);
    let (tenant, template) = ("tenant acme (agents.yaml)", "template chatty of tenant acme (agents.yaml)");
    for (name, value, origin) in [
        ("continuation_config.timeout", json!(900), tenant),
        ("continuation_config.limits.tokens", Value::Null, tenant),
        ("continuation_config.max_iterations", json!(30), template),
        ("continuation_config.continuation_patterns", json!([]), template),
        ("continuation_config.on_error", json!("ask"), "agent x (agents.yaml)"),
        ("ai_config.parameters.seed", json!(8), "the session"),
    ] {
        assert_eq!(found.get(name), Some(&(value, origin.to_owned())), "{name}");
    }
    let of_session = ComposeRequest { template: Some("plain_words".to_owned()), ..of_acme };
    let found = explain(&world(), &of_session);
    assert_eq!(found["continuation_config.detect_intent"].1, "template plain_words of the session");
    assert_eq!(found["continuation_config.max_iterations"].1, "agent x (agents.yaml)");
    // Without the instructions to continue, an agent does not continue.
    let silent = ComposeRequest { features: features(&[], &["continuation"]), ..of_session };
    let enabled = &explain(&world(), &silent)["continuation_config.enabled"];
    assert_eq!(*enabled, (json!(false), "the feature continuation is off".to_owned()));
}

#[test]
fn explanation_has_the_settings_of_the_composed_session() {
    let (world, request) = (world(), request(Some("x"), None));
    let catalog = Catalog::read(&world.config).unwrap();
    let explanation = catalog.explain(&request).unwrap();
    let ComposeReply::Composed(composed) = catalog.compose(&request) else { panic!("refused") };
    assert_eq!(explanation.composed, *composed);
    assert!(explanation.model.starts_with("default (") && explanation.agent.starts_with("agent x ("));
    let unknown = ComposeRequest { template: Some("nope".to_owned()), ..request };
    assert!(catalog.explain(&unknown).unwrap_err().1.contains("no template \"nope\""));
}
