//! One run: for each shape of the fleet the messages of a step, then each level of load, followed by its floor.

use std::time::Duration;

use anyhow::Context;

use crate::fixture::Fixture;
use crate::level::{Level, Row};
use crate::{anatomy, floor, load, report};

/// Options of the main measurement.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RunOptions {
    /// Shapes of the fleet to measure
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Row::Together, Row::Apart, Row::Traced, Row::Always, Row::Three])]
    rows: Vec<Row>,
    /// Sessions at the same time, one level each, in place of what each shape has
    #[arg(long, value_delimiter = ',')]
    concurrency: Vec<usize>,
    /// Seconds for which each level is measured
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Seconds for which each floor is measured
    #[arg(long, default_value_t = 5)]
    floor_seconds: u64,
    /// Seconds for which each level runs before it is measured
    #[arg(long, default_value_t = 4)]
    warm_seconds: u64,
}

/// Measures, prints and writes.
pub(crate) async fn run(plan: &RunOptions) -> anyhow::Result<()> {
    ailoop::install_crypto();
    let messages = floor::FloorMessages::read()?;
    let (mut all, mut first, mut tools) = (Vec::new(), None, Vec::new());
    for &row in &plan.rows {
        report::note(row.name());
        let fixture = Fixture::start(row.shape()).await?;
        report::note(&format!("processes: {}", fixture.ids()));
        let result = levels(plan, row, &fixture, &messages).await;
        let (anatomy, levels) = result.with_context(|| fixture.warnings())?;
        if row == Row::Together {
            let calls = crate::tools::figures(&fixture, &crate::tools::ToolsOptions::default()).await;
            tools = calls.with_context(|| fixture.warnings())?;
        }
        first.get_or_insert(anatomy);
        all.extend(levels);
    }
    // What was measured so far is printed even if one of these fails.
    let mut failed = None;
    if plan.rows.contains(&Row::Together) {
        for (name, figures) in [
            ("the gateway alone", crate::gateway::figures().await),
            ("the edge", crate::edge::figures(&crate::edge::EdgeOptions::default()).await),
        ] {
            match figures {
                Ok(figures) => tools.extend(figures),
                Err(error) => failed = failed.or(Some(error.context(name))),
            }
        }
    }
    report::report(first.as_ref(), &messages, &all, tools)?;
    failed.map_or(Ok(()), Err)
}

async fn levels(
    plan: &RunOptions,
    row: Row,
    fixture: &Fixture,
    messages: &floor::FloorMessages,
) -> anyhow::Result<(anatomy::Anatomy, Vec<Level>)> {
    report::note("listening to some sessions, to count messages");
    let anatomy = anatomy::listen(fixture).await?;
    let mut levels = Vec::new();
    let wanted = if plan.concurrency.is_empty() { row.levels() } else { &plan.concurrency };
    for &concurrency in wanted {
        report::note(&format!("{concurrency} sessions at the same time"));
        let (warm, window) = (Duration::from_secs(plan.warm_seconds), Duration::from_secs(plan.seconds));
        let measured = load::run(fixture, concurrency, warm, window).await?;
        report::note("the floor: raw messages");
        let window = Duration::from_secs(plan.floor_seconds);
        let (nats, replicas) = (fixture.nats.url(), row.shape().durability.replicas);
        let raw = floor::of(messages, nats, replicas, concurrency, Duration::from_secs(1), window);
        levels.push(Level { row, measured, floor: floor::run(fixture, &raw).await? });
    }
    Ok((anatomy, levels))
}
