//! The worked example as a demonstration: an agent executes a plan in announced steps, and another one hands it a plan.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::command::world::{World, exit_code, text};

/// Returns the decision of the loop on each reply of the example, and the reply.
fn worked_example() -> Vec<(bool, String)> {
    let lines = include_str!("../../../../../../examples/plans/worked-example.txt").lines();
    lines
        .map(|line| {
            let (decision, reply) = line.split_once(' ').unwrap();
            (decision == "CONTINUE", reply.to_owned())
        })
        .collect()
}

fn with_plans() -> World {
    let world = World::new();
    fs::create_dir(world.path("plans")).unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plans/plans/python-ast-json.md");
    fs::copy(from, world.path("plans/python-ast-json.md")).unwrap();
    world
}

/// The events of a run with this topic.
fn events(world: &World, line: &[&str], topic: &str) -> Vec<Value> {
    let run = world.output(&[&["run", "--json", "--model", "rehearsal"], line].concat());
    assert_eq!(exit_code(&run), 0, "{}", text(&run.stderr));
    let events = text(&run.stdout).lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>();
    events.into_iter().filter(|event| event["topic"] == topic).map(|event| event["data"].clone()).collect()
}

#[test]
fn plan_executed_by_its_agent_goes_on_after_each_sentence_and_ends_after_the_last() {
    let world = with_plans();
    let decisions = events(&world, &["--agent", "e", "Execute the python-ast-json plan"], "continuation.progress");
    let decided = decisions.iter().filter(|decision| decision["source"] != "tool_calls");
    let decided: Vec<(bool, &str)> = decided
        .map(|decision| (decision["continues"].as_bool().unwrap(), decision["excerpt"].as_str().unwrap()))
        .collect();
    let example = worked_example();
    assert_eq!(decided.len(), example.len(), "{decided:?}");
    for ((continues, excerpt), (wanted, sentence)) in decided.iter().zip(&example) {
        assert_eq!(continues, wanted, "{sentence}");
        assert!(!wanted || excerpt == sentence, "{excerpt:?} is not {sentence:?}");
    }
    let called: Vec<&str> = decisions.iter().filter_map(|decision| decision["current_tools"][0].as_str()).collect();
    assert_eq!(called, ["list_plans", "read_plan", "decompose_plan", "analyze_dependencies"]);
}

#[test]
fn plan_executed_answer_ends_with_the_last_sentence_and_holds_the_tasks_in_order() {
    let world = with_plans();
    let run = world.output(&["run", "--model", "rehearsal", "--agent", "e", "Execute the python-ast-json plan"]);
    assert_eq!(exit_code(&run), 0, "{}", text(&run.stderr));
    let answer = text(&run.stdout);
    let (_, last) = worked_example().pop().unwrap();
    assert!(answer.trim_end().ends_with(&last), "{answer}");
    let place = |part: &str| answer.find(part).unwrap_or_else(|| panic!("{part:?} is not in {answer}"));
    assert!(place("1. Write the visitor") < place("3. Write the command line (after 1)"), "{answer}");
    assert!(place("3. Write the command line") < place("4. Write the manual page (after 2 and 3)"), "{answer}");
}

#[test]
fn plan_of_another_name_the_answer_names_those_that_there_are() {
    let world = with_plans();
    let run = world.output(&["run", "--model", "rehearsal", "--agent", "e", "Execute the other plan"]);
    assert_eq!(exit_code(&run), 0, "{}", text(&run.stderr));
    assert!(text(&run.stdout).contains("`python-ast-json`"), "{}", text(&run.stdout));
}

#[test]
fn plan_written_by_one_agent_is_found_and_executed_by_another() {
    let world = World::new();
    let line = ["run", "--model", "rehearsal", "--agent", "p", "Plan a command that lists duplicate files"];
    let run = world.output(&line);
    assert_eq!(exit_code(&run), 0, "{}", text(&run.stderr));
    let (answer, (_, last)) = (text(&run.stdout), worked_example().pop().unwrap());
    for part in
        ["Proceeding to hand it over to Eamonn", "3. Print the groups (after 2)", &last, "The plan is complete."]
    {
        assert!(answer.contains(part), "{part:?} is not in:\n{answer}");
    }
    let shown = text(&run.stderr);
    let place = |part: &str| shown.find(part).unwrap_or_else(|| panic!("{part:?} is not in:\n{shown}"));
    assert!(place("  → eamonn  ") < place("\n      read_plan "), "{shown}");
    assert!(place("\n      read_plan ") < place("\n  delegate eamonn  "), "{shown}");
    assert!(!answer.contains("read_plan"), "{answer}");
    // The same tree is shown later, from the store.
    let watched = text(&world.output(&["watch", "--last", "--no-follow"]).stderr);
    let (_, tree) = shown.split_once("  → eamonn  ").unwrap();
    let (tree, _) = tree.split_once("  delegate eamonn  ").unwrap();
    assert!(watched.contains(tree), "{tree} is not in:\n{watched}");
    let written = fs::read_to_string(world.path(".ailoop/out/plans/list-duplicates.md")).unwrap();
    assert!(written.starts_with("# List duplicate files\n"), "{written}");
}
