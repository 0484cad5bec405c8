//! Cost of a step of the loop, next to the cost of as many raw messages on the same nats-server: `make bench`.
//!
//! This binary plays each part in a separate process, so that the costs of each part are measured separately.

mod anatomy;
mod collector;
mod compacted;
mod edge;
mod figure;
mod fixture;
mod floor;
mod gateway;
mod growth;
mod idle;
mod level;
mod load;
mod memory;
mod model;
mod nats;
mod neighbours;
mod overhead;
mod paced_model;
mod process;
mod pure;
mod pure_session;
mod report;
mod requests;
mod run;
mod soak;
mod tool;
mod tools;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(about = "Measures the loop. Writes bench.json into the target directory.")]
struct Cli {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    plan: run::RunOptions,
}

/// Other measurements, and parts that another process of the bench plays.
#[derive(clap::Subcommand)]
enum Part {
    /// A service, as `ailoop <name>`.
    #[command(hide = true)]
    Service {
        /// Name of the service, such as `gateway`
        name: String,
        /// Options that the service is given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// A collector of traces that keeps none.
    #[command(hide = true)]
    Collector,
    /// Cost of a step among 100 000 idle sessions, and at the end of a long transcript: prints `loop.growth.*`
    Growth(growth::GrowthOptions),
    /// Whether memory stays flat, half an hour long
    Soak(soak::SoakOptions),
    /// The pure core alone, in seconds: prints `core.*` and writes nothing.
    Core,
    /// Memory of a session of one size
    #[command(hide = true)]
    Memory {
        /// Bytes of a transcript.
        bytes: usize,
    },
    /// Cost that the gateway adds to a model's reply: prints `gateway.*`
    Gateway(gateway::GatewayOptions),
    /// Time that the edge adds to a chat completion, and the cost of many watchers: prints `edge.*`
    Edge(edge::EdgeOptions),
    /// Cost of a tool call beside its tool: prints `tools.*`
    Tools(tools::ToolsOptions),
    /// Slowdown of a tenant's sessions beside another tenant that asks for too much: prints `neighbours.*`
    Neighbours(neighbours::NeighboursOptions),
    /// Cost of traces and metrics: prints `overhead.*`
    Overhead(overhead::OverheadOptions),
    /// A model server that answers at once
    #[command(hide = true)]
    Model,
    /// A model server that keeps to a timetable.
    #[command(hide = true)]
    Pace,
    /// A tool that answers at once
    #[command(hide = true)]
    Tool {
        /// URL of the nats-server
        nats: String,
    },
    /// A client that sends raw messages, for the floor
    #[command(hide = true)]
    Raw(floor::Raw),
    /// A client that sends requests of one size to the model server
    #[command(hide = true)]
    Posts(requests::Posts),
}

// As in the command `ailoop`, which says why.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Cli { part, plan } = Cli::parse();
    if let Some(Part::Service { name, options }) = &part {
        let words = ["ailoop", name].into_iter().chain(options.iter().map(String::as_str));
        let command = ailoop::args::Cli::parse_from(words);
        return ailoop::run(command, &terminal::Terminal::new());
    }
    match play(part, &plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::fail(&error);
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn play(part: Option<Part>, plan: &run::RunOptions) -> anyhow::Result<()> {
    match part {
        None => run::run(plan).await,
        Some(Part::Growth(plan)) => growth::run(&plan).await,
        Some(Part::Soak(plan)) => soak::run(&plan).await,
        Some(Part::Core) => report::core(),
        Some(Part::Memory { bytes }) => memory::print_ratio(bytes),
        Some(Part::Gateway(plan)) => gateway::run(&plan).await,
        Some(Part::Edge(options)) => edge::run(&options).await,
        Some(Part::Tools(plan)) => tools::run(&plan).await,
        Some(Part::Neighbours(plan)) => neighbours::run(&plan).await,
        Some(Part::Overhead(plan)) => overhead::run(&plan).await,
        Some(Part::Pace) => paced_model::serve().await,
        Some(Part::Model) => model::serve().await,
        Some(Part::Collector) => collector::serve().await,
        Some(Part::Tool { nats }) => tool::serve(&nats).await,
        Some(Part::Raw(raw)) => floor::raw(raw).await,
        Some(Part::Posts(posts)) => requests::post(posts).await,
        // It was played before there was a runtime.
        Some(Part::Service { .. }) => Ok(()),
    }
}
