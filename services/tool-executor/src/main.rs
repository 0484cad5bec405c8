//! Runs tool calls, and keeps the catalogue of tools.

use service::process::{Running, run};
use tool_executor::{Config, Executor};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run("tool-executor", "executor", async |config: Config, bus| {
        let nats = service::config::load("nats")?;
        let executor = Executor::start(Config { nats, ..config }, bus).await?;
        Ok(Running::new(executor.readiness(), |timeout| executor.drain(timeout)))
    })
    .await
}
