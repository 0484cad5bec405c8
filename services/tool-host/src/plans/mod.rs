//! The plan tools: plans are Markdown files that people and agents write, and their steps are marked in the file
//! itself.

mod plan;
mod step_order;
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
use super::truncate::take_fitting;
use plan::{PlanDocument, PlanStep};
use step_order::StepOrder;
use store::{DIRECTORY, StoredPlan};

const LISTED_CHARS_MAX: usize = 200;

/// Describes the format of a plan, for agents that have these tools.
const FORMAT_INSTRUCTIONS: &str = "A plan is a Markdown file `plans/<name>.md`: a line `# <title>`, a sentence with the goal, and the \
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

/// Builds `list_plans`, `read_plan`, `decompose_plan`, `analyze_dependencies` and, where files can be written,
/// `mark_step_done`.
pub(super) fn tools(workspace: &Arc<Workspace>) -> Vec<Tool> {
    let list = tool("list_plans", Effect::Pure, workspace, list)
        .description(
            "Lists the plans of the project and those that agents wrote, with title, goal, steps and how many of them are \
             done. Call it first when you are to carry out a plan.",
        )
        .parameters(json!({"type": "object", "additionalProperties": false, "properties": {}}))
        .instructions(FORMAT_INSTRUCTIONS);
    let read = tool("read_plan", Effect::Pure, workspace, read)
        .description("Reads a plan: its whole text, and its revision, which mark_step_done wants.")
        .parameters(plan_parameters());
    let decompose = tool("decompose_plan", Effect::Pure, workspace, decompose)
        .description(
            "Splits a plan into its tasks, one for each step: title, details, check, the steps that it depends on, and \
             whether it is done.",
        )
        .parameters(plan_parameters());
    let analyze = tool("analyze_dependencies", Effect::Pure, workspace, analyze)
        .description(
            "Tells in which order the steps of a plan can be done: the order, the steps that are ready now, the rounds of \
             steps that can be done side by side, what waits for what, and steps that depend on each other.",
        )
        .parameters(plan_parameters());
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

fn plan_parameters() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": {
        "plan": {"type": "string", "description": "The plan's name, as list_plans shows it."},
    }, "required": ["plan"]})
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanArguments {
    plan: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkArguments {
    plan: String,
    step: u32,
    revision: String,
}

/// Lists the plans; a file that is no plan is listed with the reason, so that its author can correct it.
fn list(workspace: &Workspace, _: &NoArguments) -> Result<Value, ToolError> {
    let (files, total) = store::list_files(workspace)?;
    let entries = files.into_iter().map(|(name, file)| {
        let mut entry = json!({"plan": name, "path": file.path});
        match store::read(workspace, &name, &file) {
            Ok(StoredPlan { plan, .. }) => {
                entry["title"] = json!(shorten(&plan.title));
                entry["goal"] = json!(shorten(&plan.goal));
                entry["steps"] = json!(plan.steps.len());
                entry["done"] = json!(plan.count_done());
            }
            Err(error) => entry["error"] = json!(error.message()),
        }
        if file.is_written {
            entry["written"] = json!(true);
        }
        entry
    });
    let plans = take_fitting(entries);
    let mut result = json!({"plans": plans, "total": total, "truncated": plans.len() < total});
    if total == 0 {
        result["note"] = json!(format!("there are no plans: a plan is a file {DIRECTORY}/<name>.md"));
    }
    Ok(result)
}

fn read(workspace: &Workspace, arguments: &PlanArguments) -> Result<Value, ToolError> {
    let StoredPlan { name, path, text, plan } = store::open(workspace, &arguments.plan)?;
    Ok(json!({"plan": name, "path": path, "revision": plan.revision, "title": plan.title, "goal": plan.goal,
        "steps": plan.steps.len(), "done": plan.count_done(), "content": text}))
}

fn decompose(workspace: &Workspace, arguments: &PlanArguments) -> Result<Value, ToolError> {
    let StoredPlan { name, plan, .. } = store::open(workspace, &arguments.plan)?;
    let tasks: Vec<Value> = plan.steps.iter().map(to_task).collect();
    Ok(json!({"plan": name, "revision": plan.revision, "goal": plan.goal, "tasks": tasks, "steps": plan.steps.len(),
        "done": plan.count_done()}))
}

fn to_task(step: &PlanStep) -> Value {
    let mut task = json!({"step": step.number, "title": step.title, "depends_on": step.depends_on, "done": step.done});
    if !step.details.is_empty() {
        task["details"] = json!(step.details);
    }
    if let Some(check) = &step.check {
        task["check"] = json!(check);
    }
    task
}

fn analyze(workspace: &Workspace, arguments: &PlanArguments) -> Result<Value, ToolError> {
    let StoredPlan { name, plan, .. } = store::open(workspace, &arguments.plan)?;
    let order = StepOrder::from_plan(&plan);
    let waiting: Vec<Value> = order.waiting.iter().map(|(step, on)| json!({"step": step, "waits_for": on})).collect();
    let mut result = json!({"plan": name, "revision": plan.revision, "order": order.steps, "ready": order.ready(),
        "rounds": order.rounds, "waiting": waiting, "cycles": order.cycles, "steps": plan.steps.len(),
        "done": plan.count_done()});
    if !order.cycles.is_empty() {
        result["note"] = json!("the steps of a cycle depend on each other and can never be done: correct the plan");
    }
    Ok(result)
}

/// Marks a step: reads, checks and writes under one lock, so that no concurrent mark is lost.
fn mark_done(workspace: &Workspace, arguments: &MarkArguments) -> Result<Value, ToolError> {
    let lock = workspace.lock_for_writing(&arguments.plan)?;
    let StoredPlan { name, path, text, plan } = store::open(workspace, &arguments.plan)?;
    let step = find_markable_step(&name, &plan, arguments).map_err(ToolError::new)?;
    let marked = if step.done { plan.clone() } else { write_plan(&lock, &path, &step.mark_done(&text))? };
    Ok(json!({"plan": name, "path": path, "step": step.number, "title": step.title, "done": true,
        "steps": marked.steps.len(), "steps_done": marked.count_done(), "ready": StepOrder::from_plan(&marked).ready()}))
}

fn write_plan(lock: &super::files::WriteLock<'_>, path: &str, text: &str) -> Result<PlanDocument, ToolError> {
    let plan =
        PlanDocument::parse(text).map_err(|error| ToolError::new(format!("{path:?} cannot be marked: {error}")))?;
    lock.write_file(path, text)?;
    Ok(plan)
}

/// Finds the step that may be marked; the error says why it may not.
fn find_markable_step<'a>(
    name: &str,
    plan: &'a PlanDocument,
    arguments: &MarkArguments,
) -> Result<&'a PlanStep, String> {
    let numbers = || plan.steps.iter().map(|step| step.number.to_string()).collect::<Vec<_>>().join(", ");
    if arguments.revision.trim() != plan.revision {
        return Err(format!(
            "plan {name:?} has the revision {}, not {:?}: it was changed since you read it. Read it again with read_plan, \
             and mark the step with the new revision if it is still what you did",
            plan.revision, arguments.revision
        ));
    }
    let Some(step) = plan.step(arguments.step) else {
        return Err(format!("plan {name:?} has no step {}; there are: {}", arguments.step, numbers()));
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

/// Shortens a text for a list.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(LISTED_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
