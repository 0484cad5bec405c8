//! Rates and budgets that gateways share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bus::{Bus, Read};
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::SessionId;
use contract::commit::Phase;
use contract::model::FailureKind;
use contract::streams::Bucket;
use serde_json::Value;
use tokio::time::Instant;

use super::world::{World, poll_until};

const SCRIPT: &str = "delay_ms: 100\nsteps: [{text: 'one two three four five', usage: {input: 1000, output: 500}}]";

/// A fixture whose replies cost 0.002 dollars each.
fn world() -> World {
    let world = World::new();
    std::fs::write(world.dir.path().join("a.yaml"), SCRIPT).unwrap();
    world
}

fn models(more: &str) -> String {
    format!(
        "providers: {{a: {{kind: scripted, script: a.yaml{more}}}}}\n\
         models: {{x: {{provider: a, max_output: 1000, prices: {{input: 1.0, output: 2.0}}}}}}\n"
    )
}

fn add_session(world: &World, session: &str) -> World {
    let mut other = World::on(world.server.clone());
    other.key.session = SessionId::new(session).unwrap();
    other
}

async fn publish_call(world: &World) {
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    let mut item = world.item("hi");
    "x".clone_into(&mut item.model);
    world.publish_item(&item).await;
}

/// Spent nano-dollars and number of reservations of a stored account.
async fn read_account(bus: &Bus, key: &str) -> Option<(u64, usize)> {
    let found = bus.transport().kv_get(Bucket::Limits, key).await.unwrap()?;
    let account: Value = serde_json::from_slice(&found).unwrap();
    Some((account["spent"]["nano_usd"].as_u64().unwrap(), account["open"].as_object().unwrap().len()))
}

#[tokio::test(start_paused = true)]
async fn two_gateways_share_one_rate() {
    let world = world();
    let models = models(", limits: {requests_per_minute: 20}");
    let (_a, _) = world.start_gateway_with("a", world.parse_providers(&models), 8).await;
    let (_b, _) = world.start_gateway_with("b", world.parse_providers(&models), 8).await;
    let began = Instant::now();
    let sessions: Vec<World> = (0..5).map(|n| add_session(&world, &format!("t{n}"))).collect();
    for session in &sessions {
        publish_call(session).await;
    }
    for session in &sessions {
        session.wait_for_finished().await;
    }
    // The burst is two requests, and then one is granted each 3.3 seconds.
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(9) && took < Duration::from_secs(20), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn reply_is_charged_at_the_reported_usage() {
    let world = world();
    let models = models("")
        + "budgets: [{tenant: '*', per: day, usd: 1}, {tenant: '*', agent: '*', per: month, tokens: 9999}]\n";
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
    publish_call(&world).await;
    assert_eq!(format!("{:.6}", world.wait_for_finished().await.cost_usd), "0.002000");
    assert_eq!(read_account(&world.bus, "budget.default.day").await, Some((2_000_000, 0)));
    let agent = world.bus.transport().kv_get(Bucket::Limits, "budget.default.month.a").await.unwrap().unwrap();
    let agent: Value = serde_json::from_slice(&agent).unwrap();
    assert_eq!(agent["spent"]["tokens"], 1_500);
}

#[tokio::test(start_paused = true)]
async fn budget_spent_fails_the_call_before_a_request() {
    let world = world();
    // The budget has room for the maximum cost of one reply only.
    let models = models("") + "budgets: [{tenant: '*', per: day, usd: 0.0035}]\n";
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 2).await;
    publish_call(&world).await;
    world.wait_for_finished().await;
    let other = add_session(&world, "s2");
    publish_call(&other).await;
    let failed = other.wait_for_failed().await;
    assert_eq!((failed.kind, failed.cost_usd), (FailureKind::Quota, 0.0));
    assert!(
        failed.message.contains("the budget of the tenant default per day is not sufficient"),
        "{}",
        failed.message
    );
    assert_eq!(read_account(&world.bus, "budget.default.day").await, Some((2_000_000, 0)));
}

#[tokio::test(start_paused = true)]
async fn budget_reserved_by_running_calls_fails_the_next_call() {
    let world = world();
    let models = models("") + "budgets: [{tenant: '*', per: day, usd: 0.004}]\n";
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 4).await;
    let other = add_session(&world, "s2");
    publish_call(&world).await;
    poll_until(async || read_account(&world.bus, "budget.default.day").await.filter(|(_, open)| *open == 1)).await;
    publish_call(&other).await;
    let failed = other.wait_for_failed().await;
    assert_eq!((failed.kind, failed.retry_after_ms), (FailureKind::RateLimited, Some(1_000)));
    world.wait_for_finished().await;
    assert_eq!(read_account(&world.bus, "budget.default.day").await, Some((2_000_000, 0)));
}

#[tokio::test(start_paused = true)]
async fn gateway_dead_next_one_charges_its_reservation_in_full() {
    let world = world();
    let models = models("") + "budgets: [{tenant: '*', per: day, usd: 1}]\n";
    let (_dead, life) = world.start_gateway_with("a", world.parse_providers(&models), 1).await;
    publish_call(&world).await;
    let (spent, _) =
        poll_until(async || read_account(&world.bus, "budget.default.day").await.filter(|(_, open)| *open == 1)).await;
    assert_eq!(spent, 0);
    life.kill();
    let (_next, _) = world.start_gateway_with("b", world.parse_providers(&models), 1).await;
    assert!(world.wait_for_finished().await.cost_usd > 0.0);
    let reserved = 2_000_000 + 1_000 * request_tokens(&world);
    let (spent, open) = read_account(&world.bus, "budget.default.day").await.unwrap();
    assert_eq!((spent, open), (2_000_000 + reserved, 0));
}

#[tokio::test(start_paused = true)]
async fn reservation_with_lost_acknowledgements_costs_nothing() {
    // Reservations are stored, but their acknowledgements are lost, so another run reserves again.
    struct AcksLost(AtomicU32);
    impl Faults for AcksLost {
        fn decide(&self, op: Operation<'_>) -> Fault {
            let deaf = matches!(op.action, Action::KvCreate | Action::KvUpdate) && op.subject.starts_with("budget.");
            if deaf && self.0.fetch_add(1, Ordering::Relaxed) < 10 { Fault::AckLost } else { Fault::None }
        }
    }
    let world = World::on(MemoryServer::with_faults(Arc::new(AcksLost(AtomicU32::new(0)))));
    std::fs::write(world.dir.path().join("a.yaml"), SCRIPT).unwrap();
    let models = models("") + "budgets: [{tenant: '*', per: day, usd: 1}]\n";
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
    publish_call(&world).await;
    assert!(world.wait_for_finished().await.cost_usd > 0.0);
    assert_eq!(read_account(&world.bus, "budget.default.day").await, Some((2_000_000, 0)));
}

#[tokio::test(start_paused = true)]
async fn model_without_prices_is_refused_with_a_budget_in_dollars() {
    let world = world();
    let models = "providers: {h: {kind: openai_chat, base_url: 'http://127.0.0.1:9'}}\n\
                  models: {x: {provider: h}}\nbudgets: [{tenant: '*', per: day, usd: 1}]\n";
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(models), 1).await;
    publish_call(&world).await;
    let failed = world.wait_for_failed().await;
    assert_eq!(failed.kind, FailureKind::BadRequest);
    assert!(failed.message.contains("no prices for h/x"), "{}", failed.message);
}

/// A model that fails so often after a reply that costs 1500 tokens, with a budget of so many tokens.
async fn start_failing(times: u32, tokens: u64) -> (World, model_gateway::Gateway) {
    let world = World::new();
    let script = format!(
        "delay_ms: 100\nsteps: [{{text: '', usage: {{input: 1000, output: 500}}, fail: {{kind: overloaded, times: {times}}}}}]"
    );
    std::fs::write(world.dir.path().join("a.yaml"), script).unwrap();
    let models = models("") + &format!("budgets: [{{tenant: '*', per: day, tokens: {tokens}}}]\n");
    let (gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
    publish_call(&world).await;
    (world, gateway)
}

async fn spent_tokens(world: &World) -> (u64, usize) {
    let found = world.bus.transport().kv_get(Bucket::Limits, "budget.default.day").await.unwrap().unwrap();
    let account: Value = serde_json::from_slice(&found).unwrap();
    (account["spent"]["tokens"].as_u64().unwrap(), account["open"].as_object().unwrap().len())
}

#[tokio::test(start_paused = true)]
async fn try_of_a_call_reserves_its_own_cost() {
    let (world, _gateway) = start_failing(4, 2_000).await;
    let failed = world.wait_for_failed().await;
    assert_eq!((failed.kind, failed.usage.total()), (FailureKind::Quota, 0), "{}", failed.message);
    assert!(
        failed.message.contains("the budget of the tenant default per day is not sufficient"),
        "{}",
        failed.message
    );
    assert_eq!(spent_tokens(&world).await, (1_500, 0), "one try was paid for");
    // With room for all tries, each is charged at its cost.
    let (world, _gateway) = start_failing(2, 9_000).await;
    world.wait_for_finished().await;
    assert_eq!(spent_tokens(&world).await, (4_500, 0));
}

#[tokio::test(start_paused = true)]
async fn impossible_usage_is_replaced_by_an_estimate() {
    let world = World::new();
    let most = u64::MAX;
    let script = format!(
        "delay_ms: 0\nsteps: [{{text: 'one two', usage: {{input: {most}, output: {most}, cached: {most}, reasoning: {most}}}}}]"
    );
    std::fs::write(world.dir.path().join("a.yaml"), script).unwrap();
    let models = models("") + "budgets: [{tenant: '*', per: day, usd: 1}]\n";
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
    publish_call(&world).await;
    let finished = world.wait_for_finished().await;
    assert!(finished.usage.total() < 10_000 && finished.usage.output > 0, "{:?}", finished.usage);
    assert!(finished.usage.cached <= finished.usage.input, "{:?}", finished.usage);
    let (spent, open) = read_account(&world.bus, "budget.default.day").await.unwrap();
    assert!(spent < 10_000_000 && open == 0, "{spent}");
}

/// Estimated tokens of the request of [`publish_call`].
fn request_tokens(world: &World) -> u64 {
    let mut item = world.item("hi");
    "x".clone_into(&mut item.model);
    model_gateway::reply::estimate_tokens(serde_json::to_vec(&item).unwrap().len())
}

#[tokio::test(start_paused = true)]
async fn gateway_dead_and_call_stopped_its_reservation_is_charged() {
    let world = world();
    let models = models("") + "budgets: [{tenant: '*', per: day, usd: 1}]\n";
    let (_dead, life) = world.start_gateway_with("a", world.parse_providers(&models), 1).await;
    publish_call(&world).await;
    poll_until(async || read_account(&world.bus, "budget.default.day").await.filter(|(_, open)| *open == 1)).await;
    life.kill();
    world.commit(1, Phase::Idle, &[]).await;
    let (_next, _) = world.start_gateway_with("b", world.parse_providers(&models), 1).await;
    let (spent, _) =
        poll_until(async || read_account(&world.bus, "budget.default.day").await.filter(|(_, open)| *open == 0)).await;
    assert!(spent >= 2_000_000, "{spent}");
}

/// Makes the limits bucket or the log unavailable to the gateway `g` while `away` is set.
struct Unavailable {
    bucket: bool,
    away: AtomicBool,
}

impl Faults for &'static Unavailable {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let hit = if self.bucket {
            matches!(op.action, Action::KvGet | Action::KvCreate | Action::KvUpdate)
        } else {
            matches!(op.action, Action::Last(Read::Leader))
        };
        if hit && op.client == "g" && self.away.load(Ordering::Relaxed) { Fault::NotDone } else { Fault::None }
    }
}

#[tokio::test(start_paused = true)]
async fn bucket_or_log_unavailable_for_minutes_call_runs_afterwards() {
    for bucket in [true, false] {
        let fault: &'static Unavailable = Box::leak(Box::new(Unavailable { bucket, away: AtomicBool::new(true) }));
        let world = World::on(MemoryServer::with_faults(Arc::new(fault)));
        std::fs::write(world.dir.path().join("a.yaml"), SCRIPT).unwrap();
        let models = models(", limits: {requests_per_minute: 20}");
        let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
        world.commit(0, Phase::Running, &["m1-1.1"]).await;
        let mut item = world.item("hi");
        "x".clone_into(&mut item.model);
        item.meta.deadline = world.server.now().after(Duration::from_hours(1));
        world.publish_item(&item).await;
        tokio::time::sleep(Duration::from_mins(20)).await;
        assert!(world.is_unanswered().await, "{bucket}");
        fault.away.store(false, Ordering::Relaxed);
        assert!(world.wait_for_finished().await.cost_usd > 0.0, "{bucket}");
    }
}
