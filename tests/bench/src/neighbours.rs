//! Slowdown of the sessions of one tenant beside another tenant that overloads the same services.
//!
//! Sessions of the first tenant begin at an open rate: alone, then beside each kind of load, then beside all of them.

use std::sync::Arc;
use std::time::Duration;

use ailoop_tool::{Call, Effect, Serving, Tool, Tools};
use anyhow::{Context, ensure};
use contract::TenantId;
use futures::future::pending;
use proto::StartSessionRequest;
use proto::sessions_client::SessionsClient;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tonic::transport::Channel;

use crate::fixture::{Fixture, FleetShape};
use crate::load::{self, percentile};
use crate::model::{CALL_SILENT, CALL_STRICT, SAY_MUCH, SILENT, STRICT};
use crate::process::Process;
use crate::report::{self, Figure};

/// The tenant that overloads the services.
const GUEST: &str = "guest";
/// Its calls of a tool that never answers, and its slow streams.
const OPEN: usize = 1_000;
/// Chunks of a slow stream, a second apart: more than the measurement takes.
const SLOW_CHUNKS: usize = 3_600;
/// Sessions that it begins each second whose model calls a tool with a costly schema, or whose patterns are costly.
const COSTLY_PER_S: u32 = 4;
/// Sessions that it begins at the same time.
const BEGINNING: usize = 16;
/// Longest time until the catalogue shows the tools.
const KNOWN_WITHIN: Duration = Duration::from_secs(20);
/// Pause after the sessions of a load have begun, so that their calls reach their workers.
const SETTLE: Duration = Duration::from_secs(4);

/// Options of the neighbours measurement.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NeighboursOptions {
    /// Sessions that the first tenant begins each second
    #[arg(long, default_value_t = 15)]
    rate: u32,
    /// Seconds for which it is measured beside each load
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

/// Load of the second tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Calls of a tool that never answers.
    SilentTool,
    /// Replies that take an hour.
    SlowStreams,
    /// Calls whose arguments are long to check.
    CostlySchema,
    /// Replies of 64 KiB, searched with 64 patterns that are large when compiled, other ones in each session.
    CostlyPatterns,
}

const LOADS: [(&str, &[Load]); 5] = [
    ("silent_tool", &[Load::SilentTool]),
    ("slow_streams", &[Load::SlowStreams]),
    ("costly_schema", &[Load::CostlySchema]),
    ("costly_patterns", &[Load::CostlyPatterns]),
    ("all", &[Load::SilentTool, Load::SlowStreams, Load::CostlySchema, Load::CostlyPatterns]),
];

/// Measures, prints and writes `neighbours.json`.
pub(crate) async fn run(plan: &NeighboursOptions) -> anyhow::Result<()> {
    ailoop::install_crypto();
    let figures = figures(plan).await?;
    report::write("neighbours.json", &figures)?;
    report::print(&report::table(&figures));
    Ok(())
}

/// Every figure: each load on a fleet of its own.
pub(crate) async fn figures(plan: &NeighboursOptions) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, loads) in LOADS {
        report::note(&format!("neighbours: {name}"));
        let dir = tempfile::TempDir::with_prefix("ailoop-bench-")?;
        let mut slow = Process::start("pace", Process::part(&["pace"])?, dir.path())?;
        let url = slow.says(|log| Some(log.lines().next()?.to_owned())).await?;
        let shape = FleetShape { apart: Some(1), ..FleetShape::PLAIN };
        let mut fixture = Fixture::start_with(shape, &[("slow", &url)]).await?;
        let (alone, beside) = beside(&mut fixture, plan, loads).await.with_context(|| fixture.warnings())?;
        for p in [50, 99] {
            let figure = Figure::new(format!("neighbours.{name}.session_ms_p{p}"), percentile(&beside, p), "ms");
            figures.push(figure.over(percentile(&alone, p)));
        }
    }
    Ok(figures)
}

/// Milliseconds of sessions of the first tenant, alone and beside loads of the second one, sorted.
async fn beside(
    fixture: &mut Fixture,
    plan: &NeighboursOptions,
    loads: &[Load],
) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let edge = fixture.add_edge(GUEST).await?;
    let guest = SessionsClient::connect(edge).await?;
    let _tools = tools(fixture).await?;
    load::some(fixture, 20).await?;
    let window = Duration::from_secs(plan.seconds);
    let alone = load::at_rate(fixture, plan.rate, window).await?;
    let mut running = JoinSet::new();
    for load in loads {
        let (begun, all_begun) = oneshot::channel();
        running.spawn(keep_up(*load, guest.clone(), begun));
        tokio::select! {
            all = all_begun => all.context("a load ended early")?,
            Some(ended) = running.join_next() => { ended??; anyhow::bail!("a load ended early") }
        }
    }
    sleep(SETTLE).await;
    let measured = tokio::select! {
        measured = load::at_rate(fixture, plan.rate, window) => measured?,
        Some(ended) = running.join_next() => { ended??; anyhow::bail!("a load ended early") }
    };
    Ok((alone, measured))
}

async fn tools(fixture: &Fixture) -> anyhow::Result<Serving> {
    let silent = Tool::new(SILENT).effect(Effect::Pure).timeout(Duration::from_mins(10));
    let silent = silent.handler(|_: Call| pending::<Result<Value, ailoop_tool::ToolError>>());
    let strict = Tool::new(STRICT).effect(Effect::Pure).parameters(schema());
    let strict = strict.handler(|_: Call| async { Ok::<_, ailoop_tool::ToolError>("never") });
    let tools = Tools::connect(&fixture.nats.url()).await?.tenant(GUEST).concurrency(2 * OPEN);
    let serving = tools.tool(silent).tool(strict).serve().await?;
    let bus = bus::Bus::connect(&bus::NatsConfig { url: fixture.nats.url(), ..Default::default() }).await?;
    let deadline = Instant::now() + KNOWN_WITHIN;
    while bus.tools(&TenantId::new(GUEST)?).await?.len() < 2 {
        ensure!(Instant::now() < deadline, "the tools do not come into the catalogue");
        sleep(Duration::from_millis(50)).await;
    }
    bus.close().await;
    Ok(serving)
}

/// As costly as a schema may be: each value may be one of many things, and is none of them.
fn schema() -> Value {
    let levels = 4;
    let mut defs = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(format!("d{level}"), json!({"anyOf": [{"allOf": [next, next]}, {"allOf": [next, next]}]}));
    }
    defs.insert(format!("d{levels}"), json!({"type": "integer", "minimum": 1}));
    let any = json!({"$ref": "#/$defs/d0"});
    let values = json!({"type": "array", "items": {"anyOf": [any, any, any]}});
    json!({"type": "object", "properties": {"values": values}, "$defs": defs})
}

/// Begins the sessions of a load; ends only when something went wrong.
async fn keep_up(load: Load, client: SessionsClient<Channel>, all_begun: oneshot::Sender<()>) -> anyhow::Result<()> {
    let mut all_begun = Some(all_begun);
    // The receiver may have given up.
    let mut report = || {
        let _ = all_begun.take().map(|begun| begun.send(()));
    };
    match load {
        Load::SilentTool | Load::SlowStreams => {
            let places = Arc::new(Semaphore::new(BEGINNING));
            let mut begun = JoinSet::new();
            for n in 0..OPEN {
                let (client, place) = (client.clone(), places.clone().acquire_owned().await?);
                begun.spawn(async move {
                    let begun = begin(load, n, client).await;
                    drop(place);
                    begun
                });
            }
            while let Some(begun) = begun.join_next().await {
                begun??;
            }
            report();
        }
        Load::CostlySchema | Load::CostlyPatterns => {
            let mut ticks = interval(Duration::from_secs(1) / COSTLY_PER_S);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for n in 0.. {
                ticks.tick().await;
                begin(load, n, client.clone()).await?;
                report();
            }
        }
    }
    pending().await
}

async fn begin(load: Load, n: usize, mut client: SessionsClient<Channel>) -> anyhow::Result<()> {
    let mut start = StartSessionRequest {
        session_id: Some(format!("{load:?}-{n}")),
        agent: Some("guest".to_owned()),
        wait: Some(false),
        ..StartSessionRequest::default()
    };
    match load {
        Load::SilentTool => start.prompt = Some(CALL_SILENT.to_owned().into()),
        Load::SlowStreams => {
            start.model = Some("slow".to_owned());
            start.prompt = Some(format!("pace {SLOW_CHUNKS} 1000").into());
        }
        Load::CostlySchema => start.prompt = Some(CALL_STRICT.to_owned().into()),
        Load::CostlyPatterns => {
            start.prompt = Some(SAY_MUCH.to_owned().into());
            let list = |kind: &str| (0..32).map(|i| format!(r"[a-z]{{40}} {kind}{n}x{i}$")).collect::<Vec<_>>();
            let continuation = json!({
                "require_explicit_signal": false,
                "continuation_patterns": list("more"),
                "termination_patterns": list("done"),
            });
            start.continuation_json = Some(continuation.to_string());
        }
    }
    client.start_session(start).await.with_context(|| format!("{load:?} {n}"))?;
    Ok(())
}
