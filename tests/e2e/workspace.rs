//! Dependencies between packages: which package may depend on which.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// The services: none may depend on another one.
const SERVICES: &[&str] =
    &["edge", "loop-orchestrator", "model-gateway", "prompt-composer", "tool-executor", "tool-host"];
/// Packages of the workspace, with those that each may depend on.
const ARROWS: &[(&str, &[&str])] = &[
    ("contract", &[]),
    ("ailoop-proto", &[]),
    ("ailoop-client", &["ailoop-proto"]),
    ("telemetry", &["contract"]),
    ("nats-credentials", &[]),
    ("ailoop-tool", &["nats-credentials"]),
    ("reply", &["contract"]),
    ("session", &["contract", "reply"]),
    ("session-api", &["contract", "session"]),
    ("session-trace", &["contract", "telemetry"]),
    ("tool-schema", &["contract"]),
    ("nats-permissions", &["contract"]),
    ("nats-auth", &["contract", "nats-credentials", "nats-permissions"]),
    ("bus", &["contract", "nats-credentials", "telemetry"]),
    ("bus-memory", &["bus", "contract"]),
    ("configuration", &["contract", "reply"]),
    ("service", &["bus", "configuration", "contract", "telemetry"]),
    ("loop-orchestrator", &["bus", "contract", "service", "session", "session-trace", "telemetry"]),
    ("model-gateway", &["bus", "configuration", "contract", "reply", "service", "telemetry"]),
    ("prompt-composer", &["bus", "configuration", "contract", "reply", "service", "telemetry"]),
    ("tool-executor", &["bus", "contract", "service", "telemetry", "tool-schema"]),
    (
        "tool-host",
        &["ailoop-tool", "bus", "configuration", "contract", "service", "session", "telemetry", "tool-schema"],
    ),
    (
        "edge-core",
        &["bus", "configuration", "contract", "service", "session", "session-api", "session-trace", "telemetry"],
    ),
    ("edge-openai", &["contract", "edge-core", "session", "session-api"]),
    ("edge-a2a", &["contract", "edge-core", "session-api"]),
    ("edge-ag-ui", &["contract", "edge-core", "service", "session", "session-api"]),
    ("edge-mcp", &["contract", "edge-core", "service", "session", "session-api"]),
    (
        "edge",
        &[
            "ailoop-proto",
            "bus",
            "configuration",
            "contract",
            "edge-a2a",
            "edge-ag-ui",
            "edge-core",
            "edge-mcp",
            "edge-openai",
            "service",
            "session-api",
            "telemetry",
        ],
    ),
    ("terminal", &["contract"]),
    ("session-view", &["ailoop-proto", "contract", "terminal"]),
    ("fleet-connection", &["ailoop-client", "ailoop-proto", "configuration", "contract", "terminal"]),
    ("acp", &["ailoop-client", "ailoop-proto", "contract", "fleet-connection", "service", "session-view", "terminal"]),
    ("store-admin", &["bus", "contract", "loop-orchestrator", "service", "session", "terminal"]),
    ("tool-trial", &["bus", "contract", "terminal", "tool-schema"]),
    (
        "config-check",
        &[
            "bus",
            "configuration",
            "contract",
            "edge",
            "loop-orchestrator",
            "model-gateway",
            "nats-permissions",
            "prompt-composer",
            "service",
            "telemetry",
            "tool-executor",
            "tool-host",
        ],
    ),
    (
        "local-fleet",
        &[
            "ailoop-client",
            "bus",
            "configuration",
            "contract",
            "edge",
            "fleet-connection",
            "loop-orchestrator",
            "model-gateway",
            "prompt-composer",
            "service",
            "telemetry",
            "terminal",
            "tool-executor",
            "tool-host",
        ],
    ),
];
/// Packages that may depend on any other: the command, and those that measure and test.
const ABOVE: &[&str] = &["ailoop", "ailoop-tests", "bench", "properties", "simulation"];
/// The packages of [`ABOVE`] that run simulations or tests, and may name the in-memory bus.
const TESTERS: &[&str] = &["ailoop-tests", "simulation"];
/// Dependencies that pure packages may not have: they wait, read clocks or draw random numbers.
const IMPURE: &[&str] = &[
    "async-nats",
    "async-trait",
    "axum",
    "config",
    "futures",
    "getrandom",
    "hyper",
    "mio",
    "rand",
    "reqwest",
    "tokio",
    "tonic",
    "tracing",
    "uuid",
];

/// Returns the names in the `[dependencies]` of each package of the workspace.
fn named() -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
    let cargo = configuration::env("CARGO").unwrap_or_else(|| "cargo".to_owned());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path", manifest])
        .output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let normal = |package: &Value| {
        let all = list(&package["dependencies"]);
        all.iter()
            .filter(|dependency| dependency["kind"].is_null())
            .map(|dependency| text(&dependency["name"]))
            .collect()
    };
    Ok(list(&metadata["packages"]).iter().map(|package| (text(&package["name"]), normal(package))).collect())
}

#[test]
fn package_depends_only_on_permitted_packages() -> anyhow::Result<()> {
    let named = named()?;
    let ours: BTreeSet<&str> = named.keys().map(String::as_str).collect();
    for (package, may) in ARROWS {
        let knows = named.get(*package).unwrap_or_else(|| panic!("there is no package {package}"));
        let knows: BTreeSet<&str> = knows.iter().map(String::as_str).filter(|name| ours.contains(name)).collect();
        let too_many: Vec<_> = knows.iter().filter(|name| !may.contains(name)).collect();
        assert!(too_many.is_empty(), "{package} must not depend on {too_many:?}");
        assert!(!SERVICES.contains(package) || may.iter().all(|name| !SERVICES.contains(name)));
    }
    let listed: BTreeSet<&str> = ARROWS.iter().map(|(package, _)| *package).collect();
    let others: Vec<_> = ours
        .iter()
        .filter(|name| !listed.contains(*name) && !ABOVE.contains(name) && !name.starts_with("example"))
        .collect();
    assert!(others.is_empty(), "{others:?} are in no list of this file");
    Ok(())
}

#[test]
fn architecture_page_has_a_row_for_each_package() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md"))?;
    let table = page.split("\n## ").find(|section| section.starts_with("Packages\n")).unwrap_or_default();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| [")?.split(']').next());
    let (rows, packages): (BTreeSet<&str>, _) = (rows.collect(), named()?);
    assert_eq!(rows, packages.keys().map(String::as_str).collect());
    Ok(())
}

#[test]
fn in_memory_bus_only_tests_depend_on_it() -> anyhow::Result<()> {
    let named = named()?;
    let users: BTreeSet<&str> = named
        .iter()
        .filter(|(_, dependencies)| dependencies.contains("bus-memory"))
        .map(|(package, _)| package.as_str())
        .collect();
    let shipped: Vec<_> = users.iter().filter(|package| !TESTERS.contains(package)).collect();
    assert!(shipped.is_empty(), "{shipped:?} must name bus-memory in [dev-dependencies] only");
    Ok(())
}

#[test]
fn i1_pure_packages_do_no_io() -> anyhow::Result<()> {
    let named = named()?;
    for package in ["contract", "session", "session-api"] {
        let impure: Vec<_> = named[package].iter().filter(|name| IMPURE.contains(&name.as_str())).collect();
        assert!(impure.is_empty(), "{package} names {impure:?}");
    }
    Ok(())
}
