//! An editor that drives `ailoop acp` by lines of JSON, written by hand.

use std::process::Stdio;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::cli::{self, WorkDir};
use crate::wait::soon;

/// An editor with its agent process, which is killed with the value.
#[derive(Debug)]
pub struct Editor {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    /// Messages of the agent that nobody waited for, in their order.
    received: Vec<Value>,
    requests: u64,
    _work_dir: WorkDir,
}

impl Editor {
    /// Starts the agent for a fleet; nothing is sent yet.
    pub fn start(url: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let work_dir = WorkDir::new()?;
        let mut command = cli::command(work_dir.path())?;
        command.arg("acp").args(arguments).env("AILOOP_GRPC_URL", url);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let input = Some(child.stdin.take().context("stdin")?);
        let output = BufReader::new(child.stdout.take().context("stdout")?).lines();
        Ok(Self { child, input, output, received: Vec::new(), requests: 0, _work_dir: work_dir })
    }

    /// As [`Editor::start`], after `initialize` of a client without any ability.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let mut editor = Self::start(url, &[])?;
        let version = editor.ok("initialize", &json!({"protocolVersion": 1})).await?;
        ensure!(version["protocolVersion"] == 1, "{version}");
        Ok(editor)
    }

    /// Writes a line as it is.
    pub async fn write(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("stdin is closed")?;
        input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(input.flush().await?)
    }

    /// Sends a request; returns its id.
    pub async fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<u64> {
        self.requests += 1;
        let id = self.requests;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()).await?;
        Ok(id)
    }

    /// Sends a notification to the agent.
    pub async fn notify(&mut self, method: &str, params: &Value) -> anyhow::Result<()> {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await
    }

    /// Waits for the answer to a request: `result` or `error` of the message.
    pub async fn answer(&mut self, id: u64) -> anyhow::Result<Result<Value, Value>> {
        let message = self.until(|message| message["id"] == id && message.get("method").is_none()).await?;
        Ok(match message.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(message["result"].clone()),
        })
    }

    /// Sends a request and waits for its answer.
    pub async fn call(&mut self, method: &str, params: &Value) -> anyhow::Result<Result<Value, Value>> {
        let id = self.request(method, params).await?;
        self.answer(id).await
    }

    /// As [`Editor::call`], which must succeed.
    pub async fn ok(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.call(method, params).await?.map_err(|error| anyhow::anyhow!("{method}: {error}"))
    }

    /// As [`Editor::call`], which must fail; returns number and stable code of the error.
    pub async fn refused(&mut self, method: &str, params: &Value) -> anyhow::Result<(i64, String)> {
        let error = self.call(method, params).await?.err().with_context(|| format!("{method} is not refused"))?;
        error_codes(&error)
    }

    /// Begins a session; returns its id.
    pub async fn new_session(&mut self) -> anyhow::Result<String> {
        let session = self.ok("session/new", &json!({"cwd": "/", "mcpServers": []})).await?;
        Ok(session["sessionId"].as_str().context("an id")?.to_owned())
    }

    /// Sends a prompt of text; returns the id of the request.
    pub async fn prompt(&mut self, session: &str, text: &str) -> anyhow::Result<u64> {
        let prompt = json!([{"type": "text", "text": text}]);
        self.request("session/prompt", &json!({"sessionId": session, "prompt": prompt})).await
    }

    /// Sends a prompt; returns the stop reason of its answer.
    pub async fn stop_reason_of(&mut self, session: &str, text: &str) -> anyhow::Result<Value> {
        let id = self.prompt(session, text).await?;
        self.stop_reason(id).await
    }

    /// Waits for the answer to a prompt; returns its stop reason.
    pub async fn stop_reason(&mut self, id: u64) -> anyhow::Result<Value> {
        let answer = self.answer(id).await?.map_err(|error| anyhow::anyhow!("the prompt failed: {error}"))?;
        Ok(answer["stopReason"].clone())
    }

    /// Waits for a request of the agent; returns its id and its parameters.
    pub async fn asked(&mut self, method: &str) -> anyhow::Result<(Value, Value)> {
        let message = self.until(|message| message["method"] == method).await?;
        Ok((message["id"].clone(), message["params"].clone()))
    }

    /// Answers a request of the agent.
    pub async fn reply(&mut self, id: &Value, result: &Value) -> anyhow::Result<()> {
        self.write(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()).await
    }

    /// Chooses an option of a permission request.
    pub async fn choose(&mut self, id: &Value, option: &str) -> anyhow::Result<()> {
        self.reply(id, &json!({"outcome": {"outcome": "selected", "optionId": option}})).await
    }

    /// Waits until the agent has said a text, in all of its chunks together.
    pub async fn until_text(&mut self, text: &str) -> anyhow::Result<()> {
        while !self.text("agent_message_chunk").contains(text) {
            let message = self.next().await.with_context(|| format!("before the text {text:?}"))?;
            self.received.push(message);
        }
        Ok(())
    }

    /// The texts of all chunks of a kind.
    pub fn text(&self, kind: &str) -> String {
        let of_kind = self.updates().filter(|update| update["sessionUpdate"] == kind);
        of_kind.filter_map(|update| update["content"]["text"].as_str()).collect()
    }

    /// Kinds and statuses of the updates about tool calls.
    pub fn call_statuses(&self) -> Vec<&str> {
        self.updates()
            .filter(|update| update.get("toolCallId").is_some())
            .filter_map(|update| update["status"].as_str())
            .collect()
    }

    /// All updates so far.
    pub fn updates(&self) -> impl Iterator<Item = &Value> {
        self.received.iter().map(|message| &message["params"]["update"]).filter(|update| update.is_object())
    }

    /// Forgets what was received.
    pub fn forget(&mut self) {
        self.received.clear();
    }

    /// Waits for a message; those before it are kept.
    pub async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        if let Some(index) = self.received.iter().position(&fits) {
            return Ok(self.received.remove(index));
        }
        loop {
            let message = self.next().await?;
            if fits(&message) {
                return Ok(message);
            }
            self.received.push(message);
        }
    }

    async fn next(&mut self) -> anyhow::Result<Value> {
        let line = soon("a message of the agent", self.output.next_line()).await??;
        let line = line.context("the agent has ended")?;
        serde_json::from_str(&line).with_context(|| format!("no JSON: {line}"))
    }

    /// Kills the agent (SIGKILL).
    pub async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Closes stdin; returns the exit code.
    pub async fn close(mut self) -> anyhow::Result<Option<i32>> {
        drop(self.input.take());
        Ok(soon("the agent ends", self.child.wait()).await??.code())
    }
}

/// Number and stable code of an error.
pub fn error_codes(error: &Value) -> anyhow::Result<(i64, String)> {
    let number = error["code"].as_i64().context("a number")?;
    Ok((number, error["data"]["code"].as_str().with_context(|| format!("no stable code: {error}"))?.to_owned()))
}
