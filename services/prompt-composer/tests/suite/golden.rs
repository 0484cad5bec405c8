//! Complete composed prompts of the shipped agents. `UPDATE_GOLDEN=1` writes them again.

use std::path::Path;

use contract::Json;
use contract::compose::{ComposeReply, ComposeRequest};
use contract::ids::{AgentId, TenantId, ToolName};
use contract::tool::ToolSpec;
use prompt_composer::{Catalog, ComposerConfig};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn tool(name: &str, description: &str, instructions: Option<&str>) -> ToolSpec {
    ToolSpec {
        name: ToolName::new(name).unwrap(),
        description: description.to_owned(),
        parameters: Json::parse(r#"{"type":"object"}"#).unwrap(),
        effect: contract::tool::EffectClass::Pure,
        approval: contract::tool::ApprovalPolicy::Never,
        timeout_ms: None,
        max_output: None,
        instructions: instructions.map(str::to_owned),
        version: String::new(),
    }
}

fn tools() -> Vec<ToolSpec> {
    vec![
        tool("read_file", "Reads a file.\nMore of it.", Some("Give `offset` for long files; {{{agent_name}}} stays.")),
        tool("list_files", "Lists files.", None),
        tool("rm", "Not permitted to anybody here.", Some("Never seen.")),
    ]
}

fn request(agent: &str, model: &str) -> ComposeRequest {
    ComposeRequest {
        agent: Some(AgentId::new(agent).unwrap()),
        model: Some(model.to_owned()),
        tools: tools(),
        ..ComposeRequest::new(TenantId::default())
    }
}

fn check(name: &str, request: &ComposeRequest) {
    check_in(&Path::new(ROOT).join("../../config"), name, request);
}

fn check_in(config: &Path, name: &str, request: &ComposeRequest) {
    let config = ComposerConfig {
        config_dir: Some(config.to_owned()),
        prompts_dir: Some(Path::new(ROOT).join("../../prompts")),
        ..ComposerConfig::default()
    };
    let ComposeReply::Composed(composed) = Catalog::read(&config).unwrap().compose(request) else { panic!("refused") };
    assert_eq!(composed.warnings, Vec::<String>::new(), "{name}");
    let path = Path::new(ROOT).join("tests/golden").join(format!("{name}.md"));
    let text = format!("{}\n", composed.prompt);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    } else {
        let expect = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, expect, "{name}: UPDATE_GOLDEN=1 writes {} anew", path.display());
    }
}

#[test]
fn shipped_agents_have_their_golden_prompts() {
    for agent in ["alice", "patricia", "tessa", "eamonn", "debbie"] {
        check(agent, &request(agent, "rehearsal"));
    }
}

#[test]
fn model_with_single_tool_calls_has_its_golden_prompt() {
    check("alice.single", &request("a", "ollama/some-model"));
}

#[test]
fn model_with_structured_output_has_its_golden_prompt() {
    let dir = tempfile::tempdir().unwrap();
    let models = "providers: {p: {kind: scripted, script: s}}\nmodels: {m: {provider: p, structured_output: true, multi_tool: true}}";
    std::fs::write(dir.path().join("models.yaml"), models).unwrap();
    check_in(dir.path(), "alice.structured", &request("a", "m"));
    check_in(dir.path(), "eamonn.structured", &request("e", "m"));
}

#[test]
fn request_without_tools_has_its_golden_prompt() {
    check("alice.no-tools", &ComposeRequest { include_tools: false, ..request("a", "rehearsal") });
}

#[test]
fn request_without_shared_parts_has_its_golden_prompt() {
    check("alice.no-shared", &ComposeRequest { include_shared: false, ..request("a", "rehearsal") });
}
