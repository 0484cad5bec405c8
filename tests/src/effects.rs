//! Tools that write each of their calls to a file before they answer: what took effect, known without asking the fleet.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ailoop_tool::{Call, Effect, Serving, Tool, ToolError, Tools};
use anyhow::Context;
use serde_json::{Value, json};

use crate::workshop::EFFECTS;

/// The tools, one of each effect class and of its name; each writes its calls into a file of its own before it answers.
pub struct Effects {
    dir: PathBuf,
    _serving: Serving,
}

impl Effects {
    /// Serves them; their files go to this directory.
    pub async fn serve(nats: &str, dir: &Path) -> anyhow::Result<Self> {
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
                    // At once, and before it is answered.
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
    pub fn runs(&self, effect: Effect, session: &str) -> anyhow::Result<Vec<Run>> {
        let run = |line: Value| {
            let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            let at_ms = line["at_ms"].as_u64().context("when it ran")?;
            Ok(Run { call: text("call"), mark: text("mark"), at_ms })
        };
        self.lines(effect, session)?.into_iter().map(run).collect()
    }

    /// How often each call of a session took effect, by its id, and with which mark.
    pub fn of(&self, effect: Effect, session: &str) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        let mut took: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in self.lines(effect, session)? {
            // Tools know a call by an id that is unique among all sessions.
            let call = line["call"].as_str().and_then(|call| call.strip_prefix(&format!("{session}-")));
            // Behind it are digits that stand for tenant and session.
            let call = call.and_then(|call| Some(call.rsplit_once('-')?.0));
            let call = call.with_context(|| format!("{line}: the id of a call of {session}"))?;
            took.entry(call.to_owned()).or_default().push(line["mark"].to_string());
        }
        Ok(took)
    }

    /// What the tool of this effect class wrote for a session.
    fn lines(&self, effect: Effect, session: &str) -> anyhow::Result<Vec<Value>> {
        let text = std::fs::read_to_string(file(&self.dir, effect))?;
        // The last line may be half written: its call has not been answered yet.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let lines = whole.map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        Ok(lines.into_iter().filter(|line| line["session"] == session).collect())
    }
}

/// One time that a call took effect.
#[derive(Debug, Clone)]
pub struct Run {
    /// The call's id, as tools know it.
    pub call: String,
    /// The mark in its arguments.
    pub mark: String,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
}

fn file(dir: &Path, effect: Effect) -> PathBuf {
    dir.join(format!("{}.jsonl", effect.as_str()))
}
