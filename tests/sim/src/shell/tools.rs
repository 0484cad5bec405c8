//! The tools of the world, and the witness of what they did.

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

/// What the tools did.
pub(super) struct Witness {
    seen: Arc<Mutex<Seen>>,
    _tasks: Tasks,
}

#[derive(Default)]
struct Seen {
    /// How often each call of each tool ran.
    runs: BTreeMap<(String, String), u32>,
    /// Sessions whose client was told that a pause or stop is done.
    quiet: BTreeSet<String>,
    /// The first call that ran all the same.
    broken: Option<String>,
}

impl Seen {
    fn ran(&mut self, tool: &str, message: &CoreMessage) {
        let call = message.header(header::CALL).unwrap_or_default().to_owned();
        let session = message.header(header::SESSION).unwrap_or_default();
        // A claim stands between the look at the log and the call of `pay`; its delay is nobody's fault.
        if tool != "pay" && self.quiet.contains(session) {
            self.broken.get_or_insert(format!("I5: {call} of {tool} started after the client was told of the pause"));
        }
        *self.runs.entry((tool.to_owned(), call)).or_insert(0) += 1;
    }
}

impl Witness {
    /// The client was told that the session is paused or stopped, or is about to resume it.
    pub(super) fn told(&self, key: &SessionKey, quiet: bool) {
        if let Ok(mut seen) = self.seen.lock() {
            let session = key.session.to_string();
            if quiet {
                seen.quiet.insert(session);
            } else {
                seen.quiet.remove(&session);
            }
        }
    }

    /// What must not run twice has not, and nothing ran that must not start. Returns how many calls ran.
    pub(super) fn judge(&self) -> Result<u64, String> {
        let seen = self.seen.lock().map_err(|error| error.to_string())?;
        if let Some(why) = &seen.broken {
            return Err(why.clone());
        }
        match seen.runs.iter().find(|((tool, _), times)| tool == "pay" && **times > 1) {
            Some(((_, call), times)) => Err(format!("an at_most_once call {call} ran {times} times")),
            None => Ok(seen.runs.len() as u64),
        }
    }
}

/// Serves the tools and answers discovery.
pub(super) async fn serve(server: &MemoryServer, seed: u64) -> Result<Witness, BusError> {
    let (bus, tasks) = (server.client("tools").0, Tasks::new());
    let witnessed: Arc<Mutex<Seen>> = Arc::default();
    let mut asked = vec![bus.listen(&subject::services_info(), None).await?];
    for (tool, _) in TOOLS {
        let name = ToolName::new(tool).map_err(|error| BusError::Malformed(error.to_string()))?;
        asked.push(bus.listen(&subject::service_info(&name), None).await?);
    }
    let mut info = futures::stream::select_all(asked);
    let replier = bus.clone();
    tasks.spawn("discovery", async move {
        while let Some(SubscriptionEvent::Message(message)) = info.next().await {
            if let Some(to) = message.reply {
                let _told = replier.transport().reply(&to, Vec::new(), describe()).await;
            }
        }
    });
    for (index, (tool, _)) in TOOLS.iter().enumerate() {
        let name = ToolName::new(tool).map_err(|error| BusError::Malformed(error.to_string()))?;
        let subject = subject::tool(&TenantId::default(), &name);
        let mut calls = bus.listen(&subject, Some(subject::TOOL_QUEUE)).await?;
        let (bus, witnessed, pool) = (bus.clone(), witnessed.clone(), tasks.clone());
        let mut rng = Rng::new(seed + index as u64);
        tasks.spawn("tool", async move {
            while let Some(heard) = calls.next().await {
                let SubscriptionEvent::Message(message) = heard else { continue };
                if let Ok(mut seen) = witnessed.lock() {
                    seen.ran(tool, &message);
                }
                let slowest = [5, 200, 9_000][super::index(rng.below(3))];
                let time = Duration::from_millis(rng.below(slowest));
                pool.spawn("a call", answer(bus.clone(), message, time).boxed());
            }
        });
    }
    Ok(Witness { seen: witnessed, _tasks: tasks })
}

async fn answer(bus: Bus, message: CoreMessage, time: Duration) {
    tokio::time::sleep(time).await;
    if let Some(to) = message.reply {
        let _told = bus.transport().reply(&to, Vec::new(), Bytes::from_static(b"{\"ok\":true}")).await;
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
