//! The plan tools: plans are Markdown files that people and agents write, and whose steps are marked in the file itself.

mod order;
mod plan;
mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ailoop_tool::{Effect, Tool, ToolError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::connect::Login;
use super::files::{Workspace, tool};
use super::fit::fitting;
use order::Order;
use plan::{Plan, Step};
use store::{DIRECTORY, Stored};

/// Characters of a title or goal in a list.
const LISTED_CHARS_MAX: usize = 200;

/// What a plan looks like, for agents that have these tools.
const FORMAT: &str = "A plan is a Markdown file `plans/<name>.md`: a line `# <title>`, a sentence with the goal, and the \
    steps as one list with numbers at the beginning of the line (`1. <title>`). Below a step, indented: `- depends on: \
    1, 2` where other steps come first, `- check: <how its result is checked>`, and what else has to be known. `1. [x] \
    <title>` is a step that is done.";

/// The plan tools, over the directories of the file tools.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "plans")]
pub struct PlansConfig {
    /// The NATS user of these tools, where users have permissions.
    pub login: Option<Login>,
}

/// `list_plans`, `read_plan`, `decompose_plan`, `analyze_dependencies` and, where files can be written, `mark_step_done`.
pub(super) fn tools(workspace: &Arc<Workspace>) -> Vec<Tool> {
    let list = tool("list_plans", Effect::Pure, workspace, list)
        .description(
            "Lists the plans of the project and those that agents wrote, with title, goal, steps and how many of them are \
             done. Call it first when you are to carry out a plan.",
        )
        .parameters(json!({"type": "object", "additionalProperties": false, "properties": {}}))
        .instructions(FORMAT);
    let read = tool("read_plan", Effect::Pure, workspace, read)
        .description("Reads a plan: its whole text, and its revision, which mark_step_done wants.")
        .parameters(named());
    let decompose = tool("decompose_plan", Effect::Pure, workspace, decompose)
        .description(
            "Splits a plan into its tasks, one for each step: title, details, check, the steps that it depends on, and \
             whether it is done.",
        )
        .parameters(named());
    let analyze = tool("analyze_dependencies", Effect::Pure, workspace, analyze)
        .description(
            "Tells in which order the steps of a plan can be done: the order, the steps that are ready now, the rounds of \
             steps that can be done side by side, what waits for what, and steps that depend on each other.",
        )
        .parameters(named());
    let mut tools = vec![list, read, decompose, analyze];
    tools.extend(workspace.is_writable().then(|| {
        tool("mark_step_done", Effect::Idempotent, workspace, mark_done)
            .description(
                "Marks a step of a plan as done, in the plan's file. Call it when the step's result is there and checked, \
                 never before. It is refused where the plan has changed since it was read, or a step that this one depends \
                 on is not done. Marking a step again changes nothing.",
            )
            .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
                "plan": {"type": "string", "description": "The plan's name, as list_plans shows it."},
                "step": {"type": "integer", "minimum": 0, "description": "The step's number."},
                "revision": {"type": "string", "description": "The plan's revision, as read_plan shows it."},
            }, "required": ["plan", "step", "revision"]}))
    }));
    tools
}

fn named() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": {
        "plan": {"type": "string", "description": "The plan's name, as list_plans shows it."},
    }, "required": ["plan"]})
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    plan: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    plan: String,
    step: u32,
    revision: String,
}

/// A file that is no plan is listed with the reason, so that whoever wrote it can correct it.
fn list(workspace: &Workspace, _: &Nothing) -> Result<Value, ToolError> {
    let (files, total) = store::files(workspace)?;
    let entries = files.into_iter().map(|(name, file)| {
        let mut entry = json!({"plan": name, "path": file.path});
        match store::read(workspace, &name, &file) {
            Ok(Stored { plan, .. }) => {
                entry["title"] = json!(shortened(&plan.title));
                entry["goal"] = json!(shortened(&plan.goal));
                entry["steps"] = json!(plan.steps.len());
                entry["done"] = json!(plan.done());
            }
            Err(error) => entry["error"] = json!(error.message()),
        }
        if file.is_written {
            entry["written"] = json!(true);
        }
        entry
    });
    let plans = fitting(entries);
    let mut result = json!({"plans": plans, "total": total, "truncated": plans.len() < total});
    if total == 0 {
        result["note"] = json!(format!("there are no plans: a plan is a file {DIRECTORY}/<name>.md"));
    }
    Ok(result)
}

fn read(workspace: &Workspace, named: &Named) -> Result<Value, ToolError> {
    let Stored { name, path, text, plan } = store::open(workspace, &named.plan)?;
    Ok(json!({"plan": name, "path": path, "revision": plan.revision, "title": plan.title, "goal": plan.goal,
        "steps": plan.steps.len(), "done": plan.done(), "content": text}))
}

fn decompose(workspace: &Workspace, named: &Named) -> Result<Value, ToolError> {
    let Stored { name, plan, .. } = store::open(workspace, &named.plan)?;
    let tasks: Vec<Value> = plan.steps.iter().map(task).collect();
    Ok(json!({"plan": name, "revision": plan.revision, "goal": plan.goal, "tasks": tasks, "steps": plan.steps.len(),
        "done": plan.done()}))
}

fn task(step: &Step) -> Value {
    let mut task = json!({"step": step.number, "title": step.title, "depends_on": step.depends_on, "done": step.done});
    if !step.details.is_empty() {
        task["details"] = json!(step.details);
    }
    if let Some(check) = &step.check {
        task["check"] = json!(check);
    }
    task
}

fn analyze(workspace: &Workspace, named: &Named) -> Result<Value, ToolError> {
    let Stored { name, plan, .. } = store::open(workspace, &named.plan)?;
    let order = Order::of(&plan);
    let waiting: Vec<Value> = order.waiting.iter().map(|(step, on)| json!({"step": step, "waits_for": on})).collect();
    let mut result = json!({"plan": name, "revision": plan.revision, "order": order.steps, "ready": order.ready(),
        "rounds": order.rounds, "waiting": waiting, "cycles": order.cycles, "steps": plan.steps.len(),
        "done": plan.done()});
    if !order.cycles.is_empty() {
        result["note"] = json!("the steps of a cycle depend on each other and can never be done: correct the plan");
    }
    Ok(result)
}

/// Reads, checks and writes under one lock, so that of two marks none is lost.
fn mark_done(workspace: &Workspace, asked: &Mark) -> Result<Value, ToolError> {
    let writing = workspace.writing(&asked.plan)?;
    let Stored { name, path, text, plan } = store::open(workspace, &asked.plan)?;
    let step = markable(&name, &plan, asked).map_err(ToolError::new)?;
    let marked = if step.done { plan.clone() } else { put(&writing, &path, &step.mark_done(&text))? };
    Ok(json!({"plan": name, "path": path, "step": step.number, "title": step.title, "done": true,
        "steps": marked.steps.len(), "steps_done": marked.done(), "ready": Order::of(&marked).ready()}))
}

fn put(writing: &super::files::Writing<'_>, path: &str, text: &str) -> Result<Plan, ToolError> {
    let plan = Plan::parse(text).map_err(|error| ToolError::new(format!("{path:?} cannot be marked: {error}")))?;
    writing.put(path, text)?;
    Ok(plan)
}

/// The step that may be marked, else why it may not.
fn markable<'a>(name: &str, plan: &'a Plan, asked: &Mark) -> Result<&'a Step, String> {
    let numbers = || plan.steps.iter().map(|step| step.number.to_string()).collect::<Vec<_>>().join(", ");
    if asked.revision.trim() != plan.revision {
        return Err(format!(
            "plan {name:?} has the revision {}, not {:?}: it was changed since you read it. Read it again with read_plan, \
             and mark the step with the new revision if it is still what you did",
            plan.revision, asked.revision
        ));
    }
    let Some(step) = plan.step(asked.step) else {
        return Err(format!("plan {name:?} has no step {}; there are: {}", asked.step, numbers()));
    };
    let open = step.depends_on.iter().filter(|on| plan.step(**on).is_some_and(|on| !on.done));
    let open: Vec<String> = open.map(u32::to_string).collect();
    if !step.done && !open.is_empty() {
        return Err(format!(
            "step {} of plan {name:?} depends on steps that are not done: {}. Do them and mark them first",
            step.number,
            open.join(", ")
        ));
    }
    Ok(step)
}

/// A text on one line, cut where it is long.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LISTED_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
