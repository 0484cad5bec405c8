//! Resolved settings of an agent and a model. The composer answers with these, and a session commits them.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::{AgentId, ToolName};
use crate::layered::{Layered, layered};
use crate::model::StreamingOverride;
use crate::tool::ApprovalPolicy;

layered! {
    /// Rules by which the loop decides whether a turn goes on.
    #[derive(JsonSchema)]
    #[allow(clippy::struct_excessive_bools, reason = "switches that people set one by one")]
    pub struct ContinuationSettings;

    /// Continuation settings of one session; absent ones are those of the agent. Lists are replaced, not merged.
    pub struct ContinuationOverride {
        /// Template that overrides the settings of agent and model; the settings that tenant and session set one by one
        /// override it. The composer applies it: the settings that this override is applied to include it already.
        template: Option<String>
    };

    /// Whether the loop goes on by itself at all; otherwise a reply without tool calls ends its turn.
    enabled: bool = true,
    /// Whether a turn without an explicit signal ends at once, patterns unread.
    require_explicit_signal: bool = true,
    /// Steps of a turn.
    max_iterations: u32 = 5,
    /// Wall clock of a turn in seconds, pauses not counted.
    timeout: u64 = 300,
    /// Whether a reply that was cut at the model's output limit is continued.
    continue_on_length: bool = true,
    /// Patterns of the `regex` crate, case-insensitive, that mean "go on".
    #[layer(serde(alias = "patterns"))]
    continuation_patterns: Vec<String> = owned(&[
        r"\bCONTINUE\b",
        r#""status":\s*"CONTINUE""#,
        "need.*more.*steps",
        "not.*finished",
    ]),
    /// Patterns that mean "done"; of all matches the one that ends last counts.
    termination_patterns: Vec<String> = owned(&[
        r"\bTERMINATE\b",
        r#""status":\s*"TERMINATE""#,
        "task.*completed",
        "finished.*successfully",
    ]),
    /// Whether the words of a reply decide where no pattern matches: an announcement of work goes on, a question to the
    /// user or a "done" ends the turn. Sessions of older versions do not say so, and go on without it.
    #[settings(serde(default))]
    detect_intent: bool = true,
    /// Least confidence, 0 to 1, that the signal of a model must have if it states one. A less sure TERMINATE takes one
    /// more step, in which the model checks its work; after a less sure CONTINUE the loop asks the model to find out
    /// more or to ask the user. None: every signal counts.
    confidence_min: Option<f64> as Option<f64> = None,
    /// The model that is asked where neither a signal nor a pattern nor the words of the reply decide; none: the turn
    /// ends there. An empty name removes the judge of a layer below.
    #[settings(serde(skip_serializing_if = "Option::is_none"))]
    judge: Option<String> as Option<String> = None,
    /// Limits of a turn besides steps and time. A layer may set each of them alone.
    limits: Limits as Option<LimitsOverride> = Limits::default(),
    /// Action when a turn reaches a limit.
    #[settings(serde(flatten, with = "written_limit_action"))]
    #[settings(schemars(with = "written_limit_action::Written"))]
    on_limit: LimitAction = LimitAction::default(),
    /// Action when a model call has failed for good.
    on_error: OnError = OnError::default(),
    /// Number of retries of a model call in a row, after failures that may pass, before the failure counts.
    retries: u32 = crate::limits::MODEL_RETRIES_MAX,
    /// Handling of the oldest turns when the transcript outgrows the model's window.
    prune: Prune = Prune::default(),
}

fn owned(patterns: &[&str]) -> Vec<String> {
    patterns.iter().map(|pattern| (*pattern).to_owned()).collect()
}

layered! {
    /// Limits of a turn besides steps and time; none means no limit. The answer "approve" at a gate grants as much
    /// again.
    #[derive(Copy, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct Limits;

    /// [`Limits`] in one layer of settings. A limit that is absent has the value of the layer below.
    #[derive(Copy, JsonSchema)]
    #[schemars(rename = "limits", description = "Each counts by itself; null takes one off that the layer below sets.")]
    pub struct LimitsOverride;

    /// Tokens, in and out together.
    #[settings(serde(skip_serializing_if = "Option::is_none"))]
    #[layer(schemars(with = "Option<u64>"))]
    tokens: Option<u64> as Cap<u64> = None,
    /// Cost limit in US dollars.
    #[settings(serde(skip_serializing_if = "Option::is_none"))]
    #[layer(schemars(with = "Option<f64>"))]
    cost_usd: Option<f64> as Cap<f64> = None,
    /// Number of tool calls.
    #[settings(serde(skip_serializing_if = "Option::is_none"))]
    #[layer(schemars(with = "Option<u32>"))]
    tool_calls: Option<u32> as Cap<u32> = None,
    /// Number of times that the same call with the same arguments may be made; 0 means no limit.
    repetition: u32 = 3,
    // New is a call, a result or a text that the turn has not seen.
    /// Steps in a row that may bring nothing new; 0 means no limit.
    no_progress: u32 = 4,
}

/// Value of an optional limit in one layer of settings.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Cap<T> {
    /// The layer leaves the limit as it is.
    #[default]
    Unsaid,
    /// `null`: there is no limit.
    Off,
    /// The limit is this value.
    At(T),
}

impl<T: Copy> Layered<Option<T>> for Cap<T> {
    fn over(&self, below: &Option<T>) -> Option<T> {
        match *self {
            Self::Unsaid => *below,
            Self::Off => None,
            Self::At(value) => Some(value),
        }
    }

    fn and(self, later: Self) -> Self {
        match later {
            Self::Unsaid => self,
            Self::Off | Self::At(_) => later,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Cap<T> {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(value)?.map_or(Self::Off, Self::At))
    }
}

impl<T: Serialize> Serialize for Cap<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unsaid | Self::Off => serializer.serialize_none(),
            Self::At(value) => serializer.serialize_some(value),
        }
    }
}

impl Layered<Limits> for Option<LimitsOverride> {
    fn over(&self, below: &Limits) -> Limits {
        self.unwrap_or_default().over(below)
    }

    fn and(self, later: Self) -> Self {
        match (self, later) {
            (Some(earlier), Some(later)) => Some(earlier.and(later)),
            (earlier, later) => later.or(earlier),
        }
    }
}

/// Action when a turn reaches a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LimitAction {
    /// The model answers the user in one last step without tools, then the turn ends.
    #[default]
    Answer,
    /// The turn ends at once.
    End,
    /// A person is asked whether it may use as much again. Where the answer is no, the model has one last step.
    Ask,
}

/// [`LimitAction`] in logs and messages, as `limit_action`. Versions before fold 13 read two other fields, and no value
/// `answer`: `on_limit`, which is `end` or `ask`, and `ends_at_once`, which makes `end` of their `answer`.
mod written_limit_action {
    use schemars::JsonSchema;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::LimitAction;

    #[derive(Serialize, Deserialize, Default, JsonSchema)]
    #[serde(default)]
    pub(super) struct Written {
        /// Action when a turn reaches a limit.
        limit_action: Option<LimitAction>,
        /// The action as versions before fold 13 read it; absent unless it is `ask`.
        #[serde(skip_serializing_if = "Option::is_none")]
        on_limit: Option<LimitAction>,
        /// Whether the action is `end`, as versions before fold 13 read it.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        ends_at_once: bool,
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
    pub(super) fn serialize<S: Serializer>(action: &LimitAction, serializer: S) -> Result<S::Ok, S::Error> {
        let written = Written {
            limit_action: Some(*action),
            on_limit: Some(*action).filter(|action| *action == LimitAction::Ask),
            ends_at_once: *action == LimitAction::End,
        };
        written.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LimitAction, D::Error> {
        let Written { limit_action, on_limit, ends_at_once } = Written::deserialize(deserializer)?;
        Ok(limit_action.unwrap_or(match on_limit {
            Some(LimitAction::Ask) => LimitAction::Ask,
            Some(LimitAction::Answer | LimitAction::End) | None if ends_at_once => LimitAction::End,
            Some(LimitAction::Answer | LimitAction::End) | None => LimitAction::Answer,
        }))
    }
}

/// Action when a model call has failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum OnError {
    /// The turn ends with `error`.
    #[default]
    End,
    /// A person is asked whether it should be tried again.
    Ask,
    /// The model's next fallback takes over for the rest of the turn; the turn ends when there is none left.
    Fallback,
}

/// Handling of the oldest turns when the transcript outgrows the model's window. Large old results are cut first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Prune {
    /// The oldest turns are dropped.
    #[default]
    Drop,
    /// The model sums them up.
    Summarise,
}

impl ContinuationSettings {
    /// The turn's wall clock.
    pub fn turn_timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// The model that judges; none if the name is empty, which removes the judge of a layer below.
    pub fn judge(&self) -> Option<&str> {
        self.judge.as_deref().filter(|model| !model.is_empty())
    }
}

/// Filter of the tools that an agent may use. It fails closed: a name that no rule permits is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(default)]
pub struct ToolFilter {
    /// Names; one that ends in `*` permits all tools with that prefix, and `*` permits every tool of the tenant.
    pub allow: Vec<String>,
    /// Names that are refused even if `allow` permits them.
    pub deny: Vec<String>,
}

/// Whether a name from the configuration, with or without `*` at its end, matches a tool.
pub fn names_tool(name: &str, tool: &str) -> bool {
    name.strip_suffix('*').map_or(name == tool, |beginning| tool.starts_with(beginning))
}

impl ToolFilter {
    /// Whether the tool may be used.
    pub fn permits(&self, tool: &ToolName) -> bool {
        let named = |list: &[String]| list.iter().any(|name| names_tool(name, tool.as_str()));
        named(&self.allow) && !named(&self.deny)
    }

    /// Whether there may be a tool that it permits.
    pub fn permits_any(&self) -> bool {
        // What a denied beginning covers is denied with all that begins so.
        let denied = |name: &String| self.deny.iter().any(|denied| names_tool(denied, name.trim_end_matches('*')));
        self.allow.iter().any(|name| !denied(name))
    }
}

/// An agent, resolved from `agents.yaml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentSettings {
    /// Key of the agent in its configuration.
    pub id: AgentId,
    /// Its name, as people read it.
    pub name: String,
    /// Continuation settings of the agent.
    pub continuation: ContinuationSettings,
    /// Filter of the tools that the agent may use.
    pub tools: ToolFilter,
    /// Rules on whether a person is asked before a call. The first rule that matches decides, and else the tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalRule>,
}

/// Whether a person is asked before a call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalRule {
    /// Name of the tool; with `*` at its end it is a prefix.
    pub tool: String,
    /// Regular expressions (crate `regex`) by JSON pointer into the arguments. A text is matched as it is, any other
    /// value as JSON. All must match; a missing value does not match.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, String>,
    /// Whether a person is asked before such a call.
    pub ask: ApprovalPolicy,
    /// Seconds that the question stays open; 24 hours by default, and at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Decision if nobody answers in time.
    #[serde(default, skip_serializing_if = "crate::default::is_default")]
    pub on_expiry: OnExpiry,
}

/// Decision on a question that nobody answers in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// The gate counts as denied.
    #[default]
    Deny,
    /// The gate counts as approved.
    Approve,
}

/// A model, resolved from `models.yaml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModelSettings {
    /// The id that the gateway is asked for.
    pub id: String,
    /// Whether it takes several tools in one request and calls several in one reply.
    pub multi_tool: bool,
    /// Calls of one reply that run at once.
    pub max_parallel_tools: u32,
    /// Whether it answers in a given JSON Schema.
    pub structured_output: bool,
    /// Whether it reasons before it answers.
    pub reasoning: bool,
    /// Tokens of a request and its reply together; unknown where none is given.
    pub context_window: Option<u64>,
    /// Tokens of one reply.
    pub max_output: Option<u64>,
    /// Settings of requests to it, where it takes the place of the session's model. The settings for that model may be
    /// in the terms of another provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub requests: Option<Box<ModelRequests>>,
}

/// Settings of requests to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ModelRequests {
    /// Parameters for the provider.
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Tool choices, one for each step of a turn.
    pub tool_choice: Vec<serde_json::Value>,
    /// Streaming settings of replies in the configuration files.
    #[serde(skip_serializing_if = "crate::default::is_default")]
    pub streaming: StreamingOverride,
}

impl Default for ModelSettings {
    /// Settings of a model without an entry: one tool at a time.
    fn default() -> Self {
        Self {
            id: String::new(),
            multi_tool: false,
            max_parallel_tools: 1,
            structured_output: false,
            reasoning: false,
            context_window: None,
            max_output: None,
            requests: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_action_of_older_version_is_read_and_written_so_that_it_reads_it() {
        use serde_json::json;
        // The fields that versions before fold 13 read, with what they mean, and all that is written now.
        for (older, action, written) in [
            (json!({}), LimitAction::Answer, json!({"limit_action": "answer"})),
            (json!({"on_limit": "end"}), LimitAction::Answer, json!({"limit_action": "answer"})),
            (
                json!({"on_limit": "end", "ends_at_once": true}),
                LimitAction::End,
                json!({"limit_action": "end", "ends_at_once": true}),
            ),
            (json!({"on_limit": "ask"}), LimitAction::Ask, json!({"limit_action": "ask", "on_limit": "ask"})),
        ] {
            let read: ContinuationSettings = serde_json::from_value(older).unwrap();
            assert_eq!(read.on_limit, action, "{written}");
            let mut fields = serde_json::to_value(&read).unwrap();
            assert_eq!(serde_json::from_value::<ContinuationSettings>(fields.clone()).unwrap(), read);
            fields.as_object_mut().unwrap().retain(|key, _| written.get(key).is_some() || key.contains("limit_"));
            assert_eq!(fields, written);
            assert_eq!(serde_json::to_value(&read).unwrap().get("on_limit"), written.get("on_limit"));
        }
    }

    #[test]
    fn filter_without_a_matching_allow_entry_permits_nothing() {
        let tool = ToolName::new("rm").unwrap();
        let filter = |allow: &[&str], deny: &[&str]| ToolFilter {
            allow: allow.iter().map(ToString::to_string).collect(),
            deny: deny.iter().map(ToString::to_string).collect(),
        };
        assert!(!filter(&[], &[]).permits(&tool));
        assert!(filter(&["*"], &[]).permits(&tool));
        assert!(filter(&["rm"], &["cp"]).permits(&tool));
        assert!(!filter(&["*"], &["rm"]).permits(&tool));
        assert!(!filter(&["*"], &["*"]).permits(&tool));
        assert!(filter(&["r*"], &["c*"]).permits(&tool));
        assert!(!filter(&["r*"], &["rm*"]).permits(&tool));
        assert!(!filter(&["rmdir*"], &[]).permits(&tool));
        for (allow, deny, any) in [
            (&[] as &[&str], &[] as &[&str], false),
            (&["*"], &["rm"], true),
            (&["*"], &["*"], false),
            (&["rm"], &["rm"], false),
            (&["rm", "cp"], &["rm"], true),
            (&["mcp__*"], &["mcp__fs__*"], true),
            (&["mcp__fs__*"], &["mcp__*"], false),
        ] {
            assert_eq!(filter(allow, deny).permits_any(), any, "{allow:?} {deny:?}");
        }
    }
}
