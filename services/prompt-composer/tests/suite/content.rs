//! Required content of the shipped prompts; the loop must understand what they teach.

use std::sync::Arc;

use contract::compose::{ComposeReply, ComposeRequest};
use contract::model::{SignalForm, ToolCall};
use prompt_composer::{Catalog, ComposerConfig};
use reply::{Evidence, Patterns, Reading, Status};
use serde_json::Value;

const GO_ON: &[&str] = &[
    "more tools are needed",
    "the task has steps left",
    "work needs verifying or refining",
    "tool results need further processing",
    "a plan or a complex operation is under way",
    "something is uncertain and you can check it",
];
const END: &[&str] = &[
    "the task is fully done",
    "the answer is comprehensive",
    "nothing further would improve it",
    "a natural stopping point is reached",
    "an error prevents progress",
];
const SIGNAL: &[&str] = &[
    "say CONTINUE when",
    "say TERMINATE when",
    "natural, conversational language",
    "the user never sees it",
    "used no tools needs no",
    "in doubt the system decides",
    "always be explicit when you work in steps",
    "short reason",
    "\"progress\"",
    "name the next action",
    "do not continue without need",
    "going on after a listing to create what was asked for",
    "ending after it was created",
];

fn shipped(name: &str) -> String {
    configuration::shipped::prompts().remove(name).unwrap_or_else(|| panic!("{name} is not shipped")).text
}

#[test]
fn shipped_prompts_have_the_required_content() {
    let guidelines: &[&str] = &["read a tool's description", "valid JSON", "never guess a required argument"];
    for (name, phrases) in [
        ("shared/continuation_protocol.md", &[GO_ON, END, SIGNAL] as &[&[&str]]),
        ("shared/continuation_protocol.multi.md", &[GO_ON, END, SIGNAL]),
        ("shared/continuation_protocol.structured.md", &[GO_ON, END, SIGNAL, &["one JSON object", "`response`"]]),
        (
            "shared/continuation_protocol.patterns.md",
            &[
                GO_ON,
                END,
                &[
                    "\"Now I'll …\"",
                    "\"Next, I'll …\"",
                    "\"Task complete\"",
                    "\"All done\"",
                    "all requested steps in order",
                ],
                &["natural, conversational language", "used no tools needs neither", "in doubt the system decides"],
            ],
        ),
        (
            "shared/core.md",
            &[
                &["{{{agent_name}}}", "an agent in ailoop", "be honest", "did not do", "never invent results"],
                &["when a tool fails", "is `unknown`"],
            ],
        ),
        ("shared/tool_guidelines.multi.md", &[guidelines, &["do not depend on each other in one reply"]]),
        ("shared/tool_guidelines.single.md", &[guidelines, &["one call at a time"]]),
        (
            "shared/mailbox_protocol.md",
            &[
                &["write to another agent when", "an address is", "read your mail before you act"],
                &["reply to each message", "your reply closes it"],
            ],
        ),
        ("shared/output_format.md", &[&["Markdown"]]),
        ("shared/output_format.structured.md", &[&["one JSON object", "`response`", "Markdown"]]),
        ("agents/alice_assistant.md", &[&["you are Alice", "general assistant"]]),
        ("agents/patricia_planner.md", &[&["you are Patricia", "write RFCs and turn them into plans"]]),
        ("agents/eamonn_executioner.md", &[&["you are Eamonn", "split it into steps", "do every step in order"]]),
        ("agents/debbie_debugger.md", &[&["you are Debbie", "find out why", "session", "logs"]]),
        ("agents/tessa_tester.md", &[&["you are Tessa", "write tests, review tests"]]),
        ("default.md", &[&["assistant"]]),
    ] {
        let text = shipped(name).to_lowercase();
        let missing: Vec<_> =
            phrases.iter().copied().flatten().filter(|phrase| !text.contains(&phrase.to_lowercase())).collect();
        assert!(missing.is_empty(), "{name} lacks {missing:?}");
    }
}

/// The JSON in code fences of a file.
fn json_fences(text: &str) -> Vec<&str> {
    text.split("```json\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

/// The loop reads each shape and example of a prompt as the prompt describes it.
#[test]
fn examples_in_prompts_are_parsed_as_described() {
    let check = |file: &str, read: &dyn Fn(&str) -> Reading, visible: &dyn Fn(&Value) -> String| {
        let text = shipped(file);
        let json_fences = json_fences(&text);
        let logged: Vec<Reading> = json_fences.iter().map(|fence| read(fence)).collect();
        let statuses: Vec<Status> = logged.iter().map(|reading| reading.signal.as_ref().unwrap().status).collect();
        assert_eq!(statuses, [Status::Continue, Status::Continue, Status::Terminate], "{file}");
        for (fence, reading) in json_fences.iter().zip(&logged) {
            let value: Value = serde_json::from_str(fence).unwrap();
            assert_eq!(reading.visible.trim(), visible(&value), "{file}: {fence}");
            assert!(!reading.signal.as_ref().unwrap().reason.is_empty(), "{file}: {fence}");
        }
        // The shape contains a tool call, and the examples contain none.
        assert_eq!(logged.iter().map(|reading| reading.calls.len()).collect::<Vec<_>>(), [1, 0, 0], "{file}");
    };
    let before = "There are two plans.";
    check(
        "shared/continuation_protocol.md",
        &|fence| reply::read(&format!("{before}\n\n```json\n{fence}\n```"), &[], SignalForm::Text),
        &|_| before.to_owned(),
    );
    check(
        "shared/continuation_protocol.multi.md",
        &|fence| reply::read(before, &[ToolCall::new("c", "continuation", fence)], SignalForm::Call),
        &|_| before.to_owned(),
    );
    check(
        "shared/continuation_protocol.structured.md",
        &|fence| reply::read(fence, &[], SignalForm::Envelope),
        &|value| value["response"].as_str().unwrap().to_owned(),
    );
    let schema = jsonschema::validator_for(&reply::envelope()).unwrap();
    for fence in json_fences(&shipped("shared/continuation_protocol.structured.md")) {
        let value: Value = serde_json::from_str(fence).unwrap();
        assert!(schema.is_valid(&value), "{fence}");
    }
}

/// With the settings of an agent the loop matches the phrases that its prompt teaches.
#[test]
fn phrases_in_prompts_match_with_the_settings_of_their_agents() {
    let config = ComposerConfig { default_model: Some("rehearsal".to_owned()), ..ComposerConfig::default() };
    let catalog = Catalog::read(&config).unwrap();
    let patterns = |agent: &str| {
        let request = serde_json::json!({"tenant": "default", "agent": agent});
        let request: ComposeRequest = serde_json::from_value(request).unwrap();
        let ComposeReply::Composed(composed) = catalog.compose(&request) else { panic!("{agent}") };
        assert!(!composed.agent.continuation.require_explicit_signal);
        assert!(composed.prompt.contains("announce the next step in words"), "{agent}");
        let detects_intent = composed.agent.continuation.detect_intent;
        (Patterns::compile(&composed.agent.continuation).unwrap(), detects_intent)
    };
    let decided = |(patterns, detects_intent): &(Arc<Patterns>, bool), text: &str| {
        reply::evidence(patterns, text, *detects_intent).map(|evidence| match evidence {
            Evidence::Pattern(matched) => matched.continues,
            Evidence::Intent(intent) => intent.continues,
        })
    };
    let text = shipped("shared/continuation_protocol.patterns.md");
    let example = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("Example, {kind}: \""))).unwrap();
        line.trim_end_matches('"').to_owned()
    };
    for agent in ["patricia", "eamonn"] {
        let patterns = patterns(agent);
        assert_eq!(decided(&patterns, &example("going on")), Some(true), "{agent}");
        assert_eq!(decided(&patterns, &example("ending")), Some(false), "{agent}");
    }
    let (patricia, eamonn) = (patterns("patricia"), patterns("eamonn"));
    let own = shipped("agents/patricia_planner.md");
    for (patterns, prompt, logged, goes_on) in [
        (&eamonn, text.as_str(), "Next, I'll write it.", true),
        (&eamonn, &text, "Proceeding to the next file.", true),
        (&eamonn, &text, "Task complete. It is in `a.md`.", false),
        (&eamonn, &text, "All done. It is in `a.md`.", false),
        (&patricia, &own, "Now I'll write it.", true),
        (&patricia, &own, "Proceeding to the plan.", true),
        (&patricia, &own, "RFC 7 created at `a.md`.", false),
        (&patricia, &own, "The plan is complete: `a.md`.", false),
    ] {
        let words: String = logged.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let (first, _) = words.split_once(' ').unwrap();
        assert!(prompt.contains(first), "{logged}");
        assert_eq!(decided(patterns, logged), Some(goes_on), "{logged}");
    }
}
