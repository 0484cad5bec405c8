//! Those who know what happened without asking the fleet: tools that write down each effect, and a model that remembers
//! what it was asked.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ailoop_tests::model::{Asked, ModelServer, Reply};
use ailoop_tests::workshop::EFFECTS;
use ailoop_tool::{Call, Effect, Serving, Tool, ToolError, Tools};
use anyhow::Context;
use serde_json::{Value, json};

/// Between two pieces of a reply.
const PIECE: Duration = Duration::from_millis(20);

/// The tools, one of each effect class and of its name; each writes its calls into a file of its own before it answers.
pub(crate) struct Effects {
    dir: PathBuf,
    _serving: Serving,
}

impl Effects {
    pub(crate) async fn serve(nats: &str, dir: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let mut tools = Tools::connect(nats).await?.concurrency(64);
        for effect in EFFECTS {
            let path = file(dir, effect);
            let marks = Arc::new(Mutex::new(std::fs::File::create(path)?));
            let tool = Tool::new(effect.as_str()).effect(effect).timeout(Duration::from_secs(15));
            tools = tools.tool(tool.handler(move |call: Call| {
                let marks = marks.clone();
                async move {
                    let arguments: Value = call.arguments()?;
                    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
                    let at = u64::try_from(at).unwrap_or(u64::MAX);
                    let mark = &arguments["mark"];
                    let line = json!({"session": call.session(), "call": call.id(), "mark": mark, "at_ms": at});
                    // At once, so that nobody reads half a line.
                    marks
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .write_all(format!("{line}\n").as_bytes())
                        .map_err(ToolError::new)?;
                    // It has taken effect, and its answer may take a while.
                    let wait = arguments["wait_ms"].as_u64().unwrap_or_default();
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                    Ok::<Value, ToolError>(arguments)
                }
            }));
        }
        Ok(Self { dir: dir.to_owned(), _serving: tools.serve().await? })
    }

    /// Each time that a call of a session took effect.
    #[allow(dead_code, reason = "the trials of an older store use it")]
    pub(crate) fn runs(&self, effect: Effect, session: &str) -> anyhow::Result<Vec<Run>> {
        let mut runs = Vec::new();
        for line in std::fs::read_to_string(file(&self.dir, effect))?.lines() {
            let line: Value = serde_json::from_str(line)?;
            if line["session"] == session {
                let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
                let at_ms = line["at_ms"].as_u64().context("when it ran")?;
                runs.push(Run { call: text("call"), mark: text("mark"), at_ms });
            }
        }
        Ok(runs)
    }

    /// How often each call of a session took effect, by its id, and with which mark.
    pub(crate) fn of(&self, effect: Effect, session: &str) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        let mut took: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in std::fs::read_to_string(file(&self.dir, effect))?.lines() {
            let line: Value = serde_json::from_str(line)?;
            if line["session"] == session {
                // Tools know a call by an id that is unique among all sessions.
                let call = line["call"].as_str().and_then(|call| call.strip_prefix(&format!("{session}-")));
                // Behind it are digits that stand for tenant and session.
                let call = call.and_then(|call| Some(call.rsplit_once('-')?.0));
                let call = call.with_context(|| format!("{line}: the id of a call of {session}"))?;
                took.entry(call.to_owned()).or_default().push(line["mark"].to_string());
            }
        }
        Ok(took)
    }
}

/// One time that a call took effect.
#[allow(dead_code, reason = "the trials of an older store use it")]
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) call: String,
    pub(crate) mark: String,
    /// Milliseconds since the epoch.
    pub(crate) at_ms: u64,
}

fn file(dir: &Path, effect: Effect) -> PathBuf {
    dir.join(format!("{}.jsonl", effect.as_str()))
}

/// One request that the model served.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) session: String,
    /// The call's id, as it stands in the log.
    pub(crate) call: String,
    pub(crate) at: SystemTime,
}

/// The model.
pub(crate) struct Model {
    pub(crate) server: ModelServer,
    served: Arc<Mutex<Vec<Served>>>,
}

impl Model {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let served: Arc<Mutex<Vec<Served>>> = Arc::default();
        let asked_for = served.clone();
        let model = ModelServer::start(move |asked| {
            let (session, turn, step) = position(asked);
            let call = Served { session: session.clone(), call: format!("m{turn}-{step}"), at: SystemTime::now() };
            asked_for.lock().unwrap_or_else(PoisonError::into_inner).push(call);
            reply(&session, turn, step)
        })
        .await?;
        Ok(Self { server: model, served })
    }

    /// What it was asked for a session.
    pub(crate) fn served(&self, session: &str) -> Vec<Served> {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.iter().filter(|served| served.session == session).cloned().collect()
    }
}

/// The session that a request is for, its turn and its step: the last word of each user message is the session's name.
fn position(asked: &Asked) -> (String, usize, usize) {
    let role = |message: &&Value, role: &str| message["role"] == role;
    let turn = asked.messages().iter().filter(|message| role(message, "user")).count();
    let said = asked.messages().iter().rev().take_while(|message| !role(message, "user"));
    let step = said.filter(|message| role(message, "assistant")).count() + 1;
    (asked.last_user().rsplit(' ').next().unwrap_or_default().to_owned(), turn, step)
}

/// Two steps with calls, a last word, and short answers after that.
fn reply(session: &str, turn: usize, step: usize) -> Reply {
    let spoken = |text: &str| {
        let words = text.split_inclusive(' ');
        words.fold(Reply::text(""), |reply, word| reply.and_delay(PIECE).and_text(word))
    };
    let call =
        |effect: Effect| (effect.as_str(), json!({"mark": format!("{session}-{turn}-{step}-{}", effect.as_str())}));
    match (turn, step) {
        (1, 1) => spoken("I look at it first. ").and_calls(&[call(Effect::Pure), call(Effect::Idempotent)]),
        (1, 2) => spoken("Now I do it. ").and_calls(&[call(Effect::AtMostOnce)]),
        (1, _) => spoken("That is all."),
        _ => spoken("You are welcome."),
    }
}
