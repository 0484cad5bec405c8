//! Runs one service alone, as its own binary does, so that one image can be any of them.

use contract::ErrorCode;
use service::process::{Running, run};

use crate::failure::{CommandFailure, Exit};

pub(super) async fn run_orchestrator() -> Result<Exit, CommandFailure> {
    use loop_orchestrator::{Orchestrator, OrchestratorConfig};
    to_exit(
        run("loop-orchestrator", "orchestrator", async |config: OrchestratorConfig, bus| {
            let orchestrator = Orchestrator::start(config, bus).await?;
            Ok(Running::new(orchestrator.readiness(), |timeout| orchestrator.drain(timeout)))
        })
        .await,
    )
}

pub(super) async fn run_gateway() -> Result<Exit, CommandFailure> {
    use model_gateway::{Config, Gateway};
    to_exit(
        run("model-gateway", "gateway", async |config: Config, bus| {
            let gateway = Gateway::start(config, bus).await?;
            Ok(Running::new(gateway.readiness(), |timeout| gateway.drain(timeout)))
        })
        .await,
    )
}

pub(super) async fn run_executor() -> Result<Exit, CommandFailure> {
    use tool_executor::{Executor, ExecutorConfig};
    to_exit(
        run("tool-executor", "executor", async |config: ExecutorConfig, bus| {
            let executor = Executor::start(config, bus);
            Ok(Running::new(executor.readiness(), |timeout| executor.drain(timeout)))
        })
        .await,
    )
}

pub(super) async fn run_tool_host() -> Result<Exit, CommandFailure> {
    to_exit(tool_host::run().await)
}

pub(super) async fn run_composer() -> Result<Exit, CommandFailure> {
    use prompt_composer::{Composer, ComposerConfig};
    to_exit(
        run("prompt-composer", prompt_composer::SECTION, async |config: ComposerConfig, bus| {
            let composer = Composer::start(config.watch_config_file()?, bus).await?;
            Ok(Running::new(composer.readiness(), |timeout| composer.drain(timeout)))
        })
        .await,
    )
}

pub(super) async fn run_edge() -> Result<Exit, CommandFailure> {
    use edge::{Config, Edge};
    to_exit(
        run("edge", "edge", async |config: Config, bus| {
            let edge = Edge::start(config, bus).await?;
            Ok(Running::new(edge.readiness(), |timeout| edge.drain(timeout)))
        })
        .await,
    )
}

fn to_exit(result: anyhow::Result<()>) -> Result<Exit, CommandFailure> {
    result.map(|()| Exit::Done).map_err(|error| {
        let code = error.chain().find_map(error_code).unwrap_or(ErrorCode::Internal);
        CommandFailure::new(code, format!("{error:#}"))
    })
}

fn error_code(cause: &(dyn std::error::Error + 'static)) -> Option<ErrorCode> {
    let config = cause.downcast_ref::<service::ConfigError>().map(service::ConfigError::code);
    let bus = cause.downcast_ref::<bus::BusError>().map(bus::BusError::code);
    let edge = cause.downcast_ref::<edge::StartError>().map(edge::StartError::code);
    let host = cause.downcast_ref::<tool_host::HostError>().map(tool_host::HostError::code);
    config.or(bus).or(edge).or(host)
}
