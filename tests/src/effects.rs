//! Tools that write each call to a file before they answer, so that a test knows the effects without the fleet.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ailoop_tool::{Call, Effect, Serving, Tool, ToolError, Tools};
use anyhow::Context;
use serde_json::{Value, json};

use crate::tool_server::EFFECTS;

/// One tool for each effect class, named after it. Each writes its calls to its own file before it answers.
pub struct EffectRecorder {
    dir: PathBuf,
    _serving: Serving,
}

impl EffectRecorder {
    /// Serves the tools; their files are created in `dir`.
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
                    // Written before the answer: a call that was answered is in the file.
                    marks
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .write_all(format!("{line}\n").as_bytes())
                        .map_err(ToolError::new)?;
                    // The call has taken effect; a test may delay its answer.
                    let wait = arguments["wait_ms"].as_u64().unwrap_or_default();
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                    Ok::<Value, ToolError>(arguments)
                }
            }));
        }
        Ok(Self { dir: dir.to_owned(), _serving: tools.serve().await? })
    }

    /// Every effect of a session, in the order of the file.
    pub fn runs(&self, effect: Effect, session: &str) -> anyhow::Result<Vec<EffectRun>> {
        let run = |line: Value| {
            let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            let at_ms = line["at_ms"].as_u64().context("`at_ms` is missing")?;
            Ok(EffectRun { call: text("call"), mark: text("mark"), at_ms })
        };
        self.lines(effect, session)?.into_iter().map(run).collect()
    }

    /// The marks with which each call of a session took effect, by call id.
    pub fn of(&self, effect: Effect, session: &str) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        let mut took: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in self.lines(effect, session)? {
            // Tools get ids that are unique among all sessions: `<session>-<call>-<digest>`.
            let call = line["call"].as_str().and_then(|call| call.strip_prefix(&format!("{session}-")));
            let call = call.and_then(|call| Some(call.rsplit_once('-')?.0));
            let call = call.with_context(|| format!("{line}: not a call id of session {session}"))?;
            took.entry(call.to_owned()).or_default().push(line["mark"].to_string());
        }
        Ok(took)
    }

    /// The complete lines that the tool of this effect class wrote for a session.
    fn lines(&self, effect: Effect, session: &str) -> anyhow::Result<Vec<Value>> {
        let text = std::fs::read_to_string(file(&self.dir, effect))?;
        // The last line may be incomplete; its call has not been answered yet.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        // After thousands of sessions, to parse the lines of all others would take most of the machine's time.
        let lines =
            whole.filter(|line| line.contains(session)).map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        Ok(lines.into_iter().filter(|line| line["session"] == session).collect())
    }
}

/// One effect of a call.
#[derive(Debug, Clone)]
pub struct EffectRun {
    /// Call id as tools get it.
    pub call: String,
    /// `mark` of the arguments.
    pub mark: String,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
}

fn file(dir: &Path, effect: Effect) -> PathBuf {
    dir.join(format!("{}.jsonl", effect.as_str()))
}
