//! The environment in the manifests: services know every variable and accept its value.

use std::path::Path;

use ailoop_tests::cli::WorkDir;
use anyhow::Context as _;
use regex::Regex;

/// The variables of a manifest; those that come from secrets have some value.
fn variables(file: &str) -> anyhow::Result<Vec<(String, String)>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes/base").join(file);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let plain = Regex::new(r#"\{name: (AILOOP_\w+), value: "?([^"}]*)"?\}"#)?;
    let secret = Regex::new(r"- name: (AILOOP_\w+)\n\s+valueFrom: \{secretKeyRef")?;
    let plain = plain.captures_iter(&text).map(|found| (found[1].to_owned(), found[2].to_owned()));
    Ok(plain.chain(secret.captures_iter(&text).map(|found| (found[1].to_owned(), "secret".to_owned()))).collect())
}

#[tokio::test]
async fn service_accepts_the_environment_of_its_manifest() -> anyhow::Result<()> {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config").display().to_string();
    for service in ["orchestrator", "gateway", "executor", "tool-host", "composer", "edge", "bootstrap"] {
        let mut all = variables(&format!("{service}.yaml"))?;
        let credentials = if service == "tool-host" { "__LOGIN__CREDENTIALS" } else { "AILOOP__NATS__CREDENTIALS" };
        assert!(all.iter().any(|(name, _)| name.ends_with(credentials)), "{all:?}");
        if service != "bootstrap" {
            all.extend(variables("service-pod.yaml")?);
        }
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
fn nats_role_has_a_row_in_the_guide() -> anyhow::Result<()> {
    let operations = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md");
    let operations = std::fs::read_to_string(operations)?;
    for role in nats_permissions::roles() {
        assert!(operations.contains(&format!("| `{}` |", role.name)), "operations.md has no row for {}", role.name);
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
