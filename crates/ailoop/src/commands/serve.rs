//! Each service alone, as its own binary runs it: one image can be any of them.

use contract::ErrorCode;
use service::process::{Running, run};

use crate::failure::{Exit, Failure};

pub(super) async fn orchestrator() -> Result<Exit, Failure> {
    use loop_orchestrator::{Orchestrator, OrchestratorConfig};
    ended(
        run("loop-orchestrator", "orchestrator", async |config: OrchestratorConfig, bus| {
            let orchestrator = Orchestrator::start(config, bus).await?;
            Ok(Running::new(orchestrator.readiness(), |timeout| orchestrator.drain(timeout)))
        })
        .await,
    )
}

pub(super) async fn gateway() -> Result<Exit, Failure> {
    use model_gateway::{Config, Gateway};
    ended(
        run("model-gateway", "gateway", async |config: Config, bus| {
            let gateway = Gateway::start(config, bus).await?;
            Ok(Running::new(gateway.readiness(), |timeout| gateway.drain(timeout)))
        })
        .await,
    )
}

pub(super) async fn executor() -> Result<Exit, Failure> {
    use tool_executor::{Executor, ExecutorConfig};
    ended(
        run("tool-executor", "executor", async |config: ExecutorConfig, bus| {
            let executor = Executor::start(config, bus);
            Ok(Running::new(executor.readiness(), |timeout| executor.drain(timeout)))
        })
        .await,
    )
}

pub(super) async fn tool_host() -> Result<Exit, Failure> {
    ended(tool_host::run().await)
}

pub(super) async fn composer() -> Result<Exit, Failure> {
    use prompt_composer::{Composer, ComposerConfig};
    ended(
        run("prompt-composer", prompt_composer::SECTION, async |config: ComposerConfig, bus| {
            let composer = Composer::start(config.watch_config_file()?, bus).await?;
            Ok(Running::new(composer.readiness(), |timeout| composer.drain(timeout)))
        })
        .await,
    )
}

pub(super) async fn edge() -> Result<Exit, Failure> {
    use edge::{Config, Edge};
    ended(
        run("edge", "edge", async |config: Config, bus| {
            let edge = Edge::start(config, bus).await?;
            Ok(Running::new(edge.readiness(), |timeout| edge.drain(timeout)))
        })
        .await,
    )
}

fn ended(result: anyhow::Result<()>) -> Result<Exit, Failure> {
    result.map(|()| Exit::Done).map_err(|error| {
        let code = error.chain().find_map(code).unwrap_or(ErrorCode::Internal);
        Failure::new(code, format!("{error:#}"))
    })
}

fn code(cause: &(dyn std::error::Error + 'static)) -> Option<ErrorCode> {
    let config = cause.downcast_ref::<service::ConfigError>().map(service::ConfigError::code);
    let bus = cause.downcast_ref::<bus::BusError>().map(bus::BusError::code);
    let edge = cause.downcast_ref::<edge::StartError>().map(edge::StartError::code);
    let host = cause.downcast_ref::<tool_host::HostError>().map(tool_host::HostError::code);
    config.or(bus).or(edge).or(host)
}
