//! The manifests and the chart: services know every variable and accept its value; roles and consumers are those of the
//! code. What the manifests are by themselves, `make deploy-check` checks.

use std::path::{Path, PathBuf};

use ailoop_tests::cli::WorkDir;
use anyhow::Context;
use contract::streams::Queue;
use regex::Regex;
use serde_json::Value;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// The variables of a manifest; those that come from secrets have some value.
fn variables(file: &str) -> anyhow::Result<Vec<(String, String)>> {
    let text = read(&deploy().join("kubernetes/base").join(file))?;
    let plain = Regex::new(r#"\{name: (AILOOP_\w+), value: "?([^"}]*)"?\}"#)?;
    let secret = Regex::new(r"- name: (AILOOP_\w+)\n\s+valueFrom: \{secretKeyRef")?;
    let plain = plain.captures_iter(&text).map(|found| (found[1].to_owned(), found[2].to_owned()));
    Ok(plain.chain(secret.captures_iter(&text).map(|found| (found[1].to_owned(), "secret".to_owned()))).collect())
}

#[tokio::test]
async fn service_accepts_the_environment_of_its_manifest() -> anyhow::Result<()> {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config").display().to_string();
    for service in ["orchestrator", "gateway", "executor", "tool-host", "composer", "edge", "bootstrap"] {
        let all = variables(&format!("{service}.yaml"))?;
        let credentials = if service == "tool-host" { "__LOGIN__CREDENTIALS" } else { "AILOOP__NATS__CREDENTIALS" };
        assert!(all.iter().any(|(name, _)| name.ends_with(credentials)), "{all:?}");
        // The directory of the pod, and no nats-server: configuration is read first.
        let here = [
            ("AILOOP_CONFIG", config.as_str()),
            ("AILOOP__NATS__URL", "nats://127.0.0.1:1"),
            ("AILOOP__NATS__START_WAIT_SECONDS", "0"),
        ];
        let work_dir = all.into_iter().fold(WorkDir::new()?, |work_dir, (name, value)| work_dir.with(&name, value));
        let work_dir = here.into_iter().fold(work_dir, |work_dir, (name, value)| work_dir.with(name, value));
        let outcome = work_dir.run([service]).await?;
        // A service reads its credentials file before it connects, and here is none.
        let wants_credentials = outcome.stderr.contains("unauthorized") && outcome.stderr.contains(".creds");
        assert!(wants_credentials || outcome.stderr.contains("nats_unreachable"), "{service}: {}", outcome.stderr);
    }
    Ok(())
}

#[test]
fn nats_role_is_known_to_the_chart_and_has_a_row_in_the_guide() -> anyhow::Result<()> {
    let schema: Value = serde_json::from_str(&read(&deploy().join("helm/ailoop/values.schema.json"))?)?;
    let known = schema["definitions"]["role"]["enum"].as_array().context("the roles of the chart")?;
    let security = read(&deploy().join("../docs/security.md"))?;
    for role in nats_permissions::roles() {
        assert!(known.iter().any(|known| known == role.name), "values.types.yaml lacks the role {}", role.name);
        assert!(security.contains(&format!("| `{}` |", role.name)), "security.md has no row for {}", role.name);
    }
    Ok(())
}

/// KEDA takes a consumer that does not exist for a full queue or an empty one.
#[test]
fn queue_has_an_autoscaler_in_the_chart() -> anyhow::Result<()> {
    let template = read(&deploy().join("helm/ailoop/templates/autoscaling.yaml"))?;
    for queue in Queue::ALL {
        let consumer = format!("(list \"{}\" \"{}\")", queue.stream().name(), queue.durable());
        assert!(template.contains(&consumer), "autoscaling.yaml lacks {consumer}");
    }
    Ok(())
}

#[tokio::test]
async fn unknown_variable_in_a_manifest_is_rejected() -> anyhow::Result<()> {
    let work_dir = WorkDir::new()?.with("AILOOP__EDGE__WS__LISTN", "0.0.0.0:7070");
    let work_dir =
        work_dir.with("AILOOP__NATS__URL", "nats://127.0.0.1:1").with("AILOOP__NATS__START_WAIT_SECONDS", "0");
    let outcome = work_dir.run(["edge"]).await?;
    assert!(outcome.stderr.contains("AILOOP__EDGE__WS__LISTN"), "{}", outcome.stderr);
    Ok(())
}
