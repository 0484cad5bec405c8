//! Tools that a test serves over NATS with the tool SDK: they give scripted answers and record every call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ailoop_tool::{Call, Effect, Reply, Serving, Tool, ToolError, Tools};
use anyhow::ensure;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::model::Gate;

/// The three effect classes.
pub const EFFECTS: [Effect; 3] = [Effect::Pure, Effect::Idempotent, Effect::AtMostOnce];

/// One delivery of a call, as the tool received it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCall {
    /// Name of the called tool.
    pub tool: String,
    /// Call id, unique among all sessions.
    pub call: String,
    /// Session that made the call.
    pub session: String,
    /// Attempt and delivery, as `<attempt>.<delivery>`.
    pub attempt: String,
    /// W3C trace context; empty without tracing.
    pub traceparent: String,
    /// Arguments as the tool got them.
    pub arguments: Value,
}

/// The scripted answer of a tool to a call.
#[derive(Debug, Clone)]
pub enum ToolAnswer {
    /// Answers with JSON at once.
    Json(Value),
    /// Answers with plain text.
    Text(String),
    /// Answers with JSON once the gate is open.
    After(Gate, Value),
    /// Answers with an error.
    Error(String),
    /// Never answers, so that the call times out.
    Never,
}

/// Tools that are being served; dropping the value ends them.
pub struct ToolServer {
    serving: Option<Serving>,
    record: Record,
}

/// Collects the tools of a [`ToolServer`].
pub struct ToolServerBuilder {
    tools: Tools,
    record: Record,
}

#[derive(Debug, Clone, Default)]
struct Record {
    calls: Arc<Mutex<Vec<RecordedCall>>>,
    changed: Arc<watch::Sender<usize>>,
}

impl Record {
    fn add(&self, recorded: RecordedCall) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(recorded);
        self.changed.send_modify(|count| *count += 1);
    }
}

impl ToolServerBuilder {
    /// Connects to NATS; no tool is served yet.
    pub async fn at(nats: &str) -> anyhow::Result<Self> {
        Ok(Self { tools: Tools::connect(nats).await?, record: Record::default() })
    }

    /// Adds a tool that accepts any arguments and answers by a function of the call.
    #[must_use]
    pub fn tool(
        self,
        name: &str,
        effect: Effect,
        answer: impl Fn(&RecordedCall) -> ToolAnswer + Send + Sync + 'static,
    ) -> Self {
        self.with(Tool::new(name).effect(effect), answer)
    }

    /// Adds a described tool, with its handler replaced by a function of the call.
    #[must_use]
    pub fn with(self, tool: Tool, answer: impl Fn(&RecordedCall) -> ToolAnswer + Send + Sync + 'static) -> Self {
        let (record, answer, name) = (self.record.clone(), Arc::new(answer), tool.name().to_owned());
        let tool = tool.handler(move |call: Call| {
            let (record, answer) = (record.clone(), answer.clone());
            let recorded = RecordedCall {
                tool: name.clone(),
                call: call.id().to_owned(),
                session: call.session().to_owned(),
                attempt: call.attempt().to_owned(),
                traceparent: call.traceparent().to_owned(),
                arguments: serde_json::from_slice(call.body()).unwrap_or_default(),
            };
            async move {
                record.add(recorded.clone());
                play(answer(&recorded)).await
            }
        });
        Self { tools: self.tools.tool(tool), ..self }
    }

    /// Starts to serve the tools.
    pub async fn open(self) -> anyhow::Result<ToolServer> {
        Ok(ToolServer { serving: Some(self.tools.concurrency(64).serve().await?), record: self.record })
    }
}

async fn play(answer: ToolAnswer) -> Result<Reply, ToolError> {
    match answer {
        ToolAnswer::Json(value) => Ok(value.into()),
        ToolAnswer::Text(text) => Ok(text.into()),
        ToolAnswer::After(gate, value) => {
            gate.pass().await;
            Ok(value.into())
        }
        ToolAnswer::Error(why) => Err(ToolError::new(why)),
        ToolAnswer::Never => std::future::pending().await,
    }
}

impl ToolServer {
    /// Serves one tool for each effect class, named after it, that answers with its arguments. The model must give
    /// each call another `mark`.
    pub async fn of_every_effect(nats: &str) -> anyhow::Result<Self> {
        let mut plan = ToolServerBuilder::at(nats).await?;
        for effect in EFFECTS {
            let tool = Tool::new(effect.as_str()).effect(effect).timeout(Duration::from_secs(15));
            plan = plan.with(tool, |call| ToolAnswer::Json(call.arguments.clone()));
        }
        plan.open().await
    }

    /// Checks the calls of [`ToolServer::of_every_effect`]: no call id has two marks, and no `at_most_once` call ran
    /// twice.
    pub fn check_ran_once(&self) -> anyhow::Result<()> {
        let mut ids: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        for call in self.calls() {
            let id = format!("{}/{}", call.session, call.arguments["mark"]);
            ids.entry((call.tool, call.call)).or_default().push(id);
        }
        for ((tool, call), marks) in ids {
            ensure!(
                marks.iter().all(|mark| *mark == marks[0]),
                "{tool}: call id {call} was used for several calls: {marks:?}"
            );
            let twice = tool == Effect::AtMostOnce.as_str() && marks.len() > 1;
            ensure!(!twice, "{tool}: call {call} ran {} times", marks.len());
        }
        Ok(())
    }

    /// Serves the tools `echo` (pure) and `mark` (idempotent), which answer with their arguments.
    pub async fn plain(nats: &str) -> anyhow::Result<Self> {
        let same = |call: &RecordedCall| ToolAnswer::Json(json!({"got": call.arguments}));
        ToolServerBuilder::at(nats)
            .await?
            .tool("echo", Effect::Pure, same)
            .tool("mark", Effect::Idempotent, same)
            .open()
            .await
    }

    /// All calls recorded so far.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.record.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns when `count` calls were recorded.
    pub async fn wait_for_calls(&self, count: usize) {
        // The sender is borrowed, so that the channel cannot close meanwhile.
        let _ = self.record.changed.subscribe().wait_for(|calls| *calls >= count).await;
    }

    /// Stops the tools in order: running calls have one second to end.
    pub async fn close(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.stop(Duration::from_secs(1)).await;
        }
    }
}
