//! Templates of continuation settings, and settings of a tenant for all agents.

use crate::world::{World, request};
use contract::compose::{ComposeReply, ComposeRequest};
use contract::settings::{ContinuationSettings, LimitAction};
use contract::{ErrorCode, TenantId};
use prompt_composer::{Catalog, ComposerConfig};
use serde_json::json;

const AGENTS: &str = "
continuation_templates:
  careful: {confidence_min: 0.8, on_limit: ask, max_iterations: 12}
  chatty: {template: plain_words, max_iterations: 30}
tenants:
  acme: {continuation_config: {template: careful, timeout: 900}, ai_config: {parameters: {temperature: 0}}}
  quiet: {features: {disable: [continuation]}}
agents:
  x: {name: Xaver, prompt_file: x.md, continuation_config: {AGENT}}
";
const MODELS: &str = "
providers: {p: {kind: scripted, script: s.yaml}}
models: {big: {provider: p, continuation_config: {MODEL}}}
";

fn world(agent: &str, model: &str) -> World {
    let world = World::new();
    world.write("agents.yaml", &AGENTS.replace("AGENT", agent));
    world.write("models.yaml", &MODELS.replace("MODEL", model));
    world
}

fn compose_request(tenant: &str, template: Option<&str>) -> ComposeRequest {
    let tenant = TenantId::new(tenant).unwrap();
    ComposeRequest { tenant, template: template.map(str::to_owned), ..request(Some("x"), Some("big")) }
}

fn settings(world: &World, tenant: &str, template: Option<&str>) -> ContinuationSettings {
    world.composed(&compose_request(tenant, template)).agent.continuation
}

#[test]
fn template_named_by_several_layers_session_tenant_agent_model_have_precedence() {
    let steps = |agent: &str, model: &str, tenant: &str, session: Option<&str>| {
        settings(&world(agent, model), tenant, session).max_iterations
    };
    assert_eq!(steps("", "", "other", None), 5, "what is built in");
    assert_eq!(steps("", "template: chatty", "other", None), 30, "the model's");
    assert_eq!(steps("template: careful", "template: chatty", "other", None), 12, "the agent's");
    assert_eq!(steps("template: chatty", "", "acme", None), 12, "the tenant's");
    assert_eq!(steps("template: chatty", "", "acme", Some("chatty")), 30, "the session's");
    assert_eq!(steps("template: chatty", "", "acme", Some("")), 12, "an empty name says nothing");
    // A template of session or tenant has precedence over the fields of agent and model.
    assert_eq!(steps("max_iterations: 7", "", "other", Some("chatty")), 30);
    assert_eq!(steps("max_iterations: 7", "", "acme", None), 12);
    // A template of agent or model is a part of its layer, below the fields beside it.
    assert_eq!(steps("template: chatty, max_iterations: 7", "", "other", None), 7);
    assert_eq!(steps("template: careful", "max_iterations: 8", "other", None), 12);
    assert_eq!(steps("max_iterations: 7", "template: chatty", "other", None), 7);
}

#[test]
fn template_of_a_session_leaves_what_it_does_not_set() {
    let agent = "require_explicit_signal: false, patterns: [go], timeout: 60, confidence_min: 0.5";
    let of_session = |tenant: &str| settings(&world(agent, ""), tenant, Some("careful"));
    let careful = of_session("other");
    assert_eq!((careful.max_iterations, careful.confidence_min), (12, Some(0.8)), "the template's");
    assert_eq!((careful.timeout, careful.require_explicit_signal), (60, false), "the agent's");
    assert_eq!(careful.continuation_patterns, ["go"], "the agent's");
    // Fields of the tenant go over any template. Its own template gives way to that of the session.
    assert_eq!(of_session("acme").timeout, 900);
    let chatty = settings(&world(agent, ""), "acme", Some("chatty"));
    assert_eq!((chatty.max_iterations, chatty.confidence_min, chatty.on_limit), (30, Some(0.5), LimitAction::Answer));
}

#[test]
fn model_over_agent_has_precedence_over_the_agent_and_below_session_and_tenant() {
    let over = |agent: &str, model: &str, tenant: &str, session: Option<&str>| {
        let world = world(agent, model);
        world.write("models.yaml", &MODELS.replace("MODEL", model).replace("p, cont", "p, over_agent: true, cont"));
        settings(&world, tenant, session)
    };
    let agent = "template: careful, max_iterations: 7, timeout: 60, patterns: [go]";
    let settings = over(agent, "template: chatty, timeout: 90", "other", None);
    assert_eq!((settings.max_iterations, settings.timeout), (30, 90), "the model's template, and its field");
    assert_eq!((settings.continuation_patterns.len(), settings.confidence_min), (0, Some(0.8)), "the agent's template");
    assert_eq!(over(agent, "max_iterations: 3", "acme", None).max_iterations, 12, "the tenant's template");
    assert_eq!(over(agent, "timeout: 90", "acme", Some("chatty")).timeout, 900, "the tenant's field");
    assert_eq!(over(agent, "max_iterations: 3", "other", Some("chatty")).max_iterations, 30, "the session's template");
}

#[test]
fn shipped_small_model_ends_turns_by_words_with_every_shipped_agent() {
    let catalog = Catalog::read(&ComposerConfig::default()).unwrap();
    let plain = reply::template("plain_words").unwrap();
    for agent in ["a", "d", "e", "p", "t"] {
        let of = |model: &str, template: Option<&str>| {
            let request = ComposeRequest { template: template.map(str::to_owned), ..request(Some(agent), Some(model)) };
            let ComposeReply::Composed(composed) = catalog.compose(&request) else { panic!("{agent}") };
            composed.agent.continuation
        };
        for (settings, repetition) in [(of("local", None), 2), (of("gpt-4o", Some("plain_words")), 3)] {
            assert!(!settings.require_explicit_signal && settings.detect_intent, "{agent}: {settings:?}");
            assert_eq!(settings.continuation_patterns, plain.continuation_patterns, "{agent}");
            assert_eq!(settings.termination_patterns, plain.termination_patterns, "{agent}");
            assert_eq!(settings.limits.repetition, repetition, "{agent}");
        }
        let steps = |settings: ContinuationSettings| (settings.max_iterations, settings.timeout);
        assert_eq!(steps(of("local", None)), steps(of("gpt-4o", None)), "{agent}: the agent's");
    }
}

#[test]
fn template_can_extend_a_built_in_one() {
    let chatty = settings(&world("template: chatty", ""), "other", None);
    assert!(!chatty.require_explicit_signal && chatty.continuation_patterns.is_empty(), "as plain_words has it");
    let careful = settings(&world("template: careful", ""), "other", None);
    assert!(careful.require_explicit_signal);
    assert_eq!((careful.confidence_min, careful.on_limit), (Some(0.8), LimitAction::Ask));
}

#[test]
fn tenant_settings_replace_the_agents_for_this_tenant_only() {
    let world = world("timeout: 60", "");
    assert_eq!(settings(&world, "acme", None).timeout, 900);
    assert_eq!(settings(&world, "other", None).timeout, 60);
    let parameters = |tenant: &str| world.composed(&compose_request(tenant, None)).ai_config.unwrap().parameters;
    assert_eq!((parameters("acme").get("temperature"), parameters("other").is_empty()), (Some(&json!(0)), true));
    assert!(settings(&world, "other", None).enabled && !settings(&world, "quiet", None).enabled);
}

#[test]
fn template_of_a_session_unknown_is_refused_with_the_known_ones() {
    let (code, why) = world("", "").expect_refusal(&compose_request("other", Some("carefull")));
    assert_eq!(code, ErrorCode::BadRequest);
    assert_eq!(
        why,
        "continuation.template: there is no template \"carefull\" (did you mean \"careful\"?); there are careful, \
         chatty, multi_step_tool_work, plain_words"
    );
}

#[test]
fn errors_name_file_line_and_column() {
    let read = |agents: &str, models: &str| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("agents.yaml"), agents).unwrap();
        std::fs::write(dir.path().join("models.yaml"), models).unwrap();
        let config = ComposerConfig { config_dir: Some(dir.path().to_owned()), ..ComposerConfig::default() };
        let expect_refusal = Catalog::read(&config).unwrap_err().to_string();
        expect_refusal.replace(&format!("{}/", dir.path().display()), "")
    };
    let models = MODELS.replace("MODEL", "");
    let agents = AGENTS.replace("AGENT", "");
    for (agents, models, expected_position) in [
        (agents.replace("plain_words", "plain_word"), models.clone(), ["agents.yaml:4:", "no template \"plain_word\""]),
        (agents.replace("  careful:", "  plain_words:"), models.clone(), ["agents.yaml:3:", "is built in"]),
        (agents.replace("  careful:", "  Careful Ones:"), models.clone(), ["agents.yaml:3:", "the name of a template"]),
        (
            agents.replace("template: careful", "template: car"),
            models.clone(),
            ["agents.yaml:6:", "no template \"car\""],
        ),
        (agents.replace("  acme:", "  a.b:"), models.clone(), ["agents.yaml:6:", "tenant"]),
        (AGENTS.replace("AGENT", "template: cheeky"), models, ["agents.yaml:9:", "no template \"cheeky\""]),
        (agents, MODELS.replace("MODEL", "template: chaty"), ["models.yaml:3:", "did you mean \"chatty\"?"]),
    ] {
        let expect_refusal = read(&agents, &models);
        assert!(
            expected_position.iter().all(|part| expect_refusal.contains(part)),
            "{expected_position:?}: {expect_refusal}"
        );
    }
}
