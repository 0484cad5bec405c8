//! Every metric. Labels come from small sets: never a session, call or command id.
//!
//! Before [`crate::init`] nothing is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, MeterProvider, UpDownCounter};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::process_collector::ProcessCollector;
use prometheus::{Encoder, TextEncoder};

use crate::build::BuildInfo;
use crate::names::{attr, label as names};

static METRICS: OnceLock<Metrics> = OnceLock::new();

/// Declares the instruments: for each its type, what makes it, and its name. Prometheus writes `_` for `.` and adds the
/// unit.
macro_rules! instruments {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $make:ident($name:literal $(, $bounds:ident)?),)*) => {
        struct Metrics {
            registry: prometheus::Registry,
            $($(#[$doc])* $field: $type,)*
        }

        impl Metrics {
            fn new(meter: &Meter, registry: prometheus::Registry) -> Self {
                Self { registry, $($field: $make(meter, $name $(, $bounds)?),)* }
            }
        }
    };
}

instruments! {
    /// Counter: sessions that began.
    sessions_started: Counter<u64> = count("ailoop.sessions.started"),
    /// Counter by `reason`: sessions that ended.
    sessions_ended: Counter<u64> = count("ailoop.sessions.ended"),
    /// Gauge by `phase`: sessions of the edge's tenant in the index; each edge says the same.
    sessions: Gauge<u64> = gauge("ailoop.sessions"),
    /// Gauge: sessions of the edge's tenant that wait for a person; each edge says the same.
    sessions_with_gates: Gauge<u64> = gauge("ailoop.sessions.with_gates"),
    /// Counter by agent, model and `reason`: turns that ended.
    turns: Counter<u64> = count("ailoop.turns"),
    /// Counter by agent and model: turns that ended as completed and that the user had to ask to go on.
    premature: Counter<u64> = count("ailoop.turns.premature"),
    /// Counter by agent and model, US dollars: what turns cost, without what they delegated.
    cost: Counter<f64> = sum("ailoop.turns.cost.usd"),
    /// Counter by agent and model: steps.
    steps: Counter<u64> = count("ailoop.steps"),
    /// Counter by agent, model and `source`: decisions about a reply.
    decisions: Counter<u64> = count("ailoop.decisions"),
    /// Counter: commits that another replica was faster with.
    commits_refused: Counter<u64> = count("ailoop.commits.refused"),
    /// Counter by `queue`: items delivered more than once.
    redeliveries: Counter<u64> = count("ailoop.redeliveries"),
    /// Counter by `queue`: items handed back since their tenant, tool, model or session had enough places.
    handed_back: Counter<u64> = count("ailoop.handed_back"),
    /// Counter by `queue`: results that no orchestrator took by request, so that they were stored.
    results_stored: Counter<u64> = count("ailoop.results.stored"),
    /// Gauge by `queue`, `tenant`, `resource`: places of workers that are held.
    places_held: UpDownCounter<i64> = balance("ailoop.places.held"),
    /// Gauge by `queue`: items that no worker holds; each edge says the same.
    queue_waiting: Gauge<u64> = gauge("ailoop.queue.waiting"),
    /// Gauge by `queue`: items that were delivered and not settled; each edge says the same.
    queue_held: Gauge<u64> = gauge("ailoop.queue.held"),
    /// Gauge by `queue`, seconds: age of the oldest item, held or not; of `due` that of any timer, also a future one.
    /// Each edge says the same.
    queue_oldest: Gauge<f64> = age("ailoop.queue.oldest"),
    /// Gauge by `queue`: requests of workers for items; 0 where no worker takes items. Each edge says the same.
    queue_pullers: Gauge<u64> = gauge("ailoop.queue.pullers"),
    /// Gauge by `queue`: items that run at this worker.
    work_running: Gauge<u64> = gauge("ailoop.work.running"),
    /// Gauge by `queue`: items that may run at this worker at the same time.
    work_max: Gauge<u64> = gauge("ailoop.work.max"),
    /// Gauge: 1 while this process is connected to NATS.
    nats_connected: Gauge<u64> = gauge("ailoop.nats.connected"),
    /// Gauge by `cell`: 1 while this edge can reach the cell.
    cell_reachable: Gauge<u64> = gauge("ailoop.cell.reachable"),
    /// Counter: connections to NATS after the first one.
    nats_reconnects: Counter<u64> = count("ailoop.nats.reconnects"),
    /// Gauge by provider and model: 1 from the failures that open a circuit breaker until a request succeeds.
    breaker_open: Gauge<u64> = gauge("ailoop.model.breaker.open"),
    /// Gauge by tenant and budget: the part of it that was spent in its period, 0 to 1 and above.
    budget_spent: Gauge<f64> = ratio("ailoop.budget.spent.ratio"),
    /// Gauge: 1, with `version` and `commit` of the process.
    build: Gauge<u64> = gauge("ailoop.build.info"),
    /// Histogram by agent, model and `reason`, seconds: one turn.
    turn_duration: Histogram<f64> = seconds("ailoop.turn.duration", LONG),
    /// Histogram by `queue`, seconds: from publication to the first delivery.
    queue_wait: Histogram<f64> = seconds("ailoop.queue.wait", SLOW),
    /// Counter by `queue`: items that failed for good.
    dead_letters: Counter<u64> = count("ailoop.dead_letters"),
    /// Histogram, seconds: one `decide`.
    decide: Histogram<f64> = seconds("ailoop.decide.duration", QUICK),
    /// Histogram, seconds: one composition.
    compose: Histogram<f64> = seconds("ailoop.prompt.compose.duration", QUICK),
    /// Histogram by model, provider and error, seconds: one model call.
    chat: Histogram<f64> = seconds("gen_ai.client.operation.duration", SLOW),
    /// Histogram by model and provider, seconds: to the first chunk.
    first_chunk: Histogram<f64> = seconds("gen_ai.client.operation.time_to_first_chunk", SLOW),
    /// Counter by model and `gen_ai.token.type`: tokens.
    tokens: Counter<u64> = count("gen_ai.client.token.usage"),
    /// Counter by model and provider, US dollars: what model calls cost, tries that failed included.
    model_cost: Counter<f64> = sum("ailoop.model.cost.usd"),
    /// Counter by model, provider and error: requests that failed and were made again, here or at another provider.
    model_retries: Counter<u64> = count("ailoop.model.retries"),
    /// Histogram by tool and outcome, seconds: one tool call.
    tool: Histogram<f64> = seconds("gen_ai.execute_tool.duration", SLOW),
    /// Up-down counter by `protocol`: open connections of clients, with accepted credentials.
    connections: UpDownCounter<i64> = balance("ailoop.edge.connections"),
    /// Counter by `protocol` and `reason` (`timeout`, `evicted`, `accept_failed`, `limit`): connections that the server
    /// closed or refused, or could not accept.
    connections_closed: Counter<u64> = count("ailoop.edge.connections_closed"),
    /// Counter by `method` and `code`: requests of clients.
    requests: Counter<u64> = count("ailoop.edge.requests"),
    /// Counter: clients that were let go because they did not read.
    slow_clients: Counter<u64> = count("ailoop.edge.slow_clients"),
    /// Up-down counter by `cache`, bytes: what the caches of a process hold, about.
    cache_bytes: UpDownCounter<i64> = balance("ailoop.cache.bytes"),
    /// Counter by `part` and `outcome` (`taken`, `broken`): changed configuration files that were read again.
    config_reloads: Counter<u64> = count("ailoop.config.reloads"),
    /// Up-down counter by `part`: 1 while files cannot be used and the last good ones are.
    config_broken: UpDownCounter<i64> = balance("ailoop.config.broken"),
}

fn count(meter: &Meter, name: &'static str) -> Counter<u64> {
    meter.u64_counter(name).build()
}

fn sum(meter: &Meter, name: &'static str) -> Counter<f64> {
    meter.f64_counter(name).build()
}

fn gauge(meter: &Meter, name: &'static str) -> Gauge<u64> {
    meter.u64_gauge(name).build()
}

fn ratio(meter: &Meter, name: &'static str) -> Gauge<f64> {
    meter.f64_gauge(name).build()
}

fn age(meter: &Meter, name: &'static str) -> Gauge<f64> {
    meter.f64_gauge(name).with_unit("s").build()
}

fn balance(meter: &Meter, name: &'static str) -> UpDownCounter<i64> {
    meter.i64_up_down_counter(name).build()
}

fn seconds(meter: &Meter, name: &'static str, bounds: &[f64]) -> Histogram<f64> {
    meter.f64_histogram(name).with_unit("s").with_boundaries(bounds.to_vec()).build()
}

/// Bounds in seconds for what takes microseconds to milliseconds.
const QUICK: &[f64] = &[0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5];
/// Bounds in seconds for what waits for others.
const SLOW: &[f64] = &[
    0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 120.0, 180.0,
    240.0, 300.0, 600.0,
];
/// Bounds in seconds for turns: people may be asked in between.
const LONG: &[f64] =
    &[0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 3_600.0, 21_600.0, 86_400.0];
/// Values of one label that come from clients, such as models: the others are counted as `other`.
const VALUES_MAX: usize = 128;

/// Makes the instruments; `false` when they were made before.
pub(crate) fn install(provider: &SdkMeterProvider, registry: prometheus::Registry) -> bool {
    // Resident memory, CPU time, open files and start time, under the names that Prometheus knows.
    let process = registry.register(Box::new(ProcessCollector::for_self()));
    if let Err(error) = process {
        tracing::warn!(%error, "the process has no metrics of its own");
    }
    METRICS.set(Metrics::new(&provider.meter("ailoop"), registry)).is_ok()
}

fn with(record: impl FnOnce(&Metrics)) {
    if let Some(metrics) = METRICS.get() {
        record(metrics);
    }
}

fn label(key: &'static str, value: &str) -> KeyValue {
    KeyValue::new(key, value.to_owned())
}

/// A label whose values come from clients: the first 128 by name, the others as `other`, so that no client makes series
/// without end.
fn bounded(key: &'static str, value: &str) -> KeyValue {
    static KNOWN: Mutex<BTreeMap<&'static str, BTreeSet<String>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let values = known.entry(key).or_default();
    if !values.contains(value) {
        if values.len() >= VALUES_MAX {
            return KeyValue::new(key, "other");
        }
        values.insert(value.to_owned());
    }
    label(key, value)
}

/// Counters that exist before the first event: an alert on an increase would miss the first one otherwise.
pub fn start(build: BuildInfo, queues: &[&str]) {
    with(|m| {
        m.build.record(1, &[label(names::VERSION, build.version), label(names::COMMIT, build.commit)]);
        for counter in [&m.sessions_started, &m.commits_refused, &m.slow_clients, &m.nats_reconnects] {
            counter.add(0, &[]);
        }
        for queue in queues {
            for counter in [&m.dead_letters, &m.redeliveries, &m.handed_back] {
                counter.add(0, &[label(names::QUEUE, queue)]);
            }
        }
    });
}

/// Items that a queue holds now, and the workers' requests for them.
#[derive(Debug, Clone, Copy)]
pub struct QueueLevel {
    /// Items that no worker holds.
    pub waiting: u64,
    /// Items that were delivered and not settled.
    pub held: u64,
    /// Age of the oldest item in seconds; 0 where there is none.
    pub oldest: f64,
    /// Requests of workers for items.
    pub pullers: u64,
}

/// Records the present level of a queue.
pub fn queue(name: &str, level: QueueLevel) {
    with(|m| {
        let labels = [label(names::QUEUE, name)];
        m.queue_waiting.record(level.waiting, &labels);
        m.queue_held.record(level.held, &labels);
        m.queue_oldest.record(level.oldest, &labels);
        m.queue_pullers.record(level.pullers, &labels);
    });
}

/// Records the number of items that run at this worker, and their maximum.
pub fn work(queue: &str, running: usize, max: usize) {
    with(|m| {
        let labels = [label(names::QUEUE, queue)];
        m.work_running.record(running as u64, &labels);
        m.work_max.record(max as u64, &labels);
    });
}

/// Sessions of a phase in the index.
pub fn sessions(phase: &str, number: usize) {
    with(|m| m.sessions.record(number as u64, &[label(names::PHASE, phase)]));
}

/// Sessions that wait for a person.
pub fn sessions_with_gates(number: usize) {
    with(|m| m.sessions_with_gates.record(number as u64, &[]));
}

/// Whether this process is connected to NATS.
pub fn nats_connected(is_connected: bool) {
    with(|m| m.nats_connected.record(u64::from(is_connected), &[]));
}

/// Whether this edge can reach a cell.
pub fn cell_reachable(cell: &str, is_reachable: bool) {
    with(|m| m.cell_reachable.record(u64::from(is_reachable), &[label(names::CELL, cell)]));
}

/// This process connected to NATS again.
pub fn nats_reconnect() {
    with(|m| m.nats_reconnects.add(1, &[]));
}

/// Whether a circuit breaker of a provider's model sends no requests.
pub fn breaker(provider: &str, model: &str, is_open: bool) {
    let labels = || [label(attr::PROVIDER, provider), bounded(attr::MODEL, model)];
    with(|m| m.breaker_open.record(u64::from(is_open), &labels()));
}

/// Records the spent fraction of a budget: 0 to 1, and above when it is exceeded. `budget` is its name within the
/// tenant, such as `day` or `day.e`.
pub fn budget(tenant: &str, budget: &str, spent: f64) {
    let labels = || [bounded(names::TENANT, tenant), bounded(names::BUDGET, budget)];
    with(|m| m.budget_spent.record(spent, &labels()));
}

/// Everything counted so far, as Prometheus text; empty before [`crate::init`].
pub fn render() -> String {
    let Some(metrics) = METRICS.get() else { return String::new() };
    let mut text = Vec::new();
    match TextEncoder::new().encode(&metrics.registry.gather(), &mut text) {
        Ok(()) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => format!("# {error}\n"),
    }
}

/// Counts a session that began.
pub fn session_started() {
    with(|m| m.sessions_started.add(1, &[]));
}

/// A session ended, and why.
pub fn session_ended(reason: &str) {
    with(|m| m.sessions_ended.add(1, &[label(names::REASON, reason)]));
}

/// Agent of `agents.yaml` and model of `models.yaml` of a turn, as labels.
#[derive(Debug, Clone, Copy)]
pub struct Who<'a> {
    /// Key of the agent in `agents.yaml`.
    pub agent: &'a str,
    /// Id of the model as the session names it.
    pub model: &'a str,
}

impl Who<'_> {
    fn labels<const N: usize>(self, more: [(&'static str, &str); N]) -> Vec<KeyValue> {
        let own = [(attr::AGENT, self.agent), (attr::MODEL, self.model)];
        own.into_iter().chain(more).map(|(key, value)| bounded(key, value)).collect()
    }
}

/// Records the time of a turn, from its beginning in the log to its end.
pub fn turn_duration(who: Who<'_>, stop_reason: &str, took: Duration) {
    with(|m| m.turn_duration.record(took.as_secs_f64(), &who.labels([(names::REASON, stop_reason)])));
}

/// A turn ended, and why.
pub fn turn(who: Who<'_>, stop_reason: &str) {
    with(|m| m.turns.add(1, &who.labels([(names::REASON, stop_reason)])));
}

/// Counts what a session used itself, in US dollars: in a turn that ended, or by a result that came after its turn.
pub fn turn_cost(who: Who<'_>, cost_usd: f64) {
    if cost_usd > 0.0 {
        with(|m| m.cost.add(cost_usd, &who.labels([])));
    }
}

/// A turn began because the user asked to go on with what had ended as completed.
pub fn premature(who: Who<'_>) {
    with(|m| m.premature.add(1, &who.labels([])));
}

/// Counts a step that began.
pub fn step(who: Who<'_>) {
    with(|m| m.steps.add(1, &who.labels([])));
}

/// A reply was decided about. Of a source such as `pattern:<which>` only the word before the colon is kept.
pub fn decision(who: Who<'_>, source: &str) {
    let kind = source.split_once(':').map_or(source, |(kind, _)| kind);
    with(|m| m.decisions.add(1, &who.labels([(names::SOURCE, kind)])));
}

/// An item was delivered again.
pub fn redelivery(queue: &str) {
    with(|m| m.redeliveries.add(1, &[label(names::QUEUE, queue)]));
}

/// An item was handed back since its tenant, tool, model or session has enough places.
pub fn handed_back(queue: &str) {
    with(|m| m.handed_back.add(1, &[label(names::QUEUE, queue)]));
}

/// A result was stored for an orchestrator, since none took it by request.
pub fn result_stored(queue: &str) {
    with(|m| m.results_stored.add(1, &[label(names::QUEUE, queue)]));
}

/// A worker gave places to a tenant's items, or took them back. `resource` is a tool or a model; the caller bounds how
/// many tenants and resources there are.
pub fn places_held(queue: &str, tenant: &str, resource: &str, delta: i64) {
    let labels = [(names::QUEUE, queue), (names::TENANT, tenant), (names::RESOURCE, resource)];
    with(|m| m.places_held.add(delta, &labels.map(|(key, value)| label(key, value))));
}

/// Another replica was faster with a commit.
pub fn refused_commit() {
    with(|m| m.commits_refused.add(1, &[]));
}

/// Records the time that an item waited for its first delivery.
pub fn queue_wait(queue: &str, wait: Duration) {
    with(|m| m.queue_wait.record(wait.as_secs_f64(), &[label(names::QUEUE, queue)]));
}

/// An item failed for good.
pub fn dead_letter(queue: &str) {
    with(|m| m.dead_letters.add(1, &[label(names::QUEUE, queue)]));
}

/// Records the time of one `decide`.
pub fn decide_duration(took: Duration) {
    with(|m| m.decide.record(took.as_secs_f64(), &[]));
}

/// Records the time of one composition.
pub fn compose_duration(took: Duration) {
    with(|m| m.compose.record(took.as_secs_f64(), &[]));
}

/// Records the time of one model call; `error` is a stable code if it failed.
pub fn chat(provider: &str, model: &str, took: Duration, error: Option<&str>) {
    with(|m| {
        let mut labels = vec![label(attr::PROVIDER, provider), bounded(attr::MODEL, model)];
        labels.extend(error.map(|code| label(attr::ERROR, code)));
        m.chat.record(took.as_secs_f64(), &labels);
    });
}

/// Records the time from a model call to its first chunk.
pub fn first_chunk(provider: &str, model: &str, took: Duration) {
    let labels = || [label(attr::PROVIDER, provider), bounded(attr::MODEL, model)];
    with(|m| m.first_chunk.record(took.as_secs_f64(), &labels()));
}

/// Adds the cost of a model call in US dollars.
pub fn model_cost(provider: &str, model: &str, usd: f64) {
    with(|m| m.model_cost.add(usd, &[label(attr::PROVIDER, provider), bounded(attr::MODEL, model)]));
}

/// A request of a model call failed and is made again.
pub fn model_retry(provider: &str, model: &str, error: &str) {
    let labels = || [label(attr::PROVIDER, provider), bounded(attr::MODEL, model), label(attr::ERROR, error)];
    with(|m| m.model_retries.add(1, &labels()));
}

/// Tokens of one model call.
pub fn tokens(model: &str, input: u64, output: u64, cached: u64, reasoning: u64) {
    with(|m| {
        for (kind, tokens) in [("input", input), ("output", output), ("cached", cached), ("reasoning", reasoning)] {
            if tokens > 0 {
                m.tokens.add(tokens, &[bounded(attr::MODEL, model), label(names::TOKEN_TYPE, kind)]);
            }
        }
    });
}

/// Records the time of one tool call, with its outcome.
pub fn tool(name: &str, outcome: &str, took: Duration) {
    let labels = || [bounded(attr::TOOL, name), label(names::OUTCOME, outcome)];
    with(|m| m.tool.record(took.as_secs_f64(), &labels()));
}

/// Open connections of clients became more or fewer.
pub fn connections(protocol: &str, delta: i64) {
    with(|m| m.connections.add(delta, &[label(names::PROTOCOL, protocol)]));
}

/// A server closed, refused or could not accept a connection.
pub fn connection_closed(protocol: &str, reason: &str) {
    with(|m| m.connections_closed.add(1, &[label(names::PROTOCOL, protocol), label(names::REASON, reason)]));
}

/// A client's request was answered: `ok` or an error code.
pub fn request(method: &str, code: &str) {
    with(|m| m.requests.add(1, &[label(names::METHOD, method), label(names::CODE, code)]));
}

/// A client was let go because it did not read.
pub fn slow_client() {
    with(|m| m.slow_clients.add(1, &[]));
}

/// A cache of this process came to hold more bytes or fewer.
pub fn cache_bytes(cache: &str, delta: i64) {
    with(|m| m.cache_bytes.add(delta, &[label(names::CACHE, cache)]));
}

/// Configuration files changed and were read again; whether they could be used.
pub fn config_reloaded(part: &str, taken: bool) {
    let outcome = if taken { "taken" } else { "broken" };
    with(|m| m.config_reloads.add(1, &[label(names::PART, part), label(names::OUTCOME, outcome)]));
}

/// Configuration files became broken (1) or good again (-1).
pub fn config_broken(part: &str, delta: i64) {
    with(|m| m.config_broken.add(delta, &[label(names::PART, part)]));
}
