//! Checks where no fleet runs: whether one could start here.

use configuration::{Paths, Settings, TextFile};
use edge::{EdgeConfig, KeysFile};
use local_fleet::nats_binary;
use local_fleet::{FleetOptions, FleetPlan, nats_search_paths};
use terminal::failure::CommandFailure;
use terminal::format;
use tool_host::ToolHostConfig;

use super::check::{Check, Outcome};

/// Checks the configuration, the nats-server and the model that a fleet of this directory would have.
pub(super) async fn check_directory() -> Vec<Check> {
    let mut checks = vec![Check {
        advice: "`ailoop chat` and `ailoop run` start one of their own, and `ailoop up` one that stays".to_owned(),
        ..Check::ok("fleet", "no fleet runs in this directory, or in one above it")
    }];
    checks.extend(check_configuration());
    checks.extend(check_keys());
    checks.extend(check_programs());
    checks.push(match nats_binary::find(&nats_search_paths()).await {
        Ok(path) => Check::ok("nats-server", path.display().to_string()),
        Err(failure) => failed("nats-server", &failure),
    });
    // A plan needs both.
    if checks.iter().any(|check| check.outcome == Outcome::Failed) {
        return checks;
    }
    checks.push(match FleetPlan::for_one_command(FleetOptions::default()).await {
        Ok(plan) if plan.choice.is_rehearsal() => {
            let found = "no key and no model server was found: replies would come from a script";
            Check::warn("model", found, "set the key of a provider, such as OPENAI_API_KEY, or start Ollama")
        }
        Ok(plan) => Check::ok("model", format!("{}: {}", plan.choice.model, plan.choice.reason)),
        Err(failure) => failed("model", &failure),
    });
    checks
}

fn check_configuration() -> Vec<Check> {
    const GROUP: &str = "configuration";
    let untrusted = Paths::find(None).ok().and_then(|paths| paths.untrusted);
    let report = config_check::check_config(None);
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
    if let Some(untrusted) = untrusted {
        checks.push(Check::warn(GROUP, untrusted.to_string(), "AILOOP_CONFIG names another directory"));
    } else if checks.is_empty() {
        let agents = format::plural(report.agents as u64, "agent");
        checks.push(Check::ok(GROUP, format!("{agents}; read: {}", report.files.join(", "))));
    }
    checks
}

/// Checks the file of API keys of this configuration, if it names one.
pub(super) fn check_keys() -> Option<Check> {
    const GROUP: &str = "keys";
    // A mistake in the section is one of the configuration.
    let path = configuration::settings::load::<EdgeConfig>("edge").ok()?.keys_file?;
    let origin = path.display().to_string();
    let read = std::fs::read_to_string(&path).map_err(|error| format!("{origin}: {error}"));
    let parsed = read.and_then(|text| {
        KeysFile::parse(&TextFile { origin: origin.clone(), text }).map_err(|error| error.to_string())
    });
    Some(match parsed {
        Err(why) => Check::fail(GROUP, why, "correct the file of edge.keys_file"),
        Ok(file) => describe_keys(&origin, &file),
    })
}

fn describe_keys(origin: &str, file: &KeysFile) -> Check {
    let count = format::plural(file.keys.len() as u64, "key");
    let administrators = file.administrators();
    if administrators.is_empty() {
        return Check::ok("keys", format!("{origin}: {count}"));
    }
    let names = administrators.join(", ");
    let found = format!("{origin}: {count}; these have the scope administer and not operate: {names}");
    let advice = "they administer a tenant and do not see the fleet: give operate to those of operators".to_owned();
    Check { advice, ..Check::ok("keys", found) }
}

/// Warns about programs that can read the credentials of a fleet of this directory.
pub(super) fn check_programs() -> Option<Check> {
    let settings = Settings::read(None).ok()?;
    let tool_host: ToolHostConfig = settings.section(tool_host::SECTION).ok()?;
    let programs = tool_host.programs_of_this_user();
    let found = format!("{} can read .ailoop, and so answer approvals and read sessions", programs.join(", "));
    let advice = "trust these programs, or run them in a tool-host of another user: docs/tools.md";
    (!programs.is_empty()).then(|| Check::warn("programs", found, advice))
}

fn failed(group: &'static str, failure: &CommandFailure) -> Check {
    Check::fail(group, failure.message(), failure.advice().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_administer_without_operate_are_named_and_fail_nothing() {
        let hash = |digit: &str| digit.repeat(64);
        let text = format!(
            "keys:\n- {{id: one, sha256: {}, scopes: [administer]}}\n- {{id: two, sha256: {}, scopes: [operate]}}\n",
            hash("a"),
            hash("b")
        );
        let file = KeysFile::parse(&TextFile { origin: "keys.yaml".to_owned(), text }).unwrap();
        let check = describe_keys("keys.yaml", &file);
        assert_eq!(check.outcome, Outcome::Ok);
        assert_eq!(check.found, "keys.yaml: 2 keys; these have the scope administer and not operate: one");
        assert!(check.advice.contains("operate"), "{}", check.advice);
    }
}
