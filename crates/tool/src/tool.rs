//! A tool: its description, its handler and its probe.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::wire::metadata;
use crate::{Call, Reply, ToolError};

/// Effect class of a call: what may be done when it is unknown whether the call took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effect {
    /// The call changes nothing: it may run again.
    Pure,
    /// The call takes effect once per call id: it may be sent again with the same id.
    Idempotent,
    /// The call must not run twice: the model learns that the outcome is unknown.
    #[default]
    AtMostOnce,
    /// The call must not run twice, and the tool can report its outcome later: see [`Tool::probe`].
    Reconcilable,
}

impl Effect {
    /// The word in the endpoint metadata.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Idempotent => "idempotent",
            Self::AtMostOnce => "at_most_once",
            Self::Reconcilable => "reconcilable",
        }
    }
}

/// Whether a person is asked before each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Approval {
    /// No person is asked.
    #[default]
    Never,
    /// Each call waits for a person.
    Always,
}

impl Approval {
    /// The word in the endpoint metadata.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
        }
    }
}

/// Timeout of a tool that declares none.
const TIMEOUT_DEFAULT: Duration = Duration::from_mins(1);

pub(crate) type Handler = Arc<dyn Fn(Call) -> BoxFuture<'static, Result<Reply, ToolError>> + Send + Sync>;
pub(crate) type Probe = Arc<dyn Fn(Call) -> BoxFuture<'static, Result<Option<Reply>, ToolError>> + Send + Sync>;

/// A tool: its description and its handler.
#[derive(Clone)]
pub struct Tool {
    name: String,
    pub(crate) description: String,
    parameters: Value,
    pub(crate) effect: Effect,
    approval: Approval,
    timeout: Option<Duration>,
    max_output: Option<usize>,
    instructions: Option<String>,
    pub(crate) version: String,
    pub(crate) handler: Handler,
    pub(crate) probe: Option<Probe>,
}

impl Tool {
    /// A tool without a handler yet. Names are 1 to 64 characters of `A-Z a-z 0-9 _ -`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": {}}),
            effect: Effect::default(),
            approval: Approval::default(),
            timeout: None,
            max_output: None,
            instructions: None,
            version: "1.0.0".to_owned(),
            handler: Arc::new(|_| async { Err(ToolError::new("this tool has no handler")) }.boxed()),
            probe: None,
        }
    }

    /// Sets what the tool does and when to use it: the model reads this.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// Sets the JSON Schema of the arguments object; at most 32 KiB.
    #[must_use]
    pub fn parameters(mut self, schema: Value) -> Self {
        self.parameters = schema;
        self
    }

    /// Sets the effect class: what may be done when it is unknown whether a call took effect.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// Whether a person is asked before each call.
    #[must_use]
    pub fn approval(mut self, approval: Approval) -> Self {
        self.approval = approval;
        self
    }

    /// Sets the timeout of one call; at most an hour. Default: a minute.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the bytes of a result that the model reads; the middle of a longer one is left out.
    #[must_use]
    pub fn max_output(mut self, bytes: usize) -> Self {
        self.max_output = Some(bytes);
        self
    }

    /// Sets a text for the prompt of agents that have this tool.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = Some(text.into());
        self
    }

    /// Sets the version, as `major.minor.patch`.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Sets the function that handles calls. A call is cancelled by dropping its future.
    #[must_use]
    pub fn handler<F, Fut, R>(mut self, handler: F) -> Self
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
        R: Into<Reply>,
    {
        self.handler = Arc::new(move |call| handler(call).map(|result| result.map(Into::into)).boxed());
        self
    }

    /// Makes the tool [`Effect::Reconcilable`]: after a loss this function finds the outcome of a call, by the call's
    /// id and arguments. `Some`: the call took effect, with this result. `None`: it took no effect; this counts once
    /// the call's deadline is over, so a plain look into the tool's own store is enough where an effect shows there
    /// within two seconds of the deadline. An error: the outcome is unknown now, and the function is called again. An
    /// answer takes 5 seconds at most.
    #[must_use]
    pub fn probe<F, Fut, R>(mut self, probe: F) -> Self
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<R>, ToolError>> + Send + 'static,
        R: Into<Reply>,
    {
        self.effect = Effect::Reconcilable;
        self.probe =
            Some(Arc::new(move |call| probe(call).map(|found| found.map(|done| done.map(Into::into))).boxed()));
        self
    }

    /// Returns the name of the tool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether an interrupted call may have changed something.
    pub(crate) fn takes_effect(&self) -> bool {
        self.effect != Effect::Pure
    }

    /// Returns the time of a call without progress.
    pub(crate) fn timeout_or_default(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT_DEFAULT)
    }

    /// Asks the probe for the outcome of a lost call.
    pub(crate) async fn run_probe(&self, call: Call) -> Result<Option<Reply>, ToolError> {
        match &self.probe {
            Some(probe) => probe(call).await,
            None => Err(ToolError::unknown("this tool cannot tell what became of a call")),
        }
    }

    /// Builds the endpoint metadata by which the fleet finds the tool.
    pub(crate) fn metadata(&self) -> BTreeMap<&'static str, String> {
        let mut all = BTreeMap::from([
            (metadata::TOOL, self.name.clone()),
            (metadata::DESCRIPTION, self.description.clone()),
            (metadata::PARAMETERS, self.parameters.to_string()),
            (metadata::EFFECT, self.effect.as_str().to_owned()),
            (metadata::APPROVAL, self.approval.as_str().to_owned()),
        ]);
        let seconds = self.timeout.map(|timeout| (metadata::TIMEOUT, timeout.as_secs_f64().to_string()));
        let bytes = self.max_output.map(|bytes| (metadata::MAX_OUTPUT, bytes.to_string()));
        let text = self.instructions.clone().map(|text| (metadata::INSTRUCTIONS, text));
        all.extend([seconds, bytes, text].into_iter().flatten());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_has_what_was_set_and_no_more() {
        let plain = Tool::new("a").metadata();
        assert_eq!(plain[metadata::EFFECT], "at_most_once");
        assert_eq!(plain.len(), 5);
        let full = Tool::new("a").timeout(Duration::from_millis(1_500)).max_output(9).instructions("x").metadata();
        assert_eq!(full[metadata::TIMEOUT], "1.5");
        assert_eq!(full[metadata::MAX_OUTPUT], "9");
        assert_eq!(full[metadata::INSTRUCTIONS], "x");
    }
}
