//! Invalid command lines and fleets that cannot start: one error with its stable code, the right exit code, and no
//! hang.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ailoop_tests::cli::WorkDir;
use contract::ErrorCode;

/// Runs a command and checks how it fails.
async fn check(work_dir: &WorkDir, line: &[&str], code: ErrorCode, exit: i32) -> anyhow::Result<()> {
    let outcome = work_dir.run(line).await?;
    assert_eq!((outcome.error()?, outcome.code), (code.as_str(), exit), "{line:?}: {}", outcome.stderr);
    assert!(outcome.stderr.contains("help: "), "{line:?} gives no help: {}", outcome.stderr);
    assert_eq!(outcome.stdout, "", "{line:?}");
    Ok(())
}

/// Creates a program that pretends to be a nats-server of some version.
fn pretender(path: &Path, version: &str) -> anyhow::Result<String> {
    std::fs::write(path, format!("#!/bin/sh\necho 'nats-server: v{version}'\n"))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path.display().to_string())
}

/// An address at which nothing listens.
fn unused_address() -> anyhow::Result<String> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_command_line_gives_one_error() -> anyhow::Result<()> {
    let work_dir = WorkDir::new()?;
    check(&work_dir, &["run", "--agent", "nobody", "hello"], ErrorCode::UnknownAgent, 1).await?;
    check(&work_dir, &["run", "--model", "nothing", "hello"], ErrorCode::UnknownModel, 1).await?;
    check(&work_dir, &["run", " \n"], ErrorCode::EmptyMessage, 2).await?;
    let unreachable = format!("http://{}", unused_address()?);
    check(&work_dir, &["run", "--url", &unreachable, "hello"], ErrorCode::Unavailable, 3).await?;
    check(&work_dir, &["watch", "s"], ErrorCode::Unavailable, 3).await?;

    let long = work_dir.path().join("long.txt");
    std::fs::write(&long, "x".repeat(2 << 20))?;
    let outcome = work_dir.run_with(["run", "-"], std::fs::File::open(&long)?).await?;
    assert_eq!((outcome.error()?, outcome.code), ("too_large", 2), "{}", outcome.stderr);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_that_cannot_start_reports_the_cause() -> anyhow::Result<()> {
    let missing = WorkDir::new()?.with("AILOOP_NATS_SERVER", "/nowhere/nats-server");
    check(&missing, &["run", "hello"], ErrorCode::NatsMissing, 1).await?;
    let dir = WorkDir::new()?;
    let old = WorkDir::new()?.with("AILOOP_NATS_SERVER", pretender(&dir.path().join("nats-server"), "2.9.10")?);
    check(&old, &["run", "hello"], ErrorCode::NatsTooOld, 1).await?;

    let work_dir = WorkDir::new()?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    check(&work_dir, &["up", "--grpc-port", "0", "--ws-port", &port], ErrorCode::PortInUse, 1).await?;
    check(&work_dir, &["up", "--nats", &format!("nats://{}", unused_address()?)], ErrorCode::NatsUnreachable, 3)
        .await?;
    let astray = WorkDir::new()?.with("AILOOP_CONFIG", "/nowhere");
    let outcome = astray.run(["run", "hello"]).await?;
    assert_eq!((outcome.error()?, outcome.code), ("bad_config", 1), "{}", outcome.stderr);
    let strange = WorkDir::new()?.with("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
    let outcome = strange.run(["run", "hello"]).await?;
    assert_eq!((outcome.error()?, outcome.code), ("bad_config", 1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("it must be grpc or http/protobuf"), "{}", outcome.stderr);
    Ok(())
}
