//! Tool calls of a real executor and a real tool, while the server between them dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ailoop_tool::{Call, Effect, Serving, Tool, Tools};
use anyhow::{Context, ensure};
use bus::work::Publication;
use bus::{Bus, Inbox};
use contract::commit::{Commit, CommitMeta, FOLD, Phase, VERSION};
use contract::ids::CallAttempt;
use contract::model::ItemMeta;
use contract::subject::SessionKey;
use contract::tool::{EffectClass, Outcome, ToolItem, ToolResult};
use contract::{CallId, Json, TenantId, Timestamp, ToolName};
use tokio::sync::Notify;
use tool_executor::{Clock, Executor, ExecutorConfig, SystemClock};

use crate::nats::world::{World, eventually, key};

/// A tool whose first call waits until it is released, and a record of its calls.
#[derive(Default)]
struct ToolProbe {
    calls: AtomicUsize,
    begun: Notify,
    let_go: Notify,
}

async fn serve(url: &str, effect: Effect, probe: Arc<ToolProbe>) -> anyhow::Result<Serving> {
    let tool = Tool::new("act").effect(effect).handler(move |_: Call| {
        let probe = probe.clone();
        async move {
            if probe.calls.fetch_add(1, Ordering::SeqCst) == 0 {
                probe.begun.notify_one();
                probe.let_go.notified().await;
            }
            Ok("done")
        }
    });
    Ok(Tools::connect(url).await?.tool(tool).serve().await?)
}

async fn open_call(bus: &Bus, key: &SessionKey, effect: EffectClass) -> anyhow::Result<()> {
    let call = CallAttempt { call: CallId::tool(1, 1, 1), attempt: 1 };
    let meta = CommitMeta {
        v: VERSION,
        commit: "commit-0".to_owned(),
        fold: FOLD,
        phase: Phase::Running,
        open: vec![call.to_string()],
        control_seq: 0,
        prev: String::new(),
        timers: 0,
        seq: 1,
        time: Timestamp::default(),
        trace_id: String::new(),
        archived: None,
        log_start: None,
        moved: None,
    };
    let body = serde_json::to_vec(&Commit { meta, snapshot: None, transcript: None, events: Vec::new() })?;
    bus.commit(key, 0, "commit-0", body.into()).await?;
    let item = ToolItem {
        session_started: None,
        opened_by: String::new(),
        opened_at: None,
        meta: ItemMeta {
            v: VERSION,
            slot: 0,
            turn: 1,
            step: 1,
            call: call.call,
            attempt: 1,
            deadline: SystemClock.now().after(Duration::from_mins(2)),
            agent: "e".to_owned(),
        },
        tool: ToolName::new("act")?,
        arguments: Json::parse("{}")?,
        effect,
        max_output: 1_000,
        timeout_ms: 120_000,
    };
    Ok(bus.publish_tool_item(key, &item, Publication::First).await?)
}

async fn result(bus: &Bus, key: &SessionKey) -> anyhow::Result<ToolResult> {
    let first = async || match bus.inbox(key).await {
        Ok(Inbox::Messages(messages)) => messages.into_iter().next(),
        Ok(Inbox::TooMany) | Err(_) => None,
    };
    eventually("a result", || async { first().await.is_some() }).await?;
    Ok(serde_json::from_slice(&first().await.context("a result")?.payload)?)
}

pub(crate) async fn server_dies_right_after_the_dispatch_the_session_goes_on(world: &mut World) -> anyhow::Result<()> {
    let url = world.url();
    for (session, sdk, effect) in
        [("once", Effect::AtMostOnce, EffectClass::AtMostOnce), ("again", Effect::Idempotent, EffectClass::Idempotent)]
    {
        let probe = Arc::new(ToolProbe::default());
        let serving = serve(&url, sdk, probe.clone()).await?;
        let executor = Executor::start(ExecutorConfig::default(), world.connect(0).await?);
        let bus = world.bus.clone();
        eventually("the tool is known", || async {
            bus.tools(&TenantId::default()).await.is_ok_and(|tools| !tools.is_empty())
        })
        .await?;
        let key = key(session)?;
        open_call(&world.bus, &key, effect).await?;
        probe.begun.notified().await;
        world.kill();
        // The answer may be lost or may arrive after the reconnect, so the outcome is unknown.
        probe.let_go.notify_one();
        world.resume().await?;
        let result = result(&world.bus, &key).await?;
        let calls = probe.calls.load(Ordering::SeqCst);
        match effect {
            EffectClass::AtMostOnce | EffectClass::Reconcilable => {
                ensure!(calls == 1, "{calls} calls");
                let has_reason = result.content.contains("the connection to NATS broke while the call ran");
                ensure!(
                    result.outcome == Outcome::Ok || (result.outcome == Outcome::Unknown && has_reason),
                    "{result:?}"
                );
            }
            EffectClass::Pure | EffectClass::Idempotent => ensure!(result.outcome == Outcome::Ok, "{result:?}"),
        }
        executor.drain(Duration::from_secs(1)).await;
        serving.stop(Duration::from_secs(1)).await;
    }
    Ok(())
}
