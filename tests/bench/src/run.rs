//! One run: for each shape of the fleet what a step consists of, then each level of load and its floor right after it.

use std::time::Duration;

use anyhow::Context;

use crate::load::Measured;
use crate::nats::Keeping;
use crate::stage::{Shape, Stage};
use crate::{anatomy, floor, load, report};

/// What to measure.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Plan {
    /// Which shapes of the fleet
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Row::Together, Row::Apart, Row::Traced, Row::Always, Row::Three])]
    rows: Vec<Row>,
    /// Sessions at the same time, one level each, in place of what each shape has
    #[arg(long, value_delimiter = ',')]
    concurrency: Vec<usize>,
    /// How long each level is measured
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// How long each floor is measured
    #[arg(long, default_value_t = 5)]
    floor_seconds: u64,
    /// How long each level runs before it is measured
    #[arg(long, default_value_t = 4)]
    warm_seconds: u64,
}

/// A shape of the fleet that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Row {
    /// One of each service, in one process
    Together,
    /// Two of each service, each a process
    Apart,
    /// As together, with traces as many as by default
    Traced,
    /// As together, on a server that syncs each message
    Always,
    /// As together, on three servers that hold three copies
    Three,
}

impl Row {
    /// How its figures begin.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Together => "loop",
            Self::Apart => "loop.apart2",
            Self::Traced => "loop.traced",
            Self::Always => "loop.sync_always",
            Self::Three => "loop.r3",
        }
    }

    fn shape(self) -> Shape {
        let plain = Shape::PLAIN;
        match self {
            Self::Together => plain,
            Self::Apart => Shape { apart: Some(2), ..plain },
            Self::Traced => Shape { traced: true, ..plain },
            Self::Always => Shape { keeping: Keeping::Always, ..plain },
            Self::Three => Shape { keeping: Keeping::Three, ..plain },
        }
    }

    fn levels(self) -> &'static [usize] {
        match self {
            Self::Together => &[1, 16, 128, 1_000],
            Self::Apart | Self::Traced | Self::Three => &[16, 128],
            Self::Always => &[16],
        }
    }
}

/// A level and its floor.
#[derive(Debug)]
pub(crate) struct Level {
    /// The shape.
    pub(crate) row: Row,
    /// The loop.
    pub(crate) measured: Measured,
    /// As many raw messages.
    pub(crate) floor: floor::Floor,
}

/// Measures, prints and writes.
pub(crate) async fn run(plan: &Plan) -> anyhow::Result<()> {
    ailoop::install_crypto();
    let (mut all, mut first, mut tools) = (Vec::new(), None, Vec::new());
    for &row in &plan.rows {
        report::note(row.name());
        let stage = Stage::start(row.shape()).await?;
        report::note(&format!("processes: {}", stage.ids()));
        let result = levels(plan, row, &stage).await;
        let (anatomy, levels) = result.with_context(|| stage.warnings())?;
        if row == Row::Together {
            let calls = crate::tools::figures(&stage, &crate::tools::Plan::default()).await;
            tools = calls.with_context(|| stage.warnings())?;
        }
        first.get_or_insert(anatomy);
        all.extend(levels);
    }
    if plan.rows.contains(&Row::Together) {
        tools.extend(crate::gateway::figures().await?);
    }
    report::report(first.as_ref(), &all, tools)
}

async fn levels(plan: &Plan, row: Row, stage: &Stage) -> anyhow::Result<(anatomy::Anatomy, Vec<Level>)> {
    report::note("listening to some sessions, to count messages");
    let anatomy = anatomy::listen(stage).await?;
    let mut levels = Vec::new();
    let wanted = if plan.concurrency.is_empty() { row.levels() } else { &plan.concurrency };
    for &concurrency in wanted {
        report::note(&format!("{concurrency} sessions at the same time"));
        let (warm, window) = (Duration::from_secs(plan.warm_seconds), Duration::from_secs(plan.seconds));
        let measured = load::run(stage, concurrency, warm, window).await?;
        report::note("as many raw messages");
        let window = Duration::from_secs(plan.floor_seconds);
        let (nats, replicas) = (stage.nats.url(), row.shape().keeping.replicas());
        let raw = floor::of(&anatomy, nats, replicas, concurrency, Duration::from_secs(1), window);
        levels.push(Level { row, measured, floor: floor::run(stage, &raw).await? });
    }
    Ok((anatomy, levels))
}
