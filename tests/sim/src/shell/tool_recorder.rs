//! The tools of ring 3, and a recorder of the calls that they ran.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::{Bus, BusError, CoreMessage, SubscriptionEvent};
use bus_memory::MemoryServer;
use bytes::Bytes;
use contract::subject::SessionKey;
use contract::tool::header;
use contract::{TenantId, ToolName, subject};
use futures::{FutureExt, StreamExt};
use service::tasks::Tasks;

use crate::rng::Rng;

const TOOLS: [(&str, &str); 3] = [("look", "pure"), ("put", "idempotent"), ("pay", "at_most_once")];

/// Serves the tools and records their calls.
pub(super) struct ToolRecorder {
    record: Arc<Mutex<ToolRecord>>,
    _tasks: Tasks,
}

#[derive(Default)]
struct ToolRecord {
    /// Number of runs, by tool and call.
    runs: BTreeMap<(String, String), u32>,
    /// Sessions whose client has seen that a pause or stop is done.
    paused: BTreeSet<String>,
    /// The first call that ran in such a session.
    violation: Option<String>,
}

impl ToolRecord {
    fn add(&mut self, tool: &str, message: &CoreMessage) {
        let call = message.header(header::CALL).unwrap_or_default().to_owned();
        let session = message.header(header::SESSION).unwrap_or_default();
        // A claim is made between the read of the log and the call of `pay`, and may be delayed.
        if tool != "pay" && self.paused.contains(session) {
            self.violation.get_or_insert(format!("I5: {call} of {tool} started after the client had seen the pause"));
        }
        *self.runs.entry((tool.to_owned(), call)).or_insert(0) += 1;
    }
}

impl ToolRecorder {
    /// Records that the client has seen a pause or stop, or is about to resume the session.
    pub(super) fn set_paused(&self, key: &SessionKey, is_paused: bool) {
        if let Ok(mut record) = self.record.lock() {
            let session = key.session.to_string();
            if is_paused {
                record.paused.insert(session);
            } else {
                record.paused.remove(&session);
            }
        }
    }

    /// Checks that no `at_most_once` call ran twice and no call started in a pause. Returns the number of calls.
    pub(super) fn check(&self) -> Result<u64, String> {
        let record = self.record.lock().map_err(|error| error.to_string())?;
        if let Some(why) = &record.violation {
            return Err(why.clone());
        }
        match record.runs.iter().find(|((tool, _), times)| tool == "pay" && **times > 1) {
            Some(((_, call), times)) => Err(format!("an at_most_once call {call} ran {times} times")),
            None => Ok(record.runs.len() as u64),
        }
    }
}

/// Serves the tools, and answers discovery requests.
pub(super) async fn serve(server: &MemoryServer, seed: u64) -> Result<ToolRecorder, BusError> {
    let (bus, tasks) = (server.client("tools").0, Tasks::new());
    let recorded: Arc<Mutex<ToolRecord>> = Arc::default();
    let mut requests = vec![bus.listen(&subject::services_info(), None).await?];
    for (tool, _) in TOOLS {
        let name = ToolName::new(tool).map_err(|error| BusError::Malformed(error.to_string()))?;
        requests.push(bus.listen(&subject::service_info(&name), None).await?);
    }
    let mut info = futures::stream::select_all(requests);
    let replier = bus.clone();
    tasks.spawn("discovery", async move {
        while let Some(SubscriptionEvent::Message(message)) = info.next().await {
            if let Some(to) = message.reply {
                let _ = replier.transport().reply(&to, Vec::new(), describe()).await;
            }
        }
    });
    for (index, (tool, _)) in TOOLS.iter().enumerate() {
        let name = ToolName::new(tool).map_err(|error| BusError::Malformed(error.to_string()))?;
        let subject = subject::tool(&TenantId::default(), &name);
        let mut calls = bus.listen(&subject, Some(subject::TOOL_QUEUE)).await?;
        let (bus, recorded, pool) = (bus.clone(), recorded.clone(), tasks.clone());
        let mut rng = Rng::new(seed + index as u64);
        tasks.spawn("tool", async move {
            while let Some(event) = calls.next().await {
                let SubscriptionEvent::Message(message) = event else { continue };
                if let Ok(mut record) = recorded.lock() {
                    record.add(tool, &message);
                }
                let slowest = [5, 200, 9_000][rng.index(3)];
                let time = Duration::from_millis(rng.below(slowest));
                pool.spawn("a call", answer(bus.clone(), message, time).boxed());
            }
        });
    }
    Ok(ToolRecorder { record: recorded, _tasks: tasks })
}

async fn answer(bus: Bus, message: CoreMessage, time: Duration) {
    tokio::time::sleep(time).await;
    if let Some(to) = message.reply {
        let _ = bus.transport().reply(&to, Vec::new(), Bytes::from_static(b"{\"ok\":true}")).await;
    }
}

fn describe() -> Bytes {
    let endpoints: Vec<serde_json::Value> = TOOLS
        .iter()
        .map(|(tool, effect)| {
            serde_json::json!({
                "name": tool, "subject": format!("ai_tool.default.{tool}"), "queue_group": "tools",
                "metadata": {"ailoop.tool": tool, "ailoop.description": "a tool", "ailoop.effect": effect,
                             "ailoop.parameters": "{\"type\":\"object\"}", "ailoop.timeout": "90"}
            })
        })
        .collect();
    let info = serde_json::json!({
        "type": "io.nats.micro.v1.info_response", "name": "tools", "id": "t", "version": "1.0.0", "endpoints": endpoints
    });
    info.to_string().into()
}
