//! Commands that need no fleet: they read the configuration of a directory.

use std::fs;

use crate::command::world::{World, exit_code, text};

#[test]
fn patterns_test_replies_are_decided_without_fleet() {
    let world = World::new();
    let tried =
        world.ailoop(&["patterns", "test", "--agent", "eamonn", "Read it. Next, I\u{2019}ll write."]).output().unwrap();
    assert_eq!(exit_code(&tried), 0, "{}", text(&tried.stderr));
    assert_eq!(text(&tried.stdout), "goes on  pattern:continuation:next, I  the text announces a next step\n");

    let rows = concat!(
        "{\"id\": \"a\", \"text\": \"All done.\", \"continues\": false}\n",
        "\"{\\\"response\\\":\\\"x\\\",\\\"continuation\\\":{\\\"status\\\":\\\"CONTINUE\\\"}}\"\n",
        "{\"id\": \"c\", \"text\": \"Hm.\", \"continues\": true}\n",
    );
    fs::write(world.path("rows.jsonl"), rows).unwrap();
    let tried = world.ailoop(&["patterns", "test", "--agent", "e", "--file", "rows.jsonl", "--json"]).output().unwrap();
    assert_eq!(exit_code(&tried), 1, "the third reply has another decision than expected");
    assert!(text(&tried.stderr).contains("1 of 3 replies"), "{}", text(&tried.stderr));
    let lines: Vec<serde_json::Value> =
        text(&tried.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&lines[0]["continues"], &lines[1]["source"], &lines[2]["agrees"]),
        (&false.into(), &"explicit".into(), &false.into())
    );

    fs::write(world.path("rows.jsonl"), "{\n").unwrap();
    let bad = world.ailoop(&["patterns", "test", "--file", "rows.jsonl"]).output().unwrap();
    assert_eq!(exit_code(&bad), 2);
    assert!(text(&bad.stderr).contains("rows.jsonl:1: "), "{}", text(&bad.stderr));
}

/// The blocks of a language in a page, in order.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let begins = page.split(fence.as_str()).skip(1);
    begins.map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn use_cases_of_continuation_page_have_documented_decisions() {
    let page = include_str!("../../../../../../docs/continuation.md");
    let (settings, replies) = (blocks(page, "yaml"), blocks(page, "jsonl"));
    assert_eq!((settings.len(), replies.len()), (5, 5));
    for (settings, replies) in settings.iter().zip(&replies) {
        let world = World::new();
        let settings = settings.replace('\n', "\n    ");
        let agents = "default_agent: u\nagents:\n  u:\n    name: Una\n    prompt_file: alice_assistant.md\n";
        world.configure("agents.yaml", &format!("{agents}    {}\n", settings.trim_end()));
        fs::write(world.path("rows.jsonl"), replies).unwrap();
        let tried = world.output(&["patterns", "test", "--agent", "u", "--file", "rows.jsonl"]);
        assert_eq!(exit_code(&tried), 0, "{settings}{}{}", text(&tried.stdout), text(&tried.stderr));
    }
}

/// The value and the origin of a continuation setting.
fn setting(explanation: &serde_json::Value, name: &str) -> (serde_json::Value, serde_json::Value) {
    let name = format!("continuation_config.{name}");
    let rows = explanation["settings"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name.as_str()).unwrap();
    (row["value"].clone(), row["origin"].clone())
}

#[test]
fn config_check_and_explain_use_files_of_directory() {
    let world = World::new();
    let checked = world.ailoop(&["config", "check"]).output().unwrap();
    assert_eq!(
        (exit_code(&checked), text(&checked.stdout).as_str()),
        (0, "ok: 5 agents, their prompts and the models can be used\n")
    );
    let explained = world.output(&["config", "explain", "--agent", "e", "--json"]);
    let explanation: serde_json::Value = serde_json::from_slice(&explained.stdout).unwrap();
    assert_eq!(explanation["agent"]["id"], "e");
    let of_agent = "agent e (shipped:agents.yaml)";
    assert_eq!(setting(&explanation, "max_iterations"), (10.into(), of_agent.into()));
    // What holds at a limit, not what older versions read of it.
    assert_eq!(setting(&explanation, "on_limit"), ("answer".into(), "built in".into()));
    let explained = text(&world.output(&["config", "explain", "-a", "e", "-m", "local"]).stdout);
    for line in [
        "agent                                              e, Eamonn the Executioner",
        "continuation_config.max_iterations                 10                           agent e (shipped:agents.yaml)",
        "continuation_config.on_limit                       answer                       built in",
        "continuation_config.limits.repetition              2                            model local (shipped:models.yaml)",
        "continuation_config.require_explicit_signal        false                        template plain_words of model local",
    ] {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let found = explained.lines().any(|printed| words(printed).starts_with(&words(line)));
        assert!(found, "{line:?} is not in:\n{explained}");
    }

    let printed = |args: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&world.ailoop(&[&["config", "schema"], args].concat()).output().unwrap().stdout).unwrap()
    };
    assert_eq!(printed(&["models"])["title"], "models.yaml of ailoop");
    assert_eq!(printed(&[])["agents"], printed(&["agents"]));

    fs::create_dir(world.path("config")).unwrap();
    let models = "providers: {p: {kind: scripted, script: scripts/rehearsal.yaml}}\nmodels:\n  \
                    m: {provider: p, fallbacks: [p/n], continuation_config: {max_iterations: 7, timeout: 900}}\n";
    fs::write(world.path("config/models.yaml"), models).unwrap();
    let explain = |args: &[&str]| -> serde_json::Value {
        let explained = world.output(&[&["config", "explain", "--json", "--agent", "e"], args].concat());
        serde_json::from_slice(&explained.stdout).unwrap()
    };
    let explanation = explain(&["--model", "m"]);
    assert_eq!(setting(&explanation, "max_iterations"), (10.into(), of_agent.into()));
    assert_eq!(setting(&explanation, "timeout"), (600.into(), of_agent.into()));
    assert_eq!(explanation["model_origin"], "named for the session");
    assert_eq!((&explanation["model"]["id"], &explanation["fallbacks"][0]["id"]), (&"m".into(), &"p/n".into()));
    // The default of the file counts even without the rehearsal model.
    fs::write(world.path("config/models.yaml"), format!("default: m\n{models}")).unwrap();
    assert_eq!(exit_code(&world.ailoop(&["config", "check"]).output().unwrap()), 0);
    let explanation = explain(&[]);
    assert_eq!(explanation["model"]["id"], "m");
    let origin = explanation["model_origin"].as_str().unwrap();
    assert!(origin.starts_with("default (") && origin.ends_with("config/models.yaml)"), "{origin}");
    // A model that goes over its agents.
    let over = format!("default: m\n{}", models.replace("m: {provider: p,", "m: {provider: p, over_agent: true,"));
    fs::write(world.path("config/models.yaml"), over).unwrap();
    let (steps, origin) = setting(&explain(&[]), "max_iterations");
    assert_eq!(steps, 7);
    assert!(origin.as_str().unwrap().starts_with("model m ("), "{origin}");
    fs::remove_file(world.path("config/models.yaml")).unwrap();

    let agents = "agents:\n  x:\n    name: X\n    prompt_file: x.md\n    continuation_config: {limits: {token: 3}}\n";
    fs::write(world.path("config/agents.yaml"), agents).unwrap();
    let refused = world.ailoop(&["config", "check"]).output().unwrap();
    assert_eq!(exit_code(&refused), 1);
    let stderr = text(&refused.stderr);
    assert!(
        stderr.contains("error[bad_config]") && stderr.contains("agents.yaml:5:") && stderr.contains("token"),
        "{stderr}"
    );
}

#[test]
fn prompt_show_with_diff_prints_changed_lines() {
    let world = World::new();
    let shown = world.ailoop(&["prompt", "show", "--agent", "alice"]).output().unwrap();
    assert!(text(&shown.stdout).starts_with("You are Alice"), "{}", text(&shown.stdout));
    let changed =
        world.ailoop(&["prompt", "show", "--agent", "alice", "--without", "mailbox", "--diff"]).output().unwrap();
    let lines = text(&changed.stdout);
    assert!(lines.contains("-## MAILBOX PROTOCOL\n") && lines.lines().all(|line| line.starts_with('-')), "{lines}");
}

#[test]
fn init_writes_a_configuration_that_is_valid_and_used() {
    let world = World::new();
    let written = world.output(&["init", "Otto the Observer"]);
    assert_eq!(exit_code(&written), 0, "{}", text(&written.stderr));
    let checked = world.output(&["config", "check"]);
    assert_eq!(exit_code(&checked), 0, "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("ok: 1 agent, "), "{}", text(&checked.stdout));
    let run = world.output(&["run", "--model", "rehearsal", "survey"]);
    assert!(text(&run.stderr).contains("agent Otto the Observer"), "{}", text(&run.stderr));
    let prompt = world.output(&["prompt", "show", "--agent", "otto"]);
    assert!(text(&prompt.stdout).contains("You are Otto the Observer"), "{}", text(&prompt.stderr));
    for (line, error) in [
        (&["init"][..], "config/agents.yaml exists already"),
        (&["init", "a: b"], "is no name of an agent"),
        (&["tools", "new", "--python", "a-b"], "is no name of a tool in Python"),
    ] {
        let refused = world.output(line);
        assert_ne!(exit_code(&refused), 0);
        assert!(text(&refused.stderr).contains(error), "{line:?}: {}", text(&refused.stderr));
    }
}

#[test]
fn new_tool_is_python_that_compiles() {
    let world = World::new();
    let written = world.output(&["tools", "new", "--python", "word_count"]);
    assert_eq!(exit_code(&written), 0, "{}", text(&written.stderr));
    let compile = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
    let python = std::process::Command::new("python3").args(["-c", compile]).arg(world.path("word_count.py")).output();
    let python = python.unwrap();
    assert!(python.status.success(), "{}", text(&python.stderr));
    let again = world.output(&["tools", "new", "--python", "word_count"]);
    assert!(text(&again.stderr).contains("word_count.py exists already"), "{}", text(&again.stderr));
}

#[test]
fn doctor_without_fleet_checks_whether_one_could_start() {
    let world = World::new();
    let doctor = |exit: i32| {
        let output = world.output(&["doctor"]);
        assert_eq!(exit_code(&output), exit, "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let well = doctor(0);
    for part in ["no fleet runs in this directory", "ok    5 agents; read: ", "\nnats-server\n  ok    ", "\nmodel\n"] {
        assert!(well.contains(part), "{part:?} is not in:\n{well}");
    }
    world.configure("agents.yaml", "default_agent: nobody\nagents: {}\n");
    let bad = doctor(1);
    assert!(bad.contains("FAIL  config/agents.yaml:"), "{bad}");
    let output = world.ailoop(&["doctor"]).env("AILOOP_NATS_SERVER", "/nowhere/nats-server").output().unwrap();
    let missing = "nats-server\n  FAIL  AILOOP_NATS_SERVER does not name a nats-server that runs on this machine";
    assert!(text(&output.stdout).contains(missing), "{}", text(&output.stdout));
}
