//! `ai_config`: the session has precedence over its agent, and the agent over its model.

use crate::world::{World, request};
use contract::compose::ComposeRequest;
use contract::tool::ToolSpec;
use contract::{AiConfig, ErrorCode};
use serde_json::{Value, json};

const AGENTS: &str = "
default_agent: x
agents:
  x: {name: Xaver the Example, prompt_file: x.md, tools: {allow: ['*']}, ai_config: AGENT}
";
const MODELS: &str = "
providers:
  p: {kind: scripted, script: s.yaml}
models:
  big: {provider: p, multi_tool: true, ai_config: MODEL}
";

/// A world whose model and agent have these layers.
fn world(model: &str, agent: &str) -> World {
    let world = World::new();
    world.write("agents.yaml", &AGENTS.replace("AGENT", agent));
    world.write("models.yaml", &MODELS.replace("MODEL", model));
    world
}

fn tool(name: &str) -> ToolSpec {
    let spec = json!({"name": name, "description": "Does it.", "parameters": {}, "effect": "pure", "approval": "never",
        "version": "1"});
    serde_json::from_value(spec).unwrap()
}

fn compose_request(session: Value) -> ComposeRequest {
    let ai_config: AiConfig = serde_json::from_value(session).unwrap();
    ComposeRequest { ai_config, tools: vec![tool("look"), tool("write")], ..request(Some("x"), Some("big")) }
}

#[test]
fn prompt_of_a_session_replaces_that_of_its_agent_and_its_model() {
    let (of_model, of_agent) = ("{system_prompt: M, tool_preamble: MT}", "{system_prompt: 'A {{{what}}}'}");
    let none = json!({});
    let begins = |world: &World, session: &Value| {
        let prompt = world.composed(&compose_request(session.clone())).prompt;
        prompt.lines().next().unwrap().to_owned()
    };
    assert_eq!(begins(&world("{}", "{}"), &none), "I am Xaver the Example {{{agent_id}}}.");
    assert_eq!(begins(&world(of_model, "{}"), &none), "M");
    assert_eq!(begins(&world(of_model, of_agent), &none), "A {{{agent_id}}}", "values are not read again");
    assert_eq!(
        begins(&world(of_model, of_agent), &json!({"system_prompt": "S {{{agent_name}}}"})),
        "S Xaver the Example"
    );
    // Shared parts follow the prompt of any layer.
    let whole = world(of_model, of_agent).composed(&compose_request(json!({"system_prompt": "S"}))).prompt;
    assert!(
        whole.contains("## CORE INSTRUCTIONS") && whole.contains("## AVAILABLE TOOLS\n\nMT\n\n- `look`"),
        "{whole}"
    );
}

#[test]
fn values_and_parameters_of_layers_are_merged_one_by_one() {
    let world = world(
        "{prompt_parameters: {a: m, b: m}, parameters: {temperature: 1, seed: 7}, tool_choice: [required]}",
        "{prompt_parameters: {b: a, c: a}, parameters: {temperature: 0.5}}",
    );
    let session = json!({"system_prompt": "{{{a}}} {{{b}}} {{{c}}}", "prompt_parameters": {"c": "s"},
        "parameters": {"top_p": 0.9}});
    let composed = world.composed(&compose_request(session));
    assert!(composed.prompt.starts_with("m a s\n"), "{}", composed.prompt);
    let requests = composed.requests().unwrap();
    assert_eq!(Value::Object(requests.parameters), json!({"temperature": 0.5, "seed": 7, "top_p": 0.9}));
    assert_eq!(requests.tool_choice, [json!("required")]);
}

#[test]
fn streaming_of_layers_is_merged_one_by_one() {
    let world = world("{streaming: {enabled: false, idle: 60}}", "{streaming: {idle: 90, chunk_ms: 0}}");
    let composed = world.composed(&compose_request(json!({})));
    let merged = json!({"enabled": false, "chunk_ms": 0, "idle": 90});
    assert_eq!(serde_json::to_value(composed.requests().unwrap().streaming).unwrap(), merged);
    let reply = serde_json::to_value(&composed).unwrap();
    let apart = (&reply["streaming"], &reply["ai_config"]);
    assert_eq!(apart, (&merged, &json!({})), "orchestrators before fold 13 refuse it in ai_config");
}

#[test]
fn tools_and_shared_parts_excluded_by_a_layer_are_left_out() {
    let headings = |world: &World, session: Value| {
        let prompt = world.composed(&compose_request(session)).prompt;
        let headings = prompt.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned);
        headings.collect::<Vec<_>>()
    };
    let without_tools = world("{include_tools: false}", "{}");
    assert!(!headings(&without_tools, json!({})).contains(&"AVAILABLE TOOLS".to_owned()));
    assert!(headings(&without_tools, json!({"include_tools": true})).contains(&"AVAILABLE TOOLS".to_owned()));
    assert_eq!(headings(&world("{}", "{include_shared: false}"), json!({})), ["AVAILABLE TOOLS"]);
}

#[test]
fn tools_excluded_by_a_session_are_not_described() {
    let world = world("{}", "{}");
    let described = |only: Option<&[&str]>| {
        let only_tools = only.map(|names| names.iter().map(ToString::to_string).collect());
        let composed = world.composed(&ComposeRequest { only_tools, ..compose_request(json!({})) });
        ["look", "write"].map(|name| composed.prompt.contains(&format!("- `{name}`")))
    };
    assert_eq!(described(None), [true, true]);
    assert_eq!(described(Some(&["look"])), [true, false]);
    assert_eq!(described(Some(&[])), [false, false]);
}

#[test]
fn layer_of_a_file_invalid_is_refused_with_its_position() {
    for (model, agent, expected) in [
        ("{}", "{tool_choice: [any]}", "agents.yaml:4"),
        ("{tool_choice: [any]}", "{}", "models.yaml:5"),
        ("{}", "{system_promt: x}", "system_promt"),
        ("{streaming: {idle: 0}}", "{}", "ai_config.streaming.idle must be 1 to 3600 seconds, got 0"),
    ] {
        let world = world(model, agent);
        let expect_refusal = prompt_composer::Catalog::read(&world.config).err().unwrap().to_string();
        assert!(expect_refusal.contains(expected), "{expect_refusal}");
    }
}

#[test]
fn layer_of_a_session_invalid_is_refused() {
    let (code, why) = world("{}", "{}").expect_refusal(&compose_request(json!({"tool_choice": ["any"]})));
    assert_eq!(code, ErrorCode::BadRequest);
    assert!(why.starts_with("ai_config.tool_choice[0] must be auto, none, required"), "{why}");
}

#[test]
fn agent_without_prompt_file_has_the_file_of_its_key() {
    let world = World::new();
    world.write("agents.yaml", "agents:\n  x: {name: X}\n  z: {name: Z, prompt_file: agent_z.prompt.md}\n");
    world.write("mine/agents/agent_z.prompt.md", "I am dotted.");
    for (agent, begins) in [("x", "I am X"), ("z", "I am dotted.")] {
        let prompt = world.composed(&request(Some(agent), Some("big"))).prompt;
        assert!(prompt.starts_with(begins), "{prompt}");
    }
}

#[test]
fn prompt_expanded_by_placeholders_over_limit_is_refused_early() {
    let world = world("{}", "{}");
    let session = json!({"system_prompt": "{{{a}}}".repeat(9_000), "prompt_parameters": {"a": "x".repeat(60_000)}});
    let (code, why) = world.expect_refusal(&compose_request(session));
    assert_eq!(code, ErrorCode::TooLarge);
    // It would have 540 MB. Substitution stops at the first value over the limit.
    let bytes: usize = why.split(' ').find_map(|word| word.parse().ok()).unwrap();
    assert!(bytes < 700_000, "{why}");
}

#[test]
fn reply_too_large_to_send_is_a_refusal() {
    let world = world("{}", "{}");
    let session = json!({"system_prompt": "{{{a}}}".repeat(4), "prompt_parameters": {"a": "\u{1}".repeat(60_000)}});
    let request = serde_json::to_vec(&compose_request(session)).unwrap();
    let catalog = prompt_composer::Catalog::read(&world.config).unwrap();
    let answer = catalog.compose_bytes(&request.into(), None).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["refused"]["code"], "too_large", "{}", answer.to_string().len());
}

#[test]
fn fallback_has_its_own_parameters_and_not_those_of_the_model() {
    let world = world("{}", "{parameters: {seed: 7}}");
    let models = "
providers:
  p: {kind: scripted, script: s.yaml}
models:
  big: {provider: p, fallbacks: [small, p/other], ai_config: {parameters: {thinking: {type: enabled}}}}
  small:
    provider: p
    ai_config: {parameters: {reasoning_effort: low}, tool_choice: [required], streaming: {first_byte: 120}}
";
    world.write("models.yaml", models);
    let composed = world.composed(&compose_request(json!({"parameters": {"temperature": 0.5}})));
    let of = |number: usize| composed.fallbacks[number].requests.as_deref().unwrap();
    assert_eq!(
        Value::Object(of(0).parameters.clone()),
        json!({"reasoning_effort": "low", "seed": 7, "temperature": 0.5})
    );
    assert_eq!(of(0).tool_choice, [json!("required")]);
    assert_eq!((of(0).streaming.first_byte, of(1).streaming.first_byte), (Some(120), None));
    assert_eq!(Value::Object(of(1).parameters.clone()), json!({"seed": 7, "temperature": 0.5}));
    assert_eq!(composed.model.requests, None, "those of the model are the session's");
}
