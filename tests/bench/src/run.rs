//! One run: what a step consists of, then each level of load and its floor right after it.

use std::time::Duration;

use anyhow::Context;

use crate::load::Measured;
use crate::stage::Stage;
use crate::{anatomy, floor, load, report};

/// What to measure.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Plan {
    /// Sessions at the same time, one level each
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 128])]
    concurrency: Vec<usize>,
    /// How long each level is measured
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// How long each floor is measured
    #[arg(long, default_value_t = 6)]
    floor_seconds: u64,
    /// How long each level runs before it is measured
    #[arg(long, default_value_t = 4)]
    warm_seconds: u64,
}

/// A level and its floor.
#[derive(Debug)]
pub(crate) struct Level {
    /// The loop.
    pub(crate) measured: Measured,
    /// As many raw messages.
    pub(crate) floor: floor::Floor,
}

/// Measures, prints and writes.
pub(crate) async fn run(plan: &Plan) -> anyhow::Result<()> {
    ailoop::install_crypto();
    let stage = Stage::start().await?;
    report::note(&format!("processes: {}", stage.ids()));
    let result = levels(plan, &stage).await;
    let (anatomy, levels) = result.with_context(|| stage.warnings())?;
    report::report(&anatomy, &levels)
}

async fn levels(plan: &Plan, stage: &Stage) -> anyhow::Result<(anatomy::Anatomy, Vec<Level>)> {
    report::note("listening to some sessions, to count messages");
    let anatomy = anatomy::listen(stage).await?;
    let mut levels = Vec::new();
    for &concurrency in &plan.concurrency {
        report::note(&format!("{concurrency} sessions at the same time"));
        let (warm, window) = (Duration::from_secs(plan.warm_seconds), Duration::from_secs(plan.seconds));
        let measured = load::run(stage, concurrency, warm, window).await?;
        report::note("as many raw messages");
        let window = Duration::from_secs(plan.floor_seconds);
        let raw = floor::of(&anatomy, &stage.nats.url, concurrency, Duration::from_secs(1), window);
        levels.push(Level { measured, floor: floor::run(stage, &raw).await? });
    }
    Ok((anatomy, levels))
}
