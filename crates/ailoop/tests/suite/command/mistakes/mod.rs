//! Mistakes that people make in a configuration: `ailoop config check` names each, its place, and what was meant.

use crate::command::world::{World, exit_code, text};

/// An agent with further fields.
fn agent(fields: &str) -> String {
    format!("agents:\n  x:\n    name: Xaver\n    prompt_file: alice_assistant.md\n{fields}")
}

/// A model of a provider, each with further fields.
fn models(provider: &str, model: &str) -> String {
    format!(
        "providers:\n  p:\n    kind: openai_chat\n    base_url: http://127.0.0.1:1/v1\n{provider}models:\n  m:\n    \
         provider: p\n{model}"
    )
}

struct Case {
    file: &'static str,
    text: String,
    variables: &'static [(&'static str, &'static str)],
    expect: &'static [&'static str],
}

fn case(file: &'static str, text: impl Into<String>, expect: &'static [&'static str]) -> Case {
    Case { file, text: text.into(), variables: &[], expect }
}

fn variable(variables: &'static [(&'static str, &'static str)], expect: &'static [&'static str]) -> Case {
    Case { file: "", text: String::new(), variables, expect }
}

fn cases() -> Vec<Case> {
    vec![
        // Names of files.
        case("agents.yml", agent(""), &["agents.yml: this file is not read: its name must be agents.yaml"]),
        case("model.yaml", models("", ""), &["its name must be models.yaml"]),
        // ailoop.yaml.
        case(
            "ailoop.yaml",
            "nats: {}\negde: {}\n",
            &["ailoop.yaml:2:1: ", "did you mean \"edge\"?", "2 | egde: {}", "| ^"],
        ),
        case("ailoop.yaml", "edge:\n  ws: {listen: \"127.0.0.1:70700\"}\n", &["ailoop.yaml:2:", "socket address"]),
        case(
            "ailoop.yaml",
            "edge:\n  ws: {listen: \"127.0.0.1:7071\"}\n",
            &["ailoop.yaml:2:8: edge.grpc.listen and edge.ws.listen are both 127.0.0.1:7071"],
        ),
        case("ailoop.yaml", "edge:\n  ws: {listen: \"0.0.0.0:7070\"}\n", &["ailoop.yaml:2:", "set edge.token"]),
        case("ailoop.yaml", "nats:\n  url: nats://127.0.0.1:42222222\n", &["ailoop.yaml:2:3: ", "is no port"]),
        case(
            "ailoop.yaml",
            "tool_host:\n  files:\n    root: /no/such/place\n",
            &["ailoop.yaml:3:5: ", "/no/such/place", "No such file"],
        ),
        case(
            "ailoop.yaml",
            "composer:\n  prompts_dir: /no/such\n",
            &["ailoop.yaml:2:3: the directory /no/such does not"],
        ),
        case("ailoop.yaml", "gateway:\n  concurency: 3\n", &["ailoop.yaml:2:3: ", "did you mean \"concurrency\"?"]),
        case("ailoop.yaml", "gateway: {concurrency: many}\n", &["ailoop.yaml:1:24: this must be a whole number"]),
        // agents.yaml.
        case("agents.yaml", agent("    modle: rehearsal\n"), &["agents.yaml:5:5: ", "did you mean \"model\"?"]),
        case("agents.yaml", agent("\tmodel: rehearsal\n"), &["agents.yaml:4:", "found a tab"]),
        case("agents.yaml", agent("    name: Xenia\n"), &["agents.yaml:5:5: ", "name"]),
        case(
            "agents.yaml",
            agent("    model: rehersal\n"),
            &["agents.yaml:5:5: agent x: ", "did you mean \"rehearsal\"?"],
        ),
        case("agents.yaml", format!("default_agent: y\n{}", agent("")), &["agents.yaml:1:16: there is no agent \"y\""]),
        case(
            "agents.yaml",
            format!("tool_sets: {{files: [read_file]}}\n{}", agent("    tools: {sets: [file]}\n")),
            &["agents.yaml:6:", "did you mean \"files\"?"],
        ),
        case("agents.yaml", agent("    tools: {sets: [file]}\n"), &["agents.yaml:5:", "agents.yaml has no tool_sets"]),
        case(
            "agents.yaml",
            agent("    tools: {allow: [raed_file]}\n"),
            &["agents.yaml:5:21: there is no tool \"raed_file\" (did you mean \"read_file\"?)"],
        ),
        case(
            "agents.yaml",
            format!("tool_sets: {{files: [list_file]}}\n{}", agent("")),
            &["agents.yaml:1:21: there is no tool \"list_file\" (did you mean \"list_files\"?)"],
        ),
        case(
            "agents.yaml",
            format!("{}approvals: [{{tool: run_comand, ask: always}}]\n", agent("")),
            &["agents.yaml:5:20: there is no tool \"run_comand\" (did you mean \"run_command\"?)"],
        ),
        case(
            "agents.yaml",
            agent("    continuation_config: {max_iterations: 0, on_limit: aks}\n"),
            &["must be at least 1", "did you mean \"ask\"?"],
        ),
        case("agents.yaml", agent("    continuation_config: {patterns: [\"(\"]}\n"), &["agents.yaml:5:", "("]),
        // models.yaml.
        case(
            "models.yaml",
            models("    api_key_file: /no/such/key\n", ""),
            &["models.yaml:5:5: provider p: ", "/no/such/key"],
        ),
        case(
            "models.yaml",
            models("", "").replace("openai_chat", "openai-chat"),
            &["models.yaml:3:11: this must be one of ", "did you mean \"openai_chat\"?"],
        ),
        case("models.yaml", models("", "").replace("provider: p", "provider: q"), &["names the provider \"q\""]),
        case("models.yaml", models("", "    parameters: {max_tokens: 5}\n"), &["models.yaml:8:", "belongs elsewhere"]),
        case("models.yaml", models("", "    fallbacks: [n]\n"), &["models.yaml:8:", "there is no model \"n\""]),
        case("models.yaml", models("", "").replace("http://", ""), &["models.yaml:4:15: ", "http"]),
        case(
            "models.yaml",
            models("    kind: scripted\n    script: none.yaml\n", "").replacen("    kind: openai_chat\n", "", 1),
            &["models.yaml:5:", "none.yaml"],
        ),
        // The environment.
        variable(&[("AILOOP__EGDE__TOKEN", "x")], &["the environment: AILOOP__EGDE__TOKEN: ", "AILOOP__EDGE__…?"]),
        variable(&[("AILOOP__EDGE__TOKN", "x")], &["the environment: AILOOP__EDGE__TOKN: ", "did you mean \"token\"?"]),
        variable(
            &[("AILOOP_EDGE_TOKEN", "x")],
            &["AILOOP_EDGE_TOKEN is not read", "did you mean AILOOP__EDGE__TOKEN?"],
        ),
        variable(&[("AILOOP__GATEWAY__CONCURRENCY", "many")], &["the environment: ", "AILOOP__GATEWAY__CONCURRENCY"]),
        variable(&[("AILOOP_CONFIG", "/no/such")], &["the environment: ", "/no/such"]),
        variable(&[("AILOOP_CONFG", "x")], &["AILOOP_CONFG is not read; did you mean AILOOP_CONFIG?"]),
    ]
}

#[test]
fn config_check_names_every_typical_mistake_with_its_place() {
    let mut wrong = Vec::new();
    for Case { file, text: content, variables, expect } in cases() {
        let world = World::new();
        if !file.is_empty() {
            world.configure(file, &content);
        }
        let checked = world.ailoop(&["config", "check"]).envs(variables.iter().copied()).output().unwrap();
        let stderr = text(&checked.stderr);
        let missing: Vec<&str> = expect.iter().copied().filter(|part| !stderr.contains(part)).collect();
        if exit_code(&checked) != 1 || !missing.is_empty() {
            wrong.push(format!(
                "{file} {variables:?}\n{content}exit {}, without {missing:?}:\n{stderr}",
                exit_code(&checked)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n----\n"));
}

#[test]
fn config_check_names_all_mistakes_of_all_files_at_once() {
    let world = World::new();
    world.configure("ailoop.yaml", "egde: {}\ngateway: {concurency: 3}\n");
    let more = "  y:\n    name: Yps\n    prompt_file: alice_assistant.md\n    tools: {sets: [none]}\n";
    world.configure("agents.yaml", &(agent("    modle: x\n    continuation_config: {timeout: 0}\n") + more));
    world.configure("models.yaml", &models("    api_key: x\n", "    multitool: true\n"));
    let checked = world.ailoop(&["config", "check"]).env("AILOOP__EDGE__TOKN", "x").output().unwrap();
    let stderr = text(&checked.stderr);
    for part in [
        "ailoop.yaml:1:1: ",
        "ailoop.yaml:2:11: ",
        "agents.yaml:5:5: ",
        "agents.yaml:6:",
        "agents.yaml:10:20: there is no tool set",
        "models.yaml:5:5: ",
        "models.yaml:9:5: ",
        "the environment: AILOOP__EDGE__TOKN",
        "8 mistakes in the configuration",
    ] {
        assert!(stderr.contains(part), "{part:?} is not in:\n{stderr}");
    }
}

#[test]
fn what_the_fleet_runs_is_accepted_with_a_warning() {
    let own = "    tools: {allow: [lookup_orders, read_file, http_fetch, delegate, 'mail*'], deny: ['mcp__crm__*']}\n";
    let served = "tool_host:\n  webhooks: {lookup_orders: {url: \"http://127.0.0.1:1/\", description: Orders.}}\n  \
                  mcp: {crm: {command: crm}}\n";
    for (agents, ailoop, expect) in [
        // Without a prompt of its own, an agent has default.md.
        ("agents:\n  x: {name: Xaver}\n".to_owned(), "", &["there is no prompt agents/x.md; default.md takes"][..]),
        (
            agent("").replace("alice_assistant", "alice_asistant"),
            "",
            &[
                "agents.yaml:4:5: agent x: there is no prompt agents/alice_asistant.md (did you mean \"alice_assistant\"?)",
            ],
        ),
        (
            agent("    features: {enable: [mailbx]}\n"),
            "",
            &["agents.yaml:5:5: agent x: there is no feature \"mailbx\" (did you mean \"mailbox\"?)"],
        ),
        (
            format!("{}tenants: {{acme: {{features: {{enable: [nothing]}}}}}}\n", agent("")),
            "",
            &["agents.yaml:5:18: tenant acme: there is no feature \"nothing\""],
        ),
        // Services of the user may serve tools that no file knows.
        (agent(own), "", &["services of yours must serve them: lookup_orders, mail*, mcp__crm__*"]),
        (agent(own), served, &["services of yours must serve them: mail*;"]),
    ] {
        let world = World::new();
        world.configure("agents.yaml", &agents);
        world.configure("ailoop.yaml", ailoop);
        let checked = world.output(&["config", "check"]);
        let stderr = text(&checked.stderr);
        assert_eq!(exit_code(&checked), 0, "{agents}{stderr}");
        for part in expect {
            assert!(stderr.contains(part) && stderr.contains("warning: "), "{part:?} is not in:\n{stderr}");
        }
    }
}

#[test]
fn mistyped_key_is_one_mistake_for_every_command() {
    let world = World::new();
    let models = "default: small\nproviders:\n  p: {kind: openai_chat, base_url: \"http://127.0.0.1:1/v1\"}\n\
                  models:\n  small:\n    provder: p\n  other: {provider: p, fallbacks: [small]}\n";
    world.configure("models.yaml", models);
    for command in [&["config", "check"][..], &["run", "Hi."], &["config", "explain"], &["prompt", "show"]] {
        let refused = world.output(command);
        let stderr = text(&refused.stderr);
        assert_eq!(exit_code(&refused), 1, "{command:?}: {stderr}");
        let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error")).collect();
        let expected = [
            "error: config/models.yaml:6:5: there is no key \"provder\" here (did you mean \"provider\"?)",
            "error[bad_config]: 1 mistake in the configuration",
        ];
        assert_eq!(errors, expected, "{command:?}: {stderr}");
        assert!(stderr.contains("6 |     provder: p\n    |     ^"), "{stderr}");
        let names_command = command[1] == "check" || stderr.contains("`ailoop config check`");
        assert!(names_command, "{command:?}: {stderr}");
    }
}

#[test]
fn tenant_mistake_with_two_agents_is_reported_once_at_the_tenant() {
    let world = World::new();
    let agents = agent("") + "  y:\n    name: Yps\n    prompt_file: alice_assistant.md\n";
    let tenants =
        "tenants:\n  default:\n    features:\n      enable: [nothing]\n  acme: {features: {disable: [none]}}\n";
    world.configure("agents.yaml", &(agents + tenants));
    let checked = world.output(&["config", "check"]);
    let stderr = text(&checked.stderr);
    assert_eq!(exit_code(&checked), 0, "{stderr}");
    for part in [
        "agents.yaml:10:5: tenant default: there is no feature \"nothing\"",
        "agents.yaml:12:10: tenant acme: there is no feature \"none\"",
    ] {
        assert_eq!(stderr.matches(part).count(), 1, "{part:?} is not once in:\n{stderr}");
    }
}

#[test]
fn config_check_of_a_good_directory_is_silent_about_mistakes() {
    let world = World::new();
    world.configure("agents.yaml", &agent("    model: rehearsal\n"));
    let variables = [("AILOOP__COMPOSER__FEATURES", r#"["continuation", "mailbox"]"#), ("AILOOP__EDGE__TOKEN", "x")];
    let checked = world.ailoop(&["config", "check"]).envs(variables).output().unwrap();
    assert_eq!(exit_code(&checked), 0, "{}", text(&checked.stderr));
    assert_eq!(text(&checked.stdout), "ok: 1 agent, their prompts and the models can be used\n");
    assert!(text(&checked.stderr).contains("config/agents.yaml"), "{}", text(&checked.stderr));
}
