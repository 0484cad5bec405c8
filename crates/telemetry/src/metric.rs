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
use crate::names::{attr, metric as names};

static METRICS: OnceLock<Metrics> = OnceLock::new();

struct Metrics {
    registry: prometheus::Registry,
    sessions_started: Counter<u64>,
    sessions_ended: Counter<u64>,
    sessions: Gauge<u64>,
    sessions_with_gates: Gauge<u64>,
    queue_waiting: Gauge<u64>,
    queue_held: Gauge<u64>,
    queue_oldest: Gauge<f64>,
    queue_pullers: Gauge<u64>,
    work_running: Gauge<u64>,
    work_max: Gauge<u64>,
    nats_connected: Gauge<u64>,
    cell_reachable: Gauge<u64>,
    nats_reconnects: Counter<u64>,
    breaker_open: Gauge<u64>,
    budget_spent: Gauge<f64>,
    build: Gauge<u64>,
    turn_duration: Histogram<f64>,
    turns: Counter<u64>,
    premature: Counter<u64>,
    cost: Counter<f64>,
    steps: Counter<u64>,
    decisions: Counter<u64>,
    commits_refused: Counter<u64>,
    redeliveries: Counter<u64>,
    handed_back: Counter<u64>,
    results_stored: Counter<u64>,
    places_held: UpDownCounter<i64>,
    queue_wait: Histogram<f64>,
    dead_letters: Counter<u64>,
    decide: Histogram<f64>,
    compose: Histogram<f64>,
    chat: Histogram<f64>,
    first_chunk: Histogram<f64>,
    tokens: Counter<u64>,
    model_cost: Counter<f64>,
    model_retries: Counter<u64>,
    tool: Histogram<f64>,
    connections: UpDownCounter<i64>,
    connections_closed: Counter<u64>,
    requests: Counter<u64>,
    slow_clients: Counter<u64>,
    cache_bytes: UpDownCounter<i64>,
    config_reloads: Counter<u64>,
    config_broken: UpDownCounter<i64>,
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
    let meter = provider.meter("ailoop");
    // Resident memory, CPU time, open files and start time, under the names that Prometheus knows.
    let process = registry.register(Box::new(ProcessCollector::for_self()));
    if let Err(error) = process {
        tracing::warn!(%error, "the process has no metrics of its own");
    }
    let count = |name| meter.u64_counter(name).build();
    let gauge = |name| meter.i64_up_down_counter(name).build();
    let now = |name| meter.u64_gauge(name).build();
    METRICS
        .set(Metrics {
            registry,
            sessions_started: count(names::SESSIONS_STARTED),
            sessions_ended: count(names::SESSIONS_ENDED),
            sessions: now(names::SESSIONS),
            sessions_with_gates: now(names::SESSIONS_WITH_GATES),
            queue_waiting: now(names::QUEUE_WAITING),
            queue_held: now(names::QUEUE_HELD),
            queue_oldest: meter.f64_gauge(names::QUEUE_OLDEST).with_unit("s").build(),
            queue_pullers: now(names::QUEUE_PULLERS),
            work_running: now(names::WORK_RUNNING),
            work_max: now(names::WORK_MAX),
            nats_connected: now(names::NATS_CONNECTED),
            cell_reachable: now(names::CELL_REACHABLE),
            nats_reconnects: count(names::NATS_RECONNECTS),
            breaker_open: now(names::BREAKER_OPEN),
            budget_spent: meter.f64_gauge(names::BUDGET_SPENT).build(),
            build: now(names::BUILD),
            turn_duration: seconds(&meter, names::TURN_DURATION, LONG),
            turns: count(names::TURNS),
            premature: count(names::PREMATURE),
            cost: meter.f64_counter(names::COST).build(),
            steps: count(names::STEPS),
            decisions: count(names::DECISIONS),
            commits_refused: count(names::COMMITS_REFUSED),
            redeliveries: count(names::REDELIVERIES),
            handed_back: count(names::HANDED_BACK),
            results_stored: count(names::RESULTS_STORED),
            places_held: gauge(names::PLACES_HELD),
            queue_wait: seconds(&meter, names::QUEUE_WAIT, SLOW),
            dead_letters: count(names::DEAD_LETTERS),
            decide: seconds(&meter, names::DECIDE, QUICK),
            compose: seconds(&meter, names::COMPOSE, QUICK),
            chat: seconds(&meter, names::CHAT, SLOW),
            first_chunk: seconds(&meter, names::FIRST_CHUNK, SLOW),
            tokens: count(names::TOKENS),
            model_cost: meter.f64_counter(names::MODEL_COST).build(),
            model_retries: count(names::MODEL_RETRIES),
            tool: seconds(&meter, names::TOOL, SLOW),
            connections: gauge(names::CONNECTIONS),
            connections_closed: count(names::CONNECTIONS_CLOSED),
            requests: count(names::REQUESTS),
            slow_clients: count(names::SLOW_CLIENTS),
            cache_bytes: gauge(names::CACHE_BYTES),
            config_reloads: count(names::CONFIG_RELOADS),
            config_broken: gauge(names::CONFIG_BROKEN),
        })
        .is_ok()
}

fn seconds(meter: &Meter, name: &'static str, bounds: &[f64]) -> Histogram<f64> {
    meter.f64_histogram(name).with_unit("s").with_boundaries(bounds.to_vec()).build()
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

/// What a queue holds now, and who takes from it.
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

/// What a queue holds now.
pub fn queue(name: &str, level: QueueLevel) {
    with(|m| {
        let labels = [label(names::QUEUE, name)];
        m.queue_waiting.record(level.waiting, &labels);
        m.queue_held.record(level.held, &labels);
        m.queue_oldest.record(level.oldest, &labels);
        m.queue_pullers.record(level.pullers, &labels);
    });
}

/// How many items run at this worker, of how many at most.
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

/// Which part of a budget was spent, 0 to 1 and above. `budget` is its name within the tenant, such as `day` or `day.e`.
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

/// Whose turn it is: an agent of `agents.yaml` and a model of `models.yaml`.
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

/// How long a turn took, from its beginning in the log to its end.
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

/// How long an item waited for its first delivery.
pub fn queue_wait(queue: &str, wait: Duration) {
    with(|m| m.queue_wait.record(wait.as_secs_f64(), &[label(names::QUEUE, queue)]));
}

/// An item failed for good.
pub fn dead_letter(queue: &str) {
    with(|m| m.dead_letters.add(1, &[label(names::QUEUE, queue)]));
}

/// How long one `decide` took.
pub fn decide_duration(took: Duration) {
    with(|m| m.decide.record(took.as_secs_f64(), &[]));
}

/// How long one composition took.
pub fn compose_duration(took: Duration) {
    with(|m| m.compose.record(took.as_secs_f64(), &[]));
}

/// How long one model call took; `error` is a stable code where it failed.
pub fn chat(provider: &str, model: &str, took: Duration, error: Option<&str>) {
    with(|m| {
        let mut labels = vec![label(attr::PROVIDER, provider), bounded(attr::MODEL, model)];
        labels.extend(error.map(|code| label(attr::ERROR, code)));
        m.chat.record(took.as_secs_f64(), &labels);
    });
}

/// How long a model call took to its first chunk.
pub fn first_chunk(provider: &str, model: &str, took: Duration) {
    let labels = || [label(attr::PROVIDER, provider), bounded(attr::MODEL, model)];
    with(|m| m.first_chunk.record(took.as_secs_f64(), &labels()));
}

/// What a model call cost in US dollars.
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

/// How long one tool call took, and what became of it.
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
