//! Rules of composed prompts: look-up of files, selection of variants, parts that can be left out, and isolation of
//! requests.

use crate::world::{World, features, request};
use configuration::Paths;
use contract::compose::{ComposeReply, ComposeRequest};
use contract::tool::ToolSpec;
use prompt_composer::Catalog;
use prompt_composer::library::{Library, PromptVariant};

fn tool(name: &str, instructions: Option<&str>) -> ToolSpec {
    serde_json::from_value(serde_json::json!({
        "name": name, "description": "Does it.\nMore.", "parameters": {}, "effect": "pure", "approval": "never",
        "instructions": instructions, "version": "1"
    }))
    .unwrap()
}

fn headings(prompt: &str) -> Vec<&str> {
    prompt.lines().filter_map(|line| line.strip_prefix("## ")).collect()
}

#[test]
fn tools_and_their_guidelines_are_before_the_output_format() {
    let world = World::new();
    world.write("mine/shared/tool_guidelines.md", "guidelines");
    let tools = vec![
        tool("two", Some("Use {{{agent_name}}}.")),
        tool("one", None),
        tool("rm", Some("Never.")),
        tool("one", None),
    ];
    let compose_request = ComposeRequest { tools, ..request(Some("x"), Some("p/any")) };
    let prompt = world.composed(&compose_request).prompt;
    assert!(
        prompt.ends_with(
            "## MAILBOX PROTOCOL\n\nmailbox\n\n\
             ## TOOL GUIDELINES INSTRUCTIONS\n\nguidelines\n\n\
             ## AVAILABLE TOOLS\n\n- `one`: Does it.\n- `two`: Does it.\n\n### two\n\nUse {{{agent_name}}}.\n\n\
             ## OUTPUT FORMAT INSTRUCTIONS\n\noutput"
        ),
        "{prompt}"
    );
    // One blank line between any two parts.
    assert!(!prompt.contains("\n\n\n"), "{prompt}");

    let without = world.composed(&ComposeRequest { include_tools: false, ..compose_request.clone() }).prompt;
    assert_eq!(
        headings(&without),
        [
            "CORE INSTRUCTIONS",
            "ZOO INSTRUCTIONS",
            "CONTINUATION PROTOCOL",
            "MAILBOX PROTOCOL",
            "OUTPUT FORMAT INSTRUCTIONS"
        ]
    );
    let alone = world.composed(&ComposeRequest { include_shared: false, ..compose_request.clone() });
    assert_eq!(headings(&alone.prompt), ["AVAILABLE TOOLS"]);
    assert!(alone.prompt.starts_with("I am Xaver"));
    let bare = world.composed(&ComposeRequest { include_shared: false, include_tools: false, ..compose_request });
    assert_eq!((headings(&bare.prompt), bare.components.len()), (Vec::new(), 1));
}

#[test]
fn part_that_is_empty_is_left_out_with_its_heading() {
    let world = World::new();
    world.write("mine/shared/zoo.md", " \n\n");
    world.write("mine/agents/x.md", "");
    let composed = world.composed(&request(Some("x"), Some("big")));
    assert!(
        composed.prompt.starts_with("## CORE INSTRUCTIONS\n\ncore\n\n## CONTINUATION PROTOCOL"),
        "{}",
        composed.prompt
    );
    assert_eq!(composed.warnings, ["agents/x.md is empty, and left out", "shared/zoo.md is empty, and left out"]);
}

#[test]
fn part_in_several_directories_first_one_counts_and_default_is_last() {
    let dir = tempfile::tempdir().unwrap();
    let roots = ["configured", "project"].map(|name| dir.path().join(name));
    let paths = Paths { prompts: roots.to_vec(), ..Paths::default() };
    let file = |root: usize, name: &str| {
        let path = roots[root].join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{root} {name}")).unwrap();
    };
    let found = |dir: &str, name: &str, variant: PromptVariant<'_>| {
        let library = Library::read(&paths).unwrap();
        let (path, file) = library.find(dir, name, variant)?;
        let shipped = file.origin.starts_with("shipped:");
        Some(if shipped { format!("shipped {path}") } else { file.text.clone() })
    };
    let plain = PromptVariant::default();
    let special = PromptVariant { flavour: Some("multi"), family: Some("fam") };
    assert_eq!(found("shared/", "core", plain).as_deref(), Some("shipped shared/core.md"));
    file(1, "shared/core.md");
    assert_eq!(found("shared/", "core", plain).as_deref(), Some("1 shared/core.md"));
    file(0, "shared/core.md");
    assert_eq!(found("shared/", "core", plain).as_deref(), Some("0 shared/core.md"));
    // An earlier directory has precedence over a better variant in a later one. Within one the most specific file
    // counts.
    file(1, "shared/core.multi.fam.md");
    assert_eq!(found("shared/", "core", special).as_deref(), Some("0 shared/core.md"));
    for better in ["core.multi", "core.fam", "core.multi.fam"] {
        file(0, &format!("shared/{better}.md"));
        assert_eq!(found("shared/", "core", special), Some(format!("0 shared/{better}.md")));
    }
    assert_eq!(found("shared/", "core", plain).as_deref(), Some("0 shared/core.md"));
    assert_eq!(found("agents/", "nobody", plain), None);
    assert_eq!(found("", "default", plain).as_deref(), Some("shipped default.md"));

    // The variant of an agent for a family, and the default of the project for an agent without a prompt.
    let world = World::new();
    world.write("mine/agents/x.fam.md", "For the family.");
    assert!(world.composed(&request(Some("x"), Some("big"))).prompt.starts_with("For the family."));
    assert!(world.composed(&request(Some("x"), Some("p/any"))).prompt.starts_with("I am Xaver"));
    world.write("mine/default.fam.md", "The family's default.");
    assert!(world.composed(&request(Some("y"), Some("big"))).prompt.starts_with("The family's default."));
}

#[test]
fn variant_follows_how_the_loop_asks_for_a_signal() {
    let world = World::new();
    world.write(
        "agents.yaml",
        "agents:\n  \
           tools: {name: A, prompt_file: x.md, tools: {allow: ['*']}}\n  \
           heard: {name: B, prompt_file: x.md, tools: {allow: ['*']}, continuation_config: {require_explicit_signal: false}}\n  \
           alone: {name: C, prompt_file: x.md}\n  \
           never: {name: D, prompt_file: x.md, tools: {allow: ['*']}, continuation_config: {enabled: false}}\n  \
           quiet: {name: E, prompt_file: x.md, tools: {allow: ['*']}, features: {disable: [continuation]}}\n",
    );
    world.write(
        "models.yaml",
        "providers: {p: {kind: scripted, script: s}}\nmodels:\n  \
           multi: {provider: p, multi_tool: true}\n  \
           form: {provider: p, multi_tool: true, structured_output: true}\n  \
           plain: {provider: p}\n  \
           hears: {provider: p, multi_tool: true, continuation_config: {require_explicit_signal: false}}\n",
    );
    for flavour in ["multi", "patterns", "structured"] {
        world.write(&format!("mine/shared/continuation_protocol.{flavour}.md"), flavour);
    }
    world.write("mine/shared/output_format.structured.md", "envelope");
    let check = |agent: &str, model: &str, signal: Option<&str>, output: &str| {
        let composed = world.composed(&request(Some(agent), Some(model)));
        let first_line_below = |heading: &str| {
            let (_, rest) = composed.prompt.split_once(&format!("## {heading}\n\n"))?;
            rest.lines().next()
        };
        assert_eq!(
            (first_line_below("CONTINUATION PROTOCOL"), first_line_below("OUTPUT FORMAT INSTRUCTIONS")),
            (signal, Some(output)),
            "{agent} {model}"
        );
        assert_eq!(composed.agent.continuation.enabled, signal.is_some(), "{agent} {model}");
        assert_eq!(composed.warnings, Vec::<String>::new());
    };
    // The loop offers the pseudo-tool, or asks for the envelope, or neither.
    check("tools", "multi", Some("multi"), "output");
    check("tools", "form", Some("structured"), "envelope");
    check("tools", "plain", Some("continuation"), "output");
    // Patterns match if no signal is required, but the signal of an envelope counts first.
    check("heard", "multi", Some("patterns"), "output");
    check("heard", "plain", Some("patterns"), "output");
    check("heard", "form", Some("structured"), "envelope");
    check("tools", "hears", Some("patterns"), "output");
    // Without tools the loop offers no pseudo-tool and asks for no envelope.
    check("alone", "multi", Some("continuation"), "output");
    check("alone", "form", Some("continuation"), "output");
    // A prompt does not explain signals if the agent does not continue by itself.
    for model in ["multi", "form", "plain"] {
        check("never", model, None, "output");
        check("quiet", model, None, "output");
    }
}

/// Features and parameters of one request are not in the reply to the next one. Each expected reply is written down,
/// and not taken from another reply, which could have the same fault.
#[test]
fn requests_in_sequence_do_not_affect_each_other() {
    let world = World::new();
    world.write("mine/shared/bee.md", "bee");
    let all_parts = ["CORE", "ZOO", "CONTINUATION", "MAILBOX", "OUTPUT"];
    let (x, y) = (request(Some("x"), Some("big")), request(Some("y"), Some("big")));
    let secret = [("what".to_owned(), "secret".to_owned()), ("agent_name".to_owned(), "Mallory".to_owned())];
    let rows: Vec<(ComposeRequest, Vec<&str>)> = vec![
        (x.clone(), all_parts.to_vec()),
        (y.clone(), vec!["CORE", "OUTPUT"]),
        (
            ComposeRequest { features: features(&["bee", "ape"], &["zoo", "mailbox"]), ..x.clone() },
            vec!["CORE", "APE", "BEE", "CONTINUATION", "OUTPUT"],
        ),
        (
            ComposeRequest { features: features(&["continuation", "bee"], &[]), ..y.clone() },
            vec!["CORE", "BEE", "CONTINUATION", "OUTPUT"],
        ),
        (ComposeRequest { features: features(&["nothing"], &["core"]), ..x.clone() }, all_parts.to_vec()),
        (ComposeRequest { parameters: secret.into(), ..x.clone() }, all_parts.to_vec()),
        (
            ComposeRequest { tools: vec![tool("one", Some("Mine."))], ..x.clone() },
            vec!["CORE", "ZOO", "CONTINUATION", "MAILBOX", "TOOL", "AVAILABLE", "OUTPUT"],
        ),
        (ComposeRequest { include_shared: false, ..x }, vec![]),
    ];
    let catalog = Catalog::read(&world.config).unwrap();
    let check = |(request, expect): &(ComposeRequest, Vec<&str>), answer: &ComposeReply| {
        let ComposeReply::Composed(composed) = answer else { panic!("{request:?}") };
        let heads = headings(&composed.prompt);
        let first: Vec<&str> = heads.iter().filter_map(|heading| heading.split(' ').next()).collect();
        assert_eq!(first, *expect, "{request:?}");
        let given = request.parameters.contains_key("agent_name");
        assert_eq!((composed.prompt.contains("secret"), composed.prompt.contains("Mallory")), (given, given));
        assert_eq!(composed.prompt.contains("Mine."), !request.tools.is_empty());
        assert_eq!(
            composed.warnings.iter().filter(|warning| warning.contains("feature")).count(),
            usize::from(request.features.enable == ["nothing"]) * 2
        );
    };
    for first in &rows {
        for second in &rows {
            catalog.compose(&first.0);
            check(second, &catalog.compose(&second.0));
            let bytes = |request: &ComposeRequest| serde_json::to_vec(request).unwrap().into();
            catalog.compose_bytes(&bytes(&first.0), None).unwrap();
            check(second, &serde_json::from_slice(&catalog.compose_bytes(&bytes(&second.0), None).unwrap()).unwrap());
        }
    }
}
