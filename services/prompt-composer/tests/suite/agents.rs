//! `agents.yaml`: what is read from it, what is refused and where, and what only warns.

use configuration::TextFile;
use configuration::continuation::{Layer, Layers, resolve};
use contract::ids::AgentId;
use contract::settings::{ContinuationSettings, Limits, OnExpiry};
use prompt_composer::agents::{self, Agent, Agents};

fn parse(text: &str) -> Result<Agents, String> {
    let file = TextFile { origin: "agents.yaml".to_owned(), text: text.to_owned() };
    agents::parse(&file).map_err(|error| error.to_string())
}

fn continuation(config: &str) -> ContinuationSettings {
    let text = format!("agents:\n  x: {{name: X, prompt_file: x.md, continuation_config: {{{config}}}}}\n");
    let parsed = parse(&text).unwrap();
    continuation_of(&parsed, parsed.find(Some(&AgentId::new("x").unwrap())).unwrap())
}

/// Resolves the continuation settings of an agent without those of a model or tenant.
fn continuation_of(agents: &Agents, agent: &Agent) -> ContinuationSettings {
    let none = Layer::default();
    let layers = Layers {
        model: &none,
        is_model_over_agent: false,
        agent: &agent.continuation,
        tenant: &none,
        session_template: None,
    };
    resolve(&layers.stack(agents.templates()).unwrap())
}

#[test]
fn continuation_config_of_an_agent_replaces_defaults() {
    let default = ContinuationSettings::default();
    let check = |config: &str, expect: ContinuationSettings| assert_eq!(continuation(config), expect, "{config}");
    check("", default.clone());
    check("max_iterations: 7", ContinuationSettings { max_iterations: 7, ..default.clone() });
    check("patterns: [a]", ContinuationSettings { continuation_patterns: vec!["a".into()], ..default.clone() });
    check("continuation_patterns: []", ContinuationSettings { continuation_patterns: vec![], ..default.clone() });
    check("termination_patterns: []", ContinuationSettings { termination_patterns: vec![], ..default.clone() });
    check(
        "limits: {tokens: 9, repetition: 0}",
        ContinuationSettings {
            limits: Limits { tokens: Some(9), repetition: 0, ..Limits::default() },
            ..default.clone()
        },
    );
    let template = continuation("template: multi_step_tool_work, termination_patterns: [end]");
    assert!(!template.require_explicit_signal);
    assert_eq!(template.continuation_patterns[0], "now I'll");
    assert_eq!(template.termination_patterns, ["end"]);
    check(
        "template: multi_step_tool_work, require_explicit_signal: true, continuation_patterns: [x], \
         termination_patterns: [y]",
        ContinuationSettings {
            continuation_patterns: vec!["x".into()],
            termination_patterns: vec!["y".into()],
            ..default
        },
    );
}

#[test]
fn shipped_agents_are_as_designed() {
    let text = include_str!("../../../../config/agents.yaml");
    let agents = parse(text).unwrap();
    assert_eq!(agents.warnings, Vec::<String>::new());
    let rows: Vec<_> = agents
        .all()
        .map(|agent| {
            let c = continuation_of(&agents, agent);
            (agent.id.to_string(), agent.name.clone(), c.require_explicit_signal, c.max_iterations, c.timeout)
        })
        .collect();
    let row = |id: &str, name: &str, explicit, iterations, timeout| {
        (id.to_owned(), name.to_owned(), explicit, iterations, timeout)
    };
    assert_eq!(
        rows,
        [
            row("a", "Alice the Assistant", true, 5, 300),
            row("d", "Debbie the Debugger", true, 10, 600),
            row("e", "Eamonn the Executioner", false, 10, 600),
            row("p", "Patricia the Planner", false, 5, 300),
            row("t", "Tessa the Tester", true, 5, 300),
        ]
    );
    assert_eq!(agents.find(None).unwrap().id.as_str(), "a");
    assert_eq!(agents.find(Some(&AgentId::new("eamonn").unwrap())).unwrap().id.as_str(), "e");
    for agent in agents.all() {
        let (files, mail) =
            (["list_files", "read_file", "search_text", "write_file"], ["check_mail", "reply_mail", "send_mail"]);
        let mut tools: Vec<&str> = files.into_iter().chain(mail).chain(["delegate", "read_result"]).collect();
        let plans = ["analyze_dependencies", "decompose_plan", "list_plans", "mark_step_done", "read_plan"];
        // The assistant and the planner may ask people. Only the assistant reads texts of strangers.
        match agent.id.as_str() {
            "a" => tools.extend(["ask_user", "http_fetch"]),
            "p" => tools.extend(plans.into_iter().chain(["ask_user"])),
            "e" => tools.extend(plans),
            // The debugger reads sessions.
            "d" => tools.extend(["list_sessions", "read_decisions", "read_session"]),
            _ => {}
        }
        tools.sort_unstable();
        assert_eq!(agent.tools.allow, tools);
        // An agent with a mailbox must have the feature that explains it.
        assert_eq!(agent.features.enable, ["mailbox"], "{}", agent.id);
    }
}

#[test]
fn agent_named_by_key_alias_or_name_is_found() {
    let agents = parse(include_str!("../../../../config/agents.yaml")).unwrap();
    let known: Vec<_> = agents
        .addresses()
        .into_iter()
        .map(|agent| (agent.id.to_string(), agent.name, agent.aliases.iter().map(ToString::to_string).collect()))
        .collect();
    let row = |id: &str, name: &str, alias: &str| (id.to_owned(), name.to_owned(), vec![alias.to_owned()]);
    assert_eq!(
        known,
        [
            row("a", "Alice the Assistant", "alice"),
            row("d", "Debbie the Debugger", "debbie"),
            row("e", "Eamonn the Executioner", "eamonn"),
            row("p", "Patricia the Planner", "patricia"),
            row("t", "Tessa the Tester", "tessa"),
        ]
    );
    let plain = parse("agents: {zed: {name: Zed, prompt_file: x.md, tools: {allow: ['*'], deny: [rm]}}}").unwrap();
    let [zed] = plain.addresses().try_into().unwrap();
    assert_eq!((zed.aliases.len(), zed.tools.deny), (0, vec!["rm".to_owned()]));
}

#[test]
fn file_with_an_error_is_refused_with_line_and_column() {
    let check = |text: &str, expect: &str| {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(expect), "{text}\n  got:    {error}\n  expect: {expect}");
    };
    let agent = |fields: &str| format!("agents:\n  x:\n    name: X\n    prompt_file: x.md\n{fields}");
    check("agents: {}\nother: 1\n", "agents.yaml:2:1: ");
    check(&agent("    modle: x\n"), "agents.yaml:5:5: ");
    check(&agent("    continuation_config:\n      max_iteration: 3\n"), "agents.yaml:6:7: ");
    check(
        &agent("    continuation_config:\n      max_iterations: 0\n"),
        "agents.yaml:6:23: max_iterations must be 1 to 200, got 0",
    );
    check(
        &agent("    continuation_config:\n      max_iterations: 201\n"),
        "agents.yaml:6:23: max_iterations must be 1 to 200, got 201",
    );
    check(
        &agent("    continuation_config:\n      timeout: 0\n"),
        "agents.yaml:6:16: timeout must be 1 to 604800 seconds, got 0",
    );
    check(
        &agent("    continuation_config:\n      patterns:\n        - fine\n        - 'a('\n"),
        "agents.yaml:8:11: pattern \"a(\" cannot be used: unclosed group at its character 2",
    );
    check(&agent("    continuation_config: {template: t}\n"), "agents.yaml:5:37: there is no template \"t\"");
    check(
        &agent(&format!("    continuation_config:\n      patterns: [{}]\n", ["x"; 33].join(", "))),
        "agents.yaml:6:17: 33 patterns in one list; at most 32",
    );
    check(&agent("    continuation_config: {limits: {token: 3}}\n"), "agents.yaml:5:36: ");
    check(&agent("    tools: {sets: [s]}\n"), "agents.yaml:5:20: there is no tool set \"s\"");
    check(&agent("    tools: {allow: ['a.b']}\n"), "agents.yaml:5:21: tool name must be");
    check(&agent("    tools: {allow: ['*a']}\n"), "agents.yaml:5:21: tool name must be");
    check(&agent("    tools: {allow: ['a**']}\n"), "agents.yaml:5:21: tool name must be");
    let sets = |sets: &str| format!("tool_sets: {{{sets}}}\n{}", agent(""));
    check(&sets("a: {extends: [b]}"), "agents.yaml:1:27: there is no tool set \"b\"");
    check(&sets("a: {extends: [a]}"), "agents.yaml:1:27: tool set a would extend itself by a");
    check(
        &sets("a: {extends: [b]}, b: {extends: [c]}, c: {extends: [a]}"),
        "agents.yaml:1:27: tool set a would extend itself by b",
    );
    check(&sets("a: {tools: ['x.y']}"), "agents.yaml:1:25: tool name must be");
    check(&sets("a: {extend: []}"), "agents.yaml:1:17: ");
    let rule = |rule: &str| agent(&format!("    tools: {{approvals: [{{{rule}}}]}}\n"));
    check(&rule("tool: rm"), "agents.yaml:5:26: missing field `ask`");
    check(&rule("tool: rm, ask: perhaps"), "agents.yaml:5:41: ");
    check(&rule("tool: 'r m', ask: always"), "agents.yaml:5:32: tool name must be");
    check(
        &rule("tool: rm, ask: always, when: {path: x}"),
        "agents.yaml:5:62: \"path\" is no JSON pointer: write /path",
    );
    check(
        &rule("tool: rm, ask: always, when: {/path: 'a('}"),
        "agents.yaml:5:63: pattern \"a(\" cannot be used: unclosed group at its character 2",
    );
    check(&rule("tool: rm, ask: always, expires: 0"), "agents.yaml:5:58: expires must be 1 to 86400 seconds, got 0");
    check(&rule("tool: rm, ask: always, expires: 86401"), "agents.yaml:5:58: expires must be 1 to 86400");
    let many = vec!["{tool: rm, ask: always}"; 65].join(", ");
    check(&agent(&format!("    tools: {{approvals: [{many}]}}\n")), "agents.yaml:5:");
    check(&format!("approvals: [{many}]\n{}", agent("")), "agents.yaml:1:");
    check("agents:\n  x: {name: X, prompt_file: ../x.md}\n", "agents.yaml:2:29: a prompt_file is");
    check("agents:\n  x: {name: X, prompt_file: /etc/x.md}\n", "agents.yaml:2:29: a prompt_file is");
    check("agents:\n  x: {name: X, prompt_file: x.txt}\n", "agents.yaml:2:29: a prompt_file is");
    check("agents:\n  X: {name: X, prompt_file: x.md}\n", "agents.yaml:2:13: agent must be");
    check(
        "default_agent: y\nagents:\n  x: {name: X, prompt_file: x.md}\n",
        "agents.yaml:1:16: there is no agent \"y\"",
    );
    check(
        "agents:\n  x: {name: Bob One, prompt_file: x.md}\n  y: {name: bob two, prompt_file: x.md}\n",
        "agents.yaml:3:13: bob stands for x and for y",
    );
    check("agents:\n  user: {name: X, prompt_file: x.md}\n", "agents.yaml:2:16: \"user\" is the mailbox of people");
    check("agents:\n  x: {name: User X, prompt_file: x.md}\n", "agents.yaml:2:13: \"user\" is the mailbox of people");
    check("agents:\n  x: {name: X, prompt_file: x.md}\n  x: {name: X, prompt_file: x.md}\n", "agents.yaml:3:3: ");
}

#[test]
fn tool_set_has_the_tools_of_sets_that_it_extends_and_rules_keep_their_order() {
    let agents = parse(
        "tool_sets: {a: [x], b: {extends: [a], tools: ['m__*']}, c: {extends: [b, a]}}\n\
         approvals: [{tool: '*', ask: never}]\n\
         agents: {z: {name: Z, prompt_file: x.md, tools: {sets: [c], approvals: [\
           {tool: x, when: {/0: '^a'}, ask: always, expires: 5, on_expiry: approve}]}}}",
    )
    .unwrap();
    let agent = agents.all().next().unwrap();
    assert_eq!(agent.tools.allow, ["m__*", "x"]);
    let rules: Vec<(&str, bool)> =
        agent.approvals.iter().map(|rule| (rule.tool.as_str(), rule.when.is_empty())).collect();
    assert_eq!(rules, [("x", false), ("*", true)]);
    assert_eq!((agent.approvals[0].expires, agent.approvals[0].on_expiry), (Some(5), OnExpiry::Approve));
}

#[test]
fn unusual_entries_warn_and_are_accepted() {
    let check = |fields: &str, expect: &[&str]| {
        let text = format!("agents:\n  x: {{name: X, prompt_file: x.md, continuation_config: {{{fields}}}}}\n");
        assert_eq!(parse(&text).unwrap().warnings, expect, "{fields}");
    };
    check("max_iterations: 1", &[]);
    check("max_iterations: 20, timeout: 3600", &[]);
    check("max_iterations: 21", &["agents.yaml:2:73: max_iterations 21 is unusual; 1 to 20 is usual"]);
    check("timeout: 59", &["agents.yaml:2:66: timeout 59 s is unusual; 60 to 3600 is usual"]);
    check("timeout: 3601", &["agents.yaml:2:66: timeout 3601 s is unusual; 60 to 3600 is usual"]);
    let warnings = parse("agents:\n  z: {name: Zoë, prompt_file: x.md}\n").unwrap().warnings;
    assert_eq!(warnings, ["agents.yaml:2:13: \"zoë\" cannot be an alias; use \"z\""]);
}
