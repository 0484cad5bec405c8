//! An in-memory server with a session, and the actions of its orchestrator.

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, Stored};
use bus_memory::{ClientLifecycle, MemoryServer};
use bytes::Bytes;
use configuration::models;
use configuration::{Paths, TextFile};
use contract::command::Verb;
use contract::commit::{Commit, CommitMeta, FOLD, Phase, TranscriptPart};
use contract::ids::CallAttempt;
use contract::model::{ItemMeta, ModelFailed, ModelFinished, ModelItem, Streaming};
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey};
use contract::{CallId, CommandId, Json, SessionId, TenantId, Timestamp};
use model_gateway::{Clock, Gateway, GatewayConfig, Providers};
use serde_json::{Map, json};
use tempfile::TempDir;

pub(crate) struct ServerClock(pub(crate) MemoryServer);

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// A server with a session, and the actions of its orchestrator.
pub(crate) struct World {
    pub(crate) server: MemoryServer,
    pub(crate) bus: Bus,
    pub(crate) key: SessionKey,
    pub(crate) dir: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::on(MemoryServer::new())
    }

    pub(crate) fn on(server: MemoryServer) -> Self {
        let bus = server.bus();
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s1").unwrap() };
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("script.yaml"), super::SCRIPT).unwrap();
        Self { server, bus, key, dir }
    }

    pub(crate) fn providers(&self) -> Providers {
        self.parse_providers("providers: {s: {kind: scripted, script: script.yaml}}")
    }

    /// The providers of a models file, with its scripts in `dir`.
    pub(crate) fn parse_providers(&self, models: &str) -> Providers {
        let file = TextFile { origin: "models.yaml".to_owned(), text: models.to_owned() };
        let paths = Paths { config: Some(self.dir.path().to_owned()), ..Paths::default() };
        Providers::new(models::parse(&file).unwrap(), &paths).unwrap()
    }

    /// Starts a gateway for one call at a time.
    pub(crate) async fn start_gateway(&self, name: &str) -> (Gateway, ClientLifecycle) {
        self.start_gateway_with(name, self.providers(), 1).await
    }

    /// Starts a gateway with these providers, for so many calls at a time.
    pub(crate) async fn start_gateway_with(
        &self,
        name: &str,
        providers: Providers,
        concurrency: usize,
    ) -> (Gateway, ClientLifecycle) {
        let (bus, life) = self.server.client(name);
        let clock = Arc::new(ServerClock(self.server.clone()));
        (
            Gateway::start_with(GatewayConfig { concurrency, ..GatewayConfig::default() }, bus, providers, clock).await,
            life,
        )
    }

    pub(crate) async fn commit(&self, slot: u64, phase: Phase, open: &[&str]) {
        self.commit_with(slot, phase, open, None).await;
    }

    /// Writes a commit that has a part of the transcript.
    pub(crate) async fn commit_with(&self, slot: u64, phase: Phase, open: &[&str], transcript: Option<TranscriptPart>) {
        self.commit_of(FOLD, slot, phase, open, transcript).await;
    }

    /// Writes a commit of another version.
    pub(crate) async fn commit_of(
        &self,
        fold: u32,
        slot: u64,
        phase: Phase,
        open: &[&str],
        transcript: Option<TranscriptPart>,
    ) {
        let id = format!("commit-{slot}");
        let meta = CommitMeta {
            v: 1,
            commit: id.clone(),
            fold,
            phase,
            open: open.iter().map(ToString::to_string).collect(),
            control_seq: 0,
            prev: String::new(),
            timers: 0,
            seq: 1,
            time: self.server.now(),
            trace_id: String::new(),
            archived: None,
            log_start: None,
            moved: None,
        };
        let body = serde_json::to_vec(&Commit { meta, snapshot: None, transcript, events: vec![] }).unwrap();
        self.bus.commit(&self.key, slot, &id, Bytes::from(body)).await.unwrap();
    }

    pub(crate) fn item(&self, prompt: &str) -> ModelItem {
        let meta = ItemMeta {
            v: 1,
            slot: 0,
            turn: 1,
            step: 1,
            call: CallId::model(1, 1),
            attempt: 1,
            deadline: self.server.now().after(Duration::from_mins(10)),
            agent: "a".to_owned(),
        };
        let tool = |name: &str| Json::of(&json!({"name": name, "description": "", "parameters": {}}));
        ModelItem {
            response_format: None,
            meta,
            model: "s/x".to_owned(),
            messages: vec![Json::of(&json!({"role": "user", "content": prompt}))],
            after: None,
            tools: vec![tool("f"), tool("continuation")],
            parallel_tool_calls: true,
            parameters: Map::new(),
            streaming: Streaming::default(),
            signal: contract::model::SignalForm::Text,
            opened_by: String::new(),
        }
    }

    pub(crate) async fn publish_item(&self, item: &ModelItem) {
        self.bus.publish_model_item(&self.key, item, bus::work::Publication::First).await.unwrap();
    }

    pub(crate) fn call() -> CallAttempt {
        CallAttempt { call: CallId::model(1, 1), attempt: 1 }
    }

    /// The id of the first result of [`World::call`].
    pub(crate) fn result_id() -> CommandId {
        CommandId::new("m1-1-1").unwrap()
    }

    pub(crate) async fn stored(&self, verb: Verb) -> Option<Stored> {
        let id = Self::result_id();
        let subject = subject::control(&self.key, verb, &id);
        self.bus.transport().last(Stream::Control, &subject, bus::Read::Leader).await.unwrap()
    }

    pub(crate) async fn wait_for_result(&self, verb: Verb) -> Bytes {
        poll_until(async || self.stored(verb).await).await.payload
    }

    pub(crate) async fn wait_for_finished(&self) -> ModelFinished {
        let body = self.bus.open(Objects::Work, self.wait_for_result(Verb::ModelFinished).await).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    pub(crate) async fn wait_for_failed(&self) -> ModelFailed {
        serde_json::from_slice(&self.wait_for_result(Verb::ModelFailed).await).unwrap()
    }

    pub(crate) async fn wait_until_empty(&self) {
        let filter = subject::model_item(&self.key, &Self::call());
        poll_until(async || {
            let item = self.bus.transport().last(Stream::Model, &filter, bus::Read::Leader).await.unwrap();
            item.is_none().then_some(())
        })
        .await;
    }

    pub(crate) async fn is_unanswered(&self) -> bool {
        self.stored(Verb::ModelFinished).await.is_none() && self.stored(Verb::ModelFailed).await.is_none()
    }
}

/// Polls until there is a value. The clock is virtual, so waiting costs no time.
pub(crate) async fn poll_until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..10_000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("nothing came within 200 s");
}

pub(crate) async fn sleep_seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}
