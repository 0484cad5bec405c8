//! Replies of the composer: order of the parts, features, variants, refusals.

use std::collections::BTreeMap;
use std::path::Path;

use crate::world::{MODELS, World, features, request};
use bytes::Bytes;
use contract::ErrorCode;
use contract::compose::{ComposeReply, ComposeRequest};
use contract::ids::{AgentId, TenantId};
use prompt_composer::{Catalog, ComposerConfig};
use tempfile::TempDir;

#[test]
fn parts_are_in_order_and_each_is_there_once() {
    let mut compose_request = request(None, Some("p/any"));
    compose_request.features = features(&["ape", "zoo", "ape_protocol", "output_format"], &[]);
    let composed = World::new().composed(&compose_request);
    assert_eq!(
        composed.prompt,
        "I am Xaver the Example {{{agent_id}}}.\n\n\
         ## CORE INSTRUCTIONS\n\ncore\n\n\
         ## APE INSTRUCTIONS\n\nape\n\n\
         ## ZOO INSTRUCTIONS\n\nzoo\n\n\
         ## CONTINUATION PROTOCOL\n\ncontinuation\n\n\
         ## MAILBOX PROTOCOL\n\nmailbox\n\n\
         ## OUTPUT FORMAT INSTRUCTIONS\n\noutput"
    );
    assert_eq!(composed.warnings, Vec::<String>::new());
    let names: Vec<&str> = composed.components.iter().map(|component| component.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "agents/x.md",
            "shared/core.md",
            "shared/ape_protocol.md",
            "shared/zoo.md",
            "shared/continuation_protocol.md",
            "shared/mailbox_protocol.md",
            "shared/output_format.md"
        ]
    );
    let texts: Vec<&str> =
        composed.components.iter().map(|part| &composed.prompt[part.start..part.start + part.bytes]).collect();
    assert_eq!(
        texts,
        ["I am Xaver the Example {{{agent_id}}}.", "core", "ape", "zoo", "continuation", "mailbox", "output"]
    );
    assert_eq!(composed.fingerprint.len(), 64);
    assert_eq!(composed.model.id, "p/any");
    assert!(!composed.model.multi_tool);
}

#[test]
fn session_switches_features_and_unknown_ones_warn() {
    let world = World::new();
    let before = world.composed(&request(Some("x"), Some("big")));
    let mut compose_request = request(Some("xaver"), Some("big"));
    compose_request.features = features(&["../../etc/passwd", "nothing"], &["core", "zoo", "continuation", "mailbox"]);
    let composed = world.composed(&compose_request);
    assert_eq!(
        composed.prompt,
        "I am Xaver the Example {{{agent_id}}}.\n\n## CORE INSTRUCTIONS\n\ncore\n\n\
         ## OUTPUT FORMAT INSTRUCTIONS\n\noutput"
    );
    assert_eq!(
        composed.warnings,
        [
            "there is no feature \"../../etc/passwd\"",
            "there is no feature \"nothing\"",
            "the feature core cannot be switched off"
        ]
    );
    assert_eq!(world.composed(&request(Some("x"), Some("big"))), before);
}

#[test]
fn feature_named_by_command_unknown_is_refused() {
    let world = World::new();
    let compose_request = |named| {
        let named_features = named;
        ComposeRequest { features: features(&["nothing"], &[]), named_features, ..request(Some("x"), Some("big")) }
    };
    // An unknown feature of an older command only warns: its file may have been removed since.
    let before = world.composed(&compose_request(features(&[], &[])));
    assert_eq!(before.warnings, ["there is no feature \"nothing\""]);
    for named in [features(&["mailbx"], &[]), features(&[], &["mailbx"])] {
        let (code, message) = world.expect_refusal(&compose_request(named));
        assert_eq!(code, ErrorCode::UnknownFeature);
        let expect = "there is no feature \"mailbx\" (did you mean \"mailbox\"?); there are ";
        assert!(message.starts_with(expect), "{message}");
    }
    assert_eq!(world.composed(&compose_request(features(&["mailbox_protocol"], &["zoo"]))), before);
}

#[test]
fn agent_name_with_typo_is_refused_with_a_suggestion() {
    let world = World::new();
    let (code, message) = world.expect_refusal(&request(Some("xavr"), Some("big")));
    assert_eq!(code, ErrorCode::UnknownAgent);
    assert!(message.starts_with("there is no agent xavr (did you mean xaver?); there are "), "{message}");
}

#[test]
fn variant_is_selected_by_directory_then_family_then_flavour() {
    let world = World::new();
    let part = |expect: &str, model: &str| {
        let prompt = world.composed(&request(Some("x"), Some(model))).prompt;
        assert!(prompt.contains(&format!("## CONTINUATION PROTOCOL\n\n{expect}\n\n")), "{expect}: {prompt}");
    };
    // The shipped files have a variant `multi`, but the file of this directory has precedence.
    part("continuation", "big-2");
    world.write("mine/shared/continuation_protocol.multi.md", "multi");
    part("multi", "big-2");
    part("continuation", "p/any");
    world.write("mine/shared/continuation_protocol.fam.md", "family");
    part("family", "big-2");
    world.write("mine/shared/continuation_protocol.multi.fam.md", "both");
    part("both", "big-2");
    world.write("mine/agents/x.fam.md", "special");
    assert!(world.composed(&request(Some("x"), Some("big"))).prompt.starts_with("special\n\n## CORE"));
}

#[test]
fn prompt_missing_is_replaced_and_unknown_placeholder_stays() {
    let world = World::new();
    let composed = world.composed(&request(Some("ypsilon"), None));
    assert!(composed.prompt.starts_with("default\n\n## CORE INSTRUCTIONS"));
    assert!(!composed.prompt.contains("CONTINUATION"));
    assert_eq!(composed.warnings, ["there is no prompt agents/missing.md; default.md takes its place"]);
    assert_eq!(composed.model.id, "big-1");
    assert_eq!(composed.model.max_parallel_tools, 4);

    let composed = world.composed(&ComposeRequest { parameters: BTreeMap::new(), ..request(None, Some("big")) });
    assert!(composed.prompt.starts_with("I am Xaver the Example {{{what}}}."));
    assert_eq!(composed.warnings, ["{{{what}}} has no value"]);
}

#[test]
fn refusal_names_the_error_and_the_remedy() {
    let mut world = World::new();
    let (code, message) = world.expect_refusal(&request(Some("nobody"), Some("big")));
    assert_eq!(code, ErrorCode::UnknownAgent);
    assert_eq!(message, "there is no agent nobody; there are x (Xaver the Example), y (Ypsilon)");

    let (code, message) = world.expect_refusal(&request(None, None));
    assert_eq!(code, ErrorCode::UnknownModel);
    assert!(message.contains("AILOOP__COMPOSER__DEFAULT_MODEL"), "{message}");

    let (code, message) = world.expect_refusal(&request(None, Some("nope")));
    assert_eq!(code, ErrorCode::UnknownModel);
    assert_eq!(
        message,
        "there is no model \"nope\" in models.yaml; there are big, and every model of a provider as \
         <provider>/<its name for the model> (p)"
    );

    world.config.default_model = Some("big-default".to_owned());
    assert_eq!(world.composed(&request(None, None)).model.id, "big-default");
    assert_eq!(world.composed(&request(Some("y"), None)).model.id, "big-1");

    world.write("mine/agents/x.md", &"x".repeat(600 << 10));
    assert_eq!(world.expect_refusal(&request(None, Some("big"))).0, ErrorCode::TooLarge);
}

#[test]
fn fallbacks_have_their_settings() {
    let world = World::new();
    assert_eq!(world.composed(&request(None, Some("big"))).fallbacks, []);
    world.write("models.yaml", &format!("{MODELS}  small: {{provider: p, fallbacks: [big, p/x], reasoning: true}}\n"));
    let composed = world.composed(&request(None, Some("small")));
    assert!(composed.model.reasoning);
    let found: Vec<_> =
        composed.fallbacks.iter().map(|m| (m.id.as_str(), m.multi_tool, m.max_parallel_tools)).collect();
    assert_eq!(found, [("big", true, 4), ("p/x", false, 1)]);
}

#[test]
fn agent_not_named_without_default_is_refused() {
    let world = World::new();
    world.write("agents.yaml", "agents: {z: {name: Zed, prompt_file: x.md}}");
    let (code, message) = world.expect_refusal(&request(None, Some("big")));
    assert_eq!(code, ErrorCode::UnknownAgent);
    assert_eq!(message, "no agent is named, and agents.yaml has no default_agent; there are z (Zed)");
}

#[test]
fn shipped_files_alone_compose_a_prompt() {
    let empty = TempDir::new().unwrap();
    let config = ComposerConfig { config_dir: Some(empty.path().to_owned()), ..ComposerConfig::default() };
    let shipped = Catalog::read(&config).unwrap();
    for agent in [None, Some("alice"), Some("tessa"), Some("patricia"), Some("eamonn"), Some("debbie")] {
        assert!(matches!(shipped.compose(&request(agent, Some("rehearsal"))), ComposeReply::Composed(_)), "{agent:?}");
    }
    assert!(!Path::new("agents.yaml").exists(), "nothing but what is shipped");
}

fn bytes(request: &ComposeRequest) -> Bytes {
    serde_json::to_vec(request).unwrap().into()
}

#[test]
fn reply_as_bytes_equals_a_composed_one() {
    let world = World::new();
    let catalog = Catalog::read(&world.config).unwrap();
    let tool = |name: &str, version: &str| {
        serde_json::from_value(serde_json::json!({
            "name": name, "description": "d", "parameters": {}, "effect": "pure", "approval": "never", "version": version
        }))
        .unwrap()
    };
    let base = request(Some("x"), Some("big"));
    let with = |change: &dyn Fn(&mut ComposeRequest)| {
        let mut compose_request = base.clone();
        change(&mut compose_request);
        compose_request
    };
    // Each input of a prompt, changed alone.
    let compose_request = [
        base.clone(),
        with(&|r| r.agent = Some(AgentId::new("y").unwrap())),
        with(&|r| r.model = Some("p/any".to_owned())),
        with(&|r| r.features = features(&["ape"], &[])),
        with(&|r| r.features = features(&[], &["zoo"])),
        with(&|r| r.include_shared = false),
        with(&|r| r.tools = vec![tool("one", "1"), tool("two", "1")]),
        with(&|r| r.tools = vec![tool("one", "1"), tool("six", "1")]),
        with(&|r| (r.tools, r.include_tools) = (vec![tool("one", "1"), tool("two", "1")], false)),
        with(&|r| r.parameters.clear()),
        with(&|r| r.tenant = TenantId::new("other").unwrap()),
    ];
    for _ in 0..3 {
        for request in &compose_request {
            let answer: ComposeReply =
                serde_json::from_slice(&catalog.compose_bytes(&bytes(request), None).unwrap()).unwrap();
            assert_eq!(answer, catalog.compose(request), "{request:?}");
        }
    }
    // A feature of one request is not on in the next one.
    let prompt = |request: &ComposeRequest| {
        String::from_utf8(catalog.compose_bytes(&bytes(request), None).unwrap().to_vec()).unwrap()
    };
    assert!(
        prompt(&compose_request[3]).contains("APE INSTRUCTIONS")
            && !prompt(&compose_request[0]).contains("APE INSTRUCTIONS")
    );
    assert!(
        prompt(&compose_request[0]).contains("ZOO INSTRUCTIONS")
            && !prompt(&compose_request[4]).contains("ZOO INSTRUCTIONS")
    );

    let expect_refusal = catalog.compose_bytes(&Bytes::from_static(b"{"), None).unwrap();
    let expect_refusal: ComposeReply = serde_json::from_slice(&expect_refusal).unwrap();
    assert!(matches!(expect_refusal, ComposeReply::Refused { code: ErrorCode::BadRequest, .. }));
}
