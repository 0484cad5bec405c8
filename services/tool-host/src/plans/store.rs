//! Plans as files: `plans/<name>.md` of the workspace.

use std::path::Path;
use std::time::Instant;

use ailoop_tool::ToolError;

use super::plan::{PLAN_FILE_BYTES_MAX, PlanDocument};
use crate::files::Workspace;
use crate::files::walk::{TIME_MAX, WorkspaceFile};

/// Directory of the plans, below the project.
pub(super) const DIRECTORY: &str = "plans";
/// Plans that one call reads.
pub(super) const PLANS_MAX: usize = 100;
/// Names that an error lists.
const NAMES_MAX: usize = 10;

/// A plan and its file.
#[derive(Debug)]
pub(super) struct StoredPlan {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) text: String,
    pub(super) plan: PlanDocument,
}

/// Lists the files that may be plans, by name; the second value is their total number.
pub(super) fn list_files(workspace: &Workspace) -> Result<(Vec<(String, WorkspaceFile)>, usize), ToolError> {
    let end = Instant::now() + TIME_MAX;
    let files = workspace.list_files(Path::new(DIRECTORY), end).map_err(|error| ToolError::new(error.to_string()))?.0;
    let mut plans: Vec<(String, WorkspaceFile)> =
        files.into_iter().filter_map(|file| Some((plan_name(&file.path)?.to_owned(), file))).collect();
    let total = plans.len();
    plans.truncate(PLANS_MAX);
    Ok((plans, total))
}

/// Reads the plan that a model names: `build`, `build.md` or `plans/build.md`.
pub(super) fn open(workspace: &Workspace, given: &str) -> Result<StoredPlan, ToolError> {
    let stem = given.trim().trim_start_matches("./");
    let stem = stem.strip_prefix("plans/").unwrap_or(stem);
    let name = stem.strip_suffix(".md").unwrap_or(stem).to_owned();
    let path = format!("{DIRECTORY}/{name}.md");
    if plan_name(&path) != Some(name.as_str()) {
        let error =
            format!("{given:?} is not the name of a plan: give a name that list_plans shows, without directories");
        return Err(ToolError::new(error));
    }
    let text = workspace.read_text(&path, PLAN_FILE_BYTES_MAX)?.ok_or_else(|| unknown_plan_error(workspace, &name))?;
    parse_stored(name, path, text)
}

/// Reads a plan of the list.
pub(super) fn read(workspace: &Workspace, name: &str, file: &WorkspaceFile) -> Result<StoredPlan, ToolError> {
    let text = workspace.read_text_of(file, PLAN_FILE_BYTES_MAX)?;
    let text = text.ok_or_else(|| ToolError::new(format!("{:?} is not a regular file", file.path)))?;
    parse_stored(name.to_owned(), file.path.clone(), text)
}

fn parse_stored(name: String, path: String, text: String) -> Result<StoredPlan, ToolError> {
    match PlanDocument::parse(&text) {
        Ok(plan) => Ok(StoredPlan { name, path, text, plan }),
        Err(error) => Err(ToolError::new(format!("{path:?} cannot be used as a plan: {error}"))),
    }
}

fn unknown_plan_error(workspace: &Workspace, name: &str) -> ToolError {
    let known = list_files(workspace).map(|(plans, _)| plans).unwrap_or_default();
    let names: Vec<&str> = known.iter().take(NAMES_MAX).map(|(name, _)| name.as_str()).collect();
    let more = if known.len() > names.len() { " and more, see list_plans" } else { "" };
    ToolError::new(if names.is_empty() {
        format!("there is no plan {name:?}, and no other one: a plan is a file {DIRECTORY}/<name>.md")
    } else {
        format!("there is no plan {name:?}; there are: {}{more}", names.join(", "))
    })
}

/// Returns the name of the plan at a path; `None` where it is no path of a plan.
fn plan_name(path: &str) -> Option<&str> {
    let name = path.strip_prefix(DIRECTORY)?.strip_prefix('/')?.strip_suffix(".md")?;
    let usable = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\']);
    (usable && !name.chars().any(char::is_control)).then_some(name)
}
