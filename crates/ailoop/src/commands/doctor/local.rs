//! Checks where no fleet runs: whether one could start here.

use super::check::{Check, Outcome};
use crate::args::Files;
use crate::config_check;
use crate::failure::CommandFailure;
use crate::fleet::{FleetPlan, nats_search_paths};
use crate::format;
use crate::nats_binary;

/// Checks the configuration, the nats-server and the model that a fleet of this directory would have.
pub(super) async fn check_directory() -> Vec<Check> {
    let mut checks = vec![Check {
        advice: "`ailoop chat` and `ailoop run` start one of their own, and `ailoop up` one that stays".to_owned(),
        ..Check::ok("fleet", "no fleet runs in this directory, or in one above it")
    }];
    checks.extend(check_configuration());
    checks.push(match nats_binary::find(&nats_search_paths()).await {
        Ok(path) => Check::ok("nats-server", path.display().to_string()),
        Err(failure) => failed("nats-server", &failure),
    });
    // A plan needs both.
    if checks.iter().any(|check| check.outcome == Outcome::Failed) {
        return checks;
    }
    let files = Files { root: None, out: None };
    checks.push(match FleetPlan::for_one_command(&files, None).await {
        Ok(plan) if plan.choice().is_rehearsal() => {
            let found = "no key and no model server was found: replies would come from a script";
            Check::warn("model", found, "set the key of a provider, such as OPENAI_API_KEY, or start Ollama")
        }
        Ok(plan) => Check::ok("model", format!("{}: {}", plan.choice().model, plan.choice().reason)),
        Err(failure) => failed("model", &failure),
    });
    checks
}

fn check_configuration() -> Vec<Check> {
    const GROUP: &str = "configuration";
    let report = config_check::check_config(&config_check::read_variables(), None);
    let mut checks: Vec<Check> = report
        .mistakes
        .iter()
        .map(|mistake| {
            let outcome = if mistake.is_warning { Outcome::Warning } else { Outcome::Failed };
            let place = if mistake.line == 0 { String::new() } else { format!(":{}:{}", mistake.line, mistake.column) };
            let found = format!("{}{place}: {}", mistake.origin, mistake.message);
            Check { outcome, ..Check::warn(GROUP, found, "`ailoop config check` shows the line") }
        })
        .collect();
    if checks.is_empty() {
        let agents = format::plural(report.agents as u64, "agent");
        checks.push(Check::ok(GROUP, format!("{agents}; read: {}", report.files.join(", "))));
    }
    checks
}

fn failed(group: &'static str, failure: &CommandFailure) -> Check {
    Check::fail(group, failure.message(), failure.advice().unwrap_or_default())
}
