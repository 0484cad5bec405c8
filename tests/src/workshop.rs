//! Tools that the test serves itself, over NATS like anybody's: they answer as told and keep a record of every call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ailoop_tool::{Call, Effect, Reply, Serving, Tool, ToolError, Tools};
use anyhow::ensure;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::model::Gate;

/// Every effect class.
pub const EFFECTS: [Effect; 3] = [Effect::Pure, Effect::Idempotent, Effect::AtMostOnce];

/// One try of a call, as the tool saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Witnessed {
    /// The tool.
    pub tool: String,
    /// The call's id.
    pub call: String,
    /// The session.
    pub session: String,
    /// `<attempt>.<delivery>`.
    pub attempt: String,
    /// W3C trace context; empty where there is none.
    pub traceparent: String,
    /// The arguments.
    pub arguments: Value,
}

/// What a tool does with a call.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Answers.
    Json(Value),
    /// Answers this text as it is.
    Text(String),
    /// Answers once the gate is open.
    After(Gate, Value),
    /// Answers with an error.
    Error(String),
    /// Never answers.
    Never,
}

/// Tools that are served; they end with the value.
pub struct Workshop {
    serving: Option<Serving>,
    record: Record,
}

/// Tools that are about to be served.
pub struct Plan {
    tools: Tools,
    record: Record,
}

#[derive(Debug, Clone, Default)]
struct Record {
    calls: Arc<Mutex<Vec<Witnessed>>>,
    changed: Arc<watch::Sender<usize>>,
}

impl Record {
    fn add(&self, witnessed: Witnessed) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(witnessed);
        self.changed.send_modify(|count| *count += 1);
    }
}

impl Plan {
    /// Tools over a connection of their own.
    pub async fn at(nats: &str) -> anyhow::Result<Self> {
        Ok(Self { tools: Tools::connect(nats).await?, record: Record::default() })
    }

    /// Adds a tool whose arguments may be anything, and that answers as a function of the call.
    #[must_use]
    pub fn tool(
        self,
        name: &str,
        effect: Effect,
        answer: impl Fn(&Witnessed) -> Answer + Send + Sync + 'static,
    ) -> Self {
        self.with(Tool::new(name).effect(effect), answer)
    }

    /// Adds a tool as it is described, whose handler is replaced.
    #[must_use]
    pub fn with(self, tool: Tool, answer: impl Fn(&Witnessed) -> Answer + Send + Sync + 'static) -> Self {
        let (record, answer, name) = (self.record.clone(), Arc::new(answer), tool.name().to_owned());
        let tool = tool.handler(move |call: Call| {
            let (record, answer) = (record.clone(), answer.clone());
            let witnessed = Witnessed {
                tool: name.clone(),
                call: call.id().to_owned(),
                session: call.session().to_owned(),
                attempt: call.attempt().to_owned(),
                traceparent: call.traceparent().to_owned(),
                arguments: serde_json::from_slice(call.body()).unwrap_or_default(),
            };
            async move {
                record.add(witnessed.clone());
                give(answer(&witnessed)).await
            }
        });
        Self { tools: self.tools.tool(tool), ..self }
    }

    /// Serves them.
    pub async fn open(self) -> anyhow::Result<Workshop> {
        Ok(Workshop { serving: Some(self.tools.concurrency(64).serve().await?), record: self.record })
    }
}

async fn give(answer: Answer) -> Result<Reply, ToolError> {
    match answer {
        Answer::Json(value) => Ok(value.into()),
        Answer::Text(text) => Ok(text.into()),
        Answer::After(gate, value) => {
            gate.pass().await;
            Ok(value.into())
        }
        Answer::Error(why) => Err(ToolError::new(why)),
        Answer::Never => std::future::pending().await,
    }
}

impl Workshop {
    /// A tool of every effect class, by its name, that answers with its arguments. Each call has a `mark` of its own.
    pub async fn of_every_effect(nats: &str) -> anyhow::Result<Self> {
        let mut plan = Plan::at(nats).await?;
        for effect in EFFECTS {
            let tool = Tool::new(effect.as_str()).effect(effect).timeout(Duration::from_secs(15));
            plan = plan.with(tool, |call| Answer::Json(call.arguments.clone()));
        }
        plan.open().await
    }

    /// Judges what [`Workshop::of_every_effect`] saw: no mark ran under two ids, and none twice that must not.
    pub fn ran_once(&self) -> anyhow::Result<()> {
        let mut ids: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        for call in self.calls() {
            let id = format!("{}/{}", call.session, call.arguments["mark"]);
            ids.entry((call.tool, call.call)).or_default().push(id);
        }
        for ((tool, call), marks) in ids {
            ensure!(marks.iter().all(|mark| *mark == marks[0]), "{tool}: call {call} is several calls: {marks:?}");
            let twice = tool == Effect::AtMostOnce.as_str() && marks.len() > 1;
            ensure!(!twice, "{tool}: call {call} ran {} times", marks.len());
        }
        Ok(())
    }

    /// Tools `echo` (pure) and `mark` (idempotent) that answer with their arguments.
    pub async fn plain(nats: &str) -> anyhow::Result<Self> {
        let same = |call: &Witnessed| Answer::Json(json!({"got": call.arguments}));
        Plan::at(nats).await?.tool("echo", Effect::Pure, same).tool("mark", Effect::Idempotent, same).open().await
    }

    /// Every call so far.
    pub fn calls(&self) -> Vec<Witnessed> {
        self.record.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns when so many calls have come.
    pub async fn called_times(&self, count: usize) {
        // The sender is borrowed, so that the channel cannot close meanwhile.
        let _ = self.record.changed.subscribe().wait_for(|calls| *calls >= count).await;
    }

    /// Ends the tools as a polite process does.
    pub async fn close(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.stop(Duration::from_secs(1)).await;
        }
    }
}
