//! The cost of traces and metrics: the same load on fleets that differ only in what they send, in turns.
//!
//! A virtual machine is faster in one minute than in the next one, by a half. So the CPU of the fleet is compared with
//! the CPU that the model server, the tool and the load generator took in the same seconds for the same steps. Each round
//! measures every fleet, and the result is the median of the rounds.

use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval};

use crate::fixture::{Fixture, FleetShape, Telemetry};
use crate::load;
use crate::report::{self, Figure};

/// Interval at which a fleet is scraped: fifteen times as often as the chart has it done.
const SCRAPE_EVERY: Duration = Duration::from_secs(1);
/// Fleets that are compared with one whose telemetry is off.
const COMPARED: [(&str, Telemetry); 4] = [
    ("metrics", Telemetry::Unread),
    ("metrics_scraped", Telemetry::Scraped),
    ("traces_sampled", Telemetry::Sampled),
    ("traces_all", Telemetry::Full),
];

/// Options of the measurement of the overhead.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OverheadOptions {
    /// Sessions at the same time
    #[arg(long, default_value_t = 128)]
    concurrency: usize,
    /// Number of measurements of each fleet
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement of a fleet
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

/// Result of one fleet in one round.
#[derive(Debug, Clone, Copy)]
struct Observed {
    /// Steps in the time in which the yardstick takes a second of CPU: both cores are busy, so this is the throughput of
    /// a machine that does not change.
    throughput: f64,
    /// CPU of the services and of nats-server, as a multiple of the yardstick.
    cpu: f64,
}

/// Measures, prints and writes `overhead.json`.
pub(crate) async fn run(options: &OverheadOptions) -> anyhow::Result<()> {
    ailoop::install_crypto();
    let mut ratios: [[Vec<f64>; 2]; COMPARED.len()] = Default::default();
    for round in 1..=options.rounds {
        report::note(&format!("overhead: round {round} of {}", options.rounds));
        let off = observe(Telemetry::Off, options).await?;
        for ((name, telemetry), [throughput, cpu]) in COMPARED.into_iter().zip(&mut ratios) {
            let with = observe(telemetry, options).await?;
            throughput.push(with.throughput / off.throughput);
            cpu.push(with.cpu / off.cpu);
            report::note(&format!("overhead: {name}: {with:?}, without telemetry {off:?}"));
        }
    }
    let mut figures = Vec::new();
    for ((name, _), [throughput, cpu]) in COMPARED.into_iter().zip(ratios) {
        figures.push(Figure::new(format!("overhead.{name}.throughput_ratio"), median(throughput), "x"));
        figures.push(Figure::new(format!("overhead.{name}.cpu_per_step_ratio"), median(cpu), "x"));
    }
    report::write("overhead.json", &figures)?;
    report::print(&report::table(&figures));
    Ok(())
}

async fn observe(telemetry: Telemetry, options: &OverheadOptions) -> anyhow::Result<Observed> {
    let fixture = Fixture::start(FleetShape { telemetry, ..FleetShape::PLAIN }).await?;
    let measured = async {
        let (warm, window) = (Duration::from_secs(4), Duration::from_secs(options.seconds));
        let load = load::run(&fixture, options.concurrency, warm, window);
        match fixture.health.as_deref() {
            Some(address) => tokio::select! {
                measured = load => measured,
                failed = scrape(address) => Err(failed),
            },
            None => load.await,
        }
    };
    let measured = measured.await.with_context(|| fixture.warnings())?;
    let yardstick = report::yardstick_cpu_s_per_1000_steps(&measured);
    Ok(Observed {
        throughput: report::steps_per_s(&measured) * yardstick,
        cpu: report::cpu_s_per_1000_steps(&measured) / yardstick,
    })
}

/// Reads the metrics again and again; returns why it cannot.
async fn scrape(address: &str) -> anyhow::Error {
    let mut every = interval(SCRAPE_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        if let Err(error) = scrape_once(address).await {
            return error.context("the fleet cannot be scraped");
        }
    }
}

async fn scrape_once(address: &str) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    anyhow::ensure!(answer.contains("target_info{"), "no metrics: {answer}");
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
