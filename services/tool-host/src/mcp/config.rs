//! Configuration of one MCP server, checked when it is read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use ailoop_tool::{Approval, Effect};
use configuration::Secret;
use configuration::env;
use contract::limits::{TOOL_OUTPUT_BYTES_MAX, TOOL_TIMEOUT_DEFAULT, TOOL_TIMEOUT_MAX};
use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::connect::Login;

/// One MCP server whose tools are served.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "McpFields")]
pub struct McpConfig {
    pub(super) transport: Transport,
    pub(super) rules: ToolRules,
    /// Calls that the server works on at the same time.
    pub(super) concurrency: usize,
    pub(super) login: Option<Login>,
}

impl McpConfig {
    /// Whether this process starts the server.
    pub(crate) fn is_process(&self) -> bool {
        matches!(self.transport, Transport::Stdio(_))
    }

    /// Checks what depends on the machine: whether the variables for headers are set.
    pub(super) fn check_environment(&self) -> Result<(), String> {
        match &self.transport {
            Transport::Stdio(_) => Ok(()),
            Transport::Http(address) => address.headers().map(drop),
        }
    }
}

impl ServerAddress {
    /// Returns the headers of every request, with those that come from variables of this process.
    pub(super) fn headers(&self) -> Result<HashMap<HeaderName, HeaderValue>, String> {
        let mut all: HashMap<_, _> = self.headers.iter().cloned().collect();
        for (name, variable) in &self.headers_from {
            let value = env(variable).ok_or_else(|| format!("the environment variable {variable} is not set"))?;
            all.insert(name.clone(), parse_header_value(name.as_str(), &Secret::new(value))?);
        }
        Ok(all)
    }
}

/// Transport over which a server is reached.
#[derive(Debug, Clone)]
pub(super) enum Transport {
    /// A child process that speaks over its standard input and output.
    Stdio(ServerProgram),
    /// A server over streamable HTTP.
    Http(ServerAddress),
}

/// The process of a server.
#[derive(Debug, Clone)]
pub(super) struct ServerProgram {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) env: BTreeMap<String, Secret>,
    /// Variables that it inherits from this process.
    pub(super) env_from: Vec<String>,
}

/// Address of a server over HTTP.
#[derive(Debug, Clone)]
pub(super) struct ServerAddress {
    pub(super) url: String,
    /// Each value is marked as sensitive.
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Headers whose values are variables of this process.
    headers_from: Vec<(HeaderName, String)>,
}

/// Rules for the tools of a server: which are served, and how they are described.
#[derive(Debug, Clone, Default)]
pub(super) struct ToolRules {
    /// `None`: all of them.
    pub(super) allow: Option<BTreeSet<String>>,
    pub(super) deny: BTreeSet<String>,
    pub(super) effects: BTreeMap<String, Effect>,
    pub(super) trust_annotations: bool,
    pub(super) approval: BTreeMap<String, Approval>,
    pub(super) timeout: Option<Duration>,
    pub(super) max_output: Option<usize>,
}

impl ToolRules {
    /// Returns the timeout of one call.
    pub(super) fn call_timeout(&self) -> Duration {
        self.timeout.unwrap_or(TOOL_TIMEOUT_DEFAULT)
    }

    /// Bytes of a result that the model reads.
    pub(super) fn output_bytes_max(&self) -> usize {
        self.max_output.unwrap_or(TOOL_OUTPUT_BYTES_MAX)
    }

    /// Returns the names of all tools in the rules.
    pub(super) fn named_tools(&self) -> BTreeSet<&String> {
        let lists = self.allow.iter().flatten().chain(&self.deny);
        lists.chain(self.effects.keys()).chain(self.approval.keys()).collect()
    }
}

/// An MCP server: a `command` that speaks over its standard input and output, or the `url` of one that speaks
/// streamable HTTP.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "mcp_server")]
struct McpFields {
    /// The program that is the server, started and ended with the tool-host; looked up in its `PATH`.
    command: Option<String>,
    /// Arguments of the program.
    #[serde(default)]
    args: Vec<String>,
    /// The directory that it runs in; the tool-host's own when absent.
    cwd: Option<PathBuf>,
    /// Environment of the program, in addition to PATH, HOME and LANG of the tool-host.
    #[serde(default)]
    env: BTreeMap<String, Secret>,
    /// Further variables of the tool-host that it gets; no others.
    #[serde(default)]
    env_from: Vec<String>,
    /// URL of a server over streamable HTTP.
    url: Option<String>,
    /// Headers of every request to it.
    #[serde(default)]
    headers: BTreeMap<String, Secret>,
    /// Headers whose values stand in variables of the tool-host: their names.
    #[serde(default)]
    headers_from: BTreeMap<String, String>,
    /// The only tools that are served, by the server's names; all when absent.
    allow: Option<Vec<String>>,
    /// Tools that are not served.
    #[serde(default)]
    deny: Vec<String>,
    /// Effect class of each tool: what may be done with a call whose outcome is unknown. `at_most_once` for a tool that
    /// is not named.
    #[serde(default)]
    effects: BTreeMap<String, EffectSetting>,
    /// Believe what the server says of its tools: one that only reads is `pure`, one that may be repeated `idempotent`.
    #[serde(default)]
    trust_annotations: bool,
    /// Whether a person is asked before each call; `never` where a tool is not named.
    #[serde(default)]
    approval: BTreeMap<String, ApprovalSetting>,
    /// Seconds that one call may take.
    timeout: Option<u64>,
    /// Bytes of a result that the model reads.
    max_output: Option<usize>,
    /// Calls that the server works on at the same time.
    #[serde(default = "concurrency_default")]
    concurrency: usize,
    /// The NATS user of its tools, where users have permissions.
    login: Option<Login>,
}

/// An effect class as the configuration writes it.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "effect")]
enum EffectSetting {
    Pure,
    Idempotent,
    AtMostOnce,
}

/// An approval as the configuration writes it.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "approval")]
enum ApprovalSetting {
    Never,
    Always,
}

fn concurrency_default() -> usize {
    8
}

impl JsonSchema for McpConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        McpFields::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        McpFields::json_schema(generator)
    }
}

impl TryFrom<McpFields> for McpConfig {
    type Error = String;

    fn try_from(fields: McpFields) -> Result<Self, String> {
        let longest = TOOL_TIMEOUT_MAX.as_secs();
        if fields.timeout.is_some_and(|seconds| !(1..=longest).contains(&seconds)) {
            return Err(format!("timeout is 1 to {longest} seconds"));
        }
        if fields.max_output.is_some_and(|bytes| !(1..=TOOL_OUTPUT_BYTES_MAX).contains(&bytes)) {
            return Err(format!("max_output is 1 to {TOOL_OUTPUT_BYTES_MAX} bytes"));
        }
        if fields.concurrency == 0 {
            return Err("concurrency is at least 1".to_owned());
        }
        let transport = fields.parse_transport()?;
        let rules = ToolRules {
            allow: fields.allow.map(|names| names.into_iter().collect()),
            deny: fields.deny.into_iter().collect(),
            effects: fields.effects.into_iter().map(|(tool, word)| (tool, word.into())).collect(),
            trust_annotations: fields.trust_annotations,
            approval: fields.approval.into_iter().map(|(tool, word)| (tool, word.into())).collect(),
            timeout: fields.timeout.map(Duration::from_secs),
            max_output: fields.max_output,
        };
        Ok(Self { transport, rules, concurrency: fields.concurrency, login: fields.login })
    }
}

impl McpFields {
    fn parse_transport(&self) -> Result<Transport, String> {
        match (&self.command, &self.url) {
            (Some(command), None) => {
                self.reject_fields(&[
                    ("headers", !self.headers.is_empty()),
                    ("headers_from", !self.headers_from.is_empty()),
                ])?;
                self.parse_program(command).map(Transport::Stdio)
            }
            (None, Some(url)) => {
                self.reject_fields(&[
                    ("args", !self.args.is_empty()),
                    ("cwd", self.cwd.is_some()),
                    ("env", !self.env.is_empty()),
                    ("env_from", !self.env_from.is_empty()),
                ])?;
                self.parse_address(url).map(Transport::Http)
            }
            (Some(_), Some(_)) => Err("command and url exclude each other: a server has one of them".to_owned()),
            (None, None) => Err("a server needs a command (stdio) or a url (streamable HTTP)".to_owned()),
        }
    }

    fn reject_fields(&self, fields: &[(&str, bool)]) -> Result<(), String> {
        let owner = if self.command.is_some() { "url" } else { "command" };
        match fields.iter().find(|(_, is_set)| *is_set) {
            Some((field, _)) => Err(format!("{field} belongs to a server with a {owner}")),
            None => Ok(()),
        }
    }

    fn parse_program(&self, command: &str) -> Result<ServerProgram, String> {
        if command.trim().is_empty() {
            return Err("command is empty".to_owned());
        }
        let names = self.env.keys().chain(&self.env_from);
        if let Some(bad) = names.into_iter().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(format!("{bad:?} is no name of an environment variable"));
        }
        Ok(ServerProgram {
            command: command.to_owned(),
            args: self.args.clone(),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
            env_from: self.env_from.clone(),
        })
    }

    fn parse_address(&self, url: &str) -> Result<ServerAddress, String> {
        let parsed = reqwest::Url::parse(url).map_err(|error| format!("url cannot be read: {error}"))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err("url begins with http:// or https://".to_owned());
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("url names no user: put what authorises into headers or headers_from".to_owned());
        }
        let headers =
            self.headers.iter().map(|(name, value)| Ok((parse_header_name(name)?, parse_header_value(name, value)?)));
        let headers_from =
            self.headers_from.iter().map(|(name, variable)| Ok((parse_header_name(name)?, variable.clone())));
        Ok(ServerAddress {
            url: url.to_owned(),
            headers: headers.collect::<Result<_, String>>()?,
            headers_from: headers_from.collect::<Result<_, String>>()?,
        })
    }
}

fn parse_header_name(name: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no name of a header"))
}

/// Parses the value of a header, and marks it so that it is never logged.
fn parse_header_value(name: &str, value: &Secret) -> Result<HeaderValue, String> {
    let read = HeaderValue::from_str(value.expose());
    let mut value = read.map_err(|_| format!("the value of header {name:?} has characters that no header may have"))?;
    value.set_sensitive(true);
    Ok(value)
}

impl From<EffectSetting> for Effect {
    fn from(word: EffectSetting) -> Self {
        match word {
            EffectSetting::Pure => Self::Pure,
            EffectSetting::Idempotent => Self::Idempotent,
            EffectSetting::AtMostOnce => Self::AtMostOnce,
        }
    }
}

impl From<ApprovalSetting> for Approval {
    fn from(word: ApprovalSetting) -> Self {
        match word {
            ApprovalSetting::Never => Self::Never,
            ApprovalSetting::Always => Self::Always,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(fields: Value) -> Result<McpConfig, String> {
        serde_json::from_value(fields).map_err(|error| error.to_string())
    }

    #[test]
    fn server_configuration_has_one_transport_and_its_fields() {
        for (fields, part) in [
            (json!({}), "needs a command (stdio) or a url"),
            (json!({"command": "a", "url": "http://b"}), "exclude each other"),
            (json!({"command": " "}), "command is empty"),
            (json!({"command": "a", "headers": {"x": "y"}}), "headers belongs to a server with a url"),
            (json!({"url": "http://b", "env_from": ["X"]}), "env_from belongs to a server with a command"),
            (json!({"command": "a", "env": {"A=B": "c"}}), "no name of an environment variable"),
            (json!({"url": "ftp://b"}), "begins with http://"),
            (json!({"url": "b"}), "cannot be read"),
            (json!({"url": "https://me:secret@b"}), "names no user"),
            (json!({"url": "http://b", "headers": {"a b": "c"}}), "no name of a header"),
            (json!({"url": "http://b", "headers": {"a": "c\nd"}}), "that no header may have"),
            (json!({"command": "a", "timeout": 0}), "timeout is 1 to 3600"),
            (json!({"command": "a", "max_output": 1_000_000}), "max_output is 1 to 65536"),
            (json!({"command": "a", "concurrency": 0}), "at least 1"),
            (json!({"command": "a", "effects": {"x": "some"}}), "unknown variant `some`"),
            (json!({"comand": "a"}), "unknown field `comand`"),
        ] {
            let error = read(fields).unwrap_err();
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
    }

    #[test]
    fn secrets_in_configuration_are_not_printed() {
        let stdio = read(json!({"command": "a", "env": {"TOKEN": "hush"}})).unwrap();
        let http = read(json!({"url": "http://b", "headers": {"Authorization": "Bearer hush"}})).unwrap();
        assert!(!format!("{stdio:?}{http:?}").contains("hush"), "{stdio:?}{http:?}");
    }
}
