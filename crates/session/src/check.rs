//! Checks of client commands. The edge checks a command before it sends one, so that a client gets the refusal at once;
//! the loop checks it again, since others may send commands too.

use contract::ErrorCode;
use contract::client_tool::{AnswerToolCall, ClientTool};
use contract::command::{
    Answer, Configure, ContinuationOverride, ControlReason, Features, Refusal, SendUserMessage, Start,
};
use contract::json::{Size, depth};
use contract::limits::{
    CLIENT_RESULT_BYTES_MAX, CLIENT_TOOL_TIMEOUT_MAX, CLIENT_TOOLS_BYTES_MAX, CLIENT_TOOLS_MAX, FEATURES_MAX,
    ITERATIONS_MAX, JSON_DEPTH_MAX, JSON_VALUES_MAX, LIMIT_COUNT_MAX, LIMIT_TOKENS_MAX, LIMIT_USD_MAX,
    MESSAGE_BYTES_MAX, MESSAGE_PARTS_MAX, MODEL_RETRIES_LIMIT, NAME_BYTES_MAX, PARAMETER_VALUES_MAX,
    PARAMETERS_BYTES_MAX, REASON_BYTES_MAX, SESSION_TOOLS_MAX, START_MESSAGES_MAX, TOOL_ARGUMENTS_BYTES_MAX,
    TOOL_CALLS_PER_REPLY_MAX, TOOL_OUTPUT_BYTES_MAX, TOOL_SCHEMA_BYTES_MAX, TURN_MAX,
};
use contract::model::{Content, HistoryCall, HistoryMessage, Part, ReasoningParts, SIGNAL_TOOL};
use contract::settings::{Cap, ContinuationSettings, LimitsOverride};
use contract::tool::{ASK_USER, DELEGATE};
use contract::{AiConfig, Json, ToolName};
use reply::Patterns;
use serde_json::Value;

/// Checks the limits of a `start`.
pub fn start(start: &Start) -> Result<(), Refusal> {
    let Start {
        agent: _,
        prompt,
        interactive: _,
        messages,
        resume_from: _,
        model,
        parameters: given,
        ai_config: own,
        continuation: over,
        features: switched,
        tools,
        client_tools: brought,
        streaming: how,
        parent: _,
    } = start;
    if let Some(prompt) = prompt {
        content(prompt, "prompt")?;
    }
    at_most(messages.len(), START_MESSAGES_MAX, "`messages`", "messages", "begin with the latest ones")?;
    for (index, message) in messages.iter().enumerate() {
        history(message, index)?;
    }
    name(model.as_deref(), "model")?;
    parameters(given)?;
    ai_config(own)?;
    continuation(over.as_ref())?;
    features(switched)?;
    if let Some(tools) = tools {
        at_most(tools.len(), SESSION_TOOLS_MAX, "`tools`", "names", "leave `tools` out for all of the agent's")?;
        for (index, tool) in tools.iter().enumerate() {
            ToolName::new(tool).map_err(|error| bad(format!("tools[{index}]: {error}; `tools.list` has the names")))?;
        }
    }
    client_tools(brought)?;
    how.unwrap_or_default().check().map_err(bad)
}

/// Checks the tools that a client brings, by themselves. Which names its agent's tools have only the loop knows.
pub fn client_tools(tools: &[ClientTool]) -> Result<(), Refusal> {
    at_most(tools.len(), CLIENT_TOOLS_MAX, "`client_tools`", "tools", "bring fewer")?;
    for (index, tool) in tools.iter().enumerate() {
        let field = format!("client_tools[{index}]");
        let ClientTool { name, description: _, parameters, effect: _, timeout_ms, max_output } = tool;
        if [ASK_USER, DELEGATE, SIGNAL_TOOL].contains(&name.as_str()) {
            return Err(bad(format!("{field}.name: the loop itself performs {name}; choose another name")));
        }
        if tools[..index].iter().any(|other| other.name == *name) {
            return Err(bad(format!("{field}.name: another tool of `client_tools` is {name}; choose another name")));
        }
        schema(parameters, &format!("{field}.parameters"))?;
        if let Some(timeout_ms) = timeout_ms {
            let most = u64::try_from(CLIENT_TOOL_TIMEOUT_MAX.as_millis()).unwrap_or(u64::MAX);
            between(*timeout_ms, 1, most, &format!("{field}.timeout_ms"), " milliseconds")?;
        }
        if let Some(bytes) = max_output {
            between(*bytes, 1, TOOL_OUTPUT_BYTES_MAX, &format!("{field}.max_output"), " bytes")?;
        }
    }
    let bytes = client_tools_bytes(Some(tools));
    at_most(bytes, CLIENT_TOOLS_BYTES_MAX, "`client_tools`", "bytes", "shorten descriptions and schemas")
}

/// Bytes of the tools that a client brings, as JSON; 0 where it brings none.
pub(crate) fn client_tools_bytes(tools: Option<&[ClientTool]>) -> usize {
    tools.filter(|tools| !tools.is_empty()).map_or(0, |tools| Json::of(tools).get().len())
}

/// Providers take only schemas of objects.
fn schema(parameters: &Json, field: &str) -> Result<(), Refusal> {
    let bytes = parameters.get().len();
    at_most(bytes, TOOL_SCHEMA_BYTES_MAX, &format!("`{field}`"), "bytes", "shorten it")?;
    json(field, parameters.size())?;
    let schema: Value = serde_json::from_str(parameters.get()).unwrap_or_default();
    if !schema.is_object() || schema.get("type").is_none_or(|kind| kind != "object") {
        return Err(bad(format!("{field}: must be a JSON Schema with `\"type\": \"object\"`")));
    }
    match parameters.ambiguity() {
        Some(why) => Err(bad(format!("{field}: {why}"))),
        None => Ok(()),
    }
}

/// Checks an `answer_tool_call`, as far as that can be done without its call.
pub fn answer_tool_call(answer: &AnswerToolCall) -> Result<(), Refusal> {
    let AnswerToolCall { call: _, outcome: _, content } = answer;
    at_most(content.len(), CLIENT_RESULT_BYTES_MAX, "`content`", "bytes", "shorten it, or put it where a tool reads it")
}

/// Checks the limits of a `configure`.
pub fn configure(configure: &Configure) -> Result<(), Refusal> {
    let Configure { agent, continuation: over, features: switched, model, ai_config: own, client_tools: brought } =
        configure;
    let is_named = agent.is_some() || model.is_some();
    let sets = over.as_ref().is_some_and(sets_anything) || brought.is_some();
    if !sets && switched.is_empty() && !is_named && own.is_empty() {
        let why = "nothing to change: give a setting in `continuation`, `ai_config` or `features`, an `agent`, a `model` \
                   or `client_tools`";
        return Err(bad(why));
    }
    ai_config(own)?;
    name(model.as_deref(), "model")?;
    continuation(over.as_ref())?;
    client_tools(brought.as_deref().unwrap_or_default())?;
    features(switched)
}

fn sets_anything(over: &ContinuationOverride) -> bool {
    let limits = over.limits.filter(|limits| *limits != LimitsOverride::default());
    ContinuationOverride { limits, ..over.clone() } != ContinuationOverride::default()
}

/// Checks the limits of a `send_user_message`.
pub fn message(message: &SendUserMessage) -> Result<(), Refusal> {
    content(&message.content, "content")?;
    client_tools(message.client_tools.as_deref().unwrap_or_default())
}

/// Checks a `pause`, `resume`, `stop`, `cancel_turn` or `clear_history`.
pub fn reason(because: &ControlReason) -> Result<(), Refusal> {
    short(because.reason.as_deref(), "reason")
}

/// Checks an `answer`, as far as that can be done without its gate.
pub fn answer(answer: &Answer) -> Result<(), Refusal> {
    let Answer { gate: _, arguments_sha256, decision: _, arguments, content, note } = answer;
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if arguments_sha256.len() != 64 || !arguments_sha256.bytes().all(hex) {
        return Err(bad("`arguments_sha256` must be 64 hex digits in lower case, as in `gate.opened`"));
    }
    if let Some(arguments) = arguments {
        at_most(arguments.get().len(), MESSAGE_BYTES_MAX, "`arguments`", "bytes", "put it in a file for the tool")?;
        json("`arguments`", arguments.size())?;
    }
    let bytes = content.as_ref().map_or(0, String::len);
    at_most(bytes, TOOL_OUTPUT_BYTES_MAX, "`content`", "bytes", "put it in a file for a tool")?;
    short(note.as_deref(), "note")
}

/// Refuses JSON that is nested too deeply, or holds too much.
pub(crate) fn json(field: &str, Size { depth, values }: Size) -> Result<(), Refusal> {
    if depth > JSON_DEPTH_MAX {
        return Err(bad(format!(
            "{field}: nested {depth} levels deep, at most {JSON_DEPTH_MAX} are taken; flatten it"
        )));
    }
    at_most(values, JSON_VALUES_MAX, field, "values and names", "send less")
}

/// Whether the parts that a provider wants to see again can be embedded.
pub(crate) fn is_embeddable(replay: &ReasoningParts) -> bool {
    replay.parts.iter().all(|part| depth(part) <= JSON_DEPTH_MAX)
}

/// Checks the content of a message: text, size, number of parts and URLs of images.
pub(crate) fn content(content: &Content, field: &str) -> Result<(), Refusal> {
    if content.is_empty() {
        return Err(refusal(ErrorCode::EmptyMessage, format!("`{field}` holds no text; write something")));
    }
    at_most(content.bytes(), MESSAGE_BYTES_MAX, &format!("`{field}`"), "bytes", "put it in a file for a tool")?;
    let Content::Parts(parts) = content else { return Ok(()) };
    at_most(parts.len(), MESSAGE_PARTS_MAX, &format!("`{field}`"), "parts", "send several messages")?;
    for (index, part) in parts.iter().enumerate() {
        let Part::ImageUrl { image_url } = part else { continue };
        if !["https:", "http:", "data:"].iter().any(|scheme| image_url.url.starts_with(scheme)) {
            let message = format!("`{field}`[{index}].image_url.url must begin with https:, http: or data:");
            return Err(bad(message));
        }
    }
    Ok(())
}

/// Checks a message of the history with which a session begins.
fn history(message: &HistoryMessage, index: usize) -> Result<(), Refusal> {
    let field = format!("messages[{index}]");
    match message {
        HistoryMessage::User { content: user_message } => content(user_message, &format!("{field}.content")),
        HistoryMessage::Assistant { content, reasoning, tool_calls, replay } => {
            let replayed = replay.as_ref().map(Json::of);
            let bytes = content.len() + reasoning.len() + replayed.as_ref().map_or(0, |replay| replay.get().len());
            if content.trim().is_empty() && reasoning.trim().is_empty() && tool_calls.is_empty() {
                let why = format!("`{field}` holds neither text nor calls; leave it out");
                return Err(refusal(ErrorCode::EmptyMessage, why));
            }
            at_most(bytes, MESSAGE_BYTES_MAX, &field, "bytes", "shorten it")?;
            history_calls(tool_calls, &format!("{field}.tool_calls"))?;
            match replay {
                Some(replay) if !is_embeddable(replay) => {
                    let why = format!("{field}.replay: parts nested over {JSON_DEPTH_MAX} levels deep; leave it out");
                    Err(bad(why))
                }
                Some(_) | None => Ok(()),
            }
        }
    }
}

fn history_calls(calls: &[HistoryCall], field: &str) -> Result<(), Refusal> {
    at_most(calls.len(), TOOL_CALLS_PER_REPLY_MAX, &format!("`{field}`"), "calls", "make two replies of it")?;
    for (index, HistoryCall { name: tool, arguments, result }) in calls.iter().enumerate() {
        name(Some(tool), &format!("{field}[{index}].name"))?;
        let bytes = arguments.len();
        let field = format!("`{field}[{index}]");
        at_most(bytes, TOOL_ARGUMENTS_BYTES_MAX, &format!("{field}.arguments`"), "bytes", "shorten them")?;
        let bytes = result.as_ref().map_or(0, String::len);
        at_most(bytes, CLIENT_RESULT_BYTES_MAX, &format!("{field}.result`"), "bytes", "shorten it")?;
    }
    Ok(())
}

fn parameters(given: &serde_json::Map<String, Value>) -> Result<(), Refusal> {
    if given.is_empty() {
        return Ok(());
    }
    let text = Json::of(given);
    let size = text.size();
    json("`parameters`", size)?;
    at_most(text.get().len(), PARAMETERS_BYTES_MAX, "`parameters`", "bytes", "send less")?;
    at_most(size.values, PARAMETER_VALUES_MAX, "`parameters`", "values and names", "send less")
}

pub(crate) fn ai_config(own: &AiConfig) -> Result<(), Refusal> {
    own.check().map_err(|why| bad(format!("ai_config.{why}")))?;
    parameters(&own.parameters)
}

/// Checks features of one command, or all that a session has switched.
pub(crate) fn features(Features { enable, disable }: &Features) -> Result<(), Refusal> {
    for (field, names) in [("enable", enable), ("disable", disable)] {
        at_most(names.len(), FEATURES_MAX, &format!("`features.{field}`"), "names", "name fewer")?;
        for (index, feature) in names.iter().enumerate() {
            name(Some(feature), &format!("features.{field}[{index}]"))?;
        }
    }
    match enable.iter().find(|feature| disable.contains(feature)) {
        Some(both) => Err(bad(format!("`features` switches {both:?} on and off; choose one"))),
        None => Ok(()),
    }
}

/// Checks settings of one session by themselves; laid over its agent's they are checked again.
fn continuation(over: Option<&ContinuationOverride>) -> Result<(), Refusal> {
    let Some(over) = over else { return Ok(()) };
    let none = ContinuationSettings {
        continuation_patterns: Vec::new(),
        termination_patterns: Vec::new(),
        ..ContinuationSettings::default()
    };
    limits(&over.limits.unwrap_or_default())?;
    name(over.template.as_deref().filter(|name| !name.is_empty()), "continuation.template")?;
    settings(&over.over(&none))
}

/// Checks settings as they come to hold.
pub(crate) fn settings(settings: &ContinuationSettings) -> Result<(), Refusal> {
    let steps = settings.max_iterations;
    between(steps, 1, ITERATIONS_MAX, "continuation.max_iterations", "")?;
    between(settings.timeout, 1, TURN_MAX.as_secs(), "continuation.timeout", " seconds")?;
    between(settings.confidence_min.unwrap_or_default(), 0.0, 1.0, "continuation.confidence_min", "")?;
    if let Some(judge) = settings.judge() {
        name(Some(judge), "continuation.judge")?;
    }
    between(settings.retries, 0, MODEL_RETRIES_LIMIT, "continuation.retries", "")?;
    match Patterns::compile(settings) {
        Ok(_) => Ok(()),
        Err(error) => Err(bad(format!("continuation.{error}"))),
    }
}

fn limits(limits: &LimitsOverride) -> Result<(), Refusal> {
    let LimitsOverride { tokens, cost_usd, tool_calls, repetition, no_progress } = *limits;
    if let Cap::At(tokens) = tokens {
        between(tokens, 1, LIMIT_TOKENS_MAX, "continuation.limits.tokens", "; null takes the limit off")?;
    }
    if let Cap::At(usd) = cost_usd {
        between(usd, 0.0, f64::from(LIMIT_USD_MAX), "continuation.limits.cost_usd", " US dollars")?;
        if usd <= 0.0 {
            return Err(bad("continuation.limits.cost_usd must be above 0 US dollars; null takes the limit off"));
        }
    }
    if let Cap::At(calls) = tool_calls {
        between(calls, 1, LIMIT_COUNT_MAX, "continuation.limits.tool_calls", "; null takes the limit off")?;
    }
    for (field, count) in [("repetition", repetition), ("no_progress", no_progress)] {
        between(count.unwrap_or(0), 0, LIMIT_COUNT_MAX, &format!("continuation.limits.{field}"), "")?;
    }
    Ok(())
}

/// A name in a command: whether there is such a thing is for others to say.
fn name(name: Option<&str>, field: &str) -> Result<(), Refusal> {
    let Some(name) = name else { return Ok(()) };
    if name.trim().is_empty() {
        return Err(bad(format!("`{field}` is empty; name one, or leave it out")));
    }
    at_most(name.len(), NAME_BYTES_MAX, &format!("`{field}`"), "bytes", "use the name as it is listed")
}

fn short(text: Option<&str>, field: &str) -> Result<(), Refusal> {
    at_most(text.map_or(0, str::len), REASON_BYTES_MAX, &format!("`{field}`"), "bytes", "shorten it")
}

fn at_most(count: usize, most: usize, field: &str, unit: &str, remedy: &str) -> Result<(), Refusal> {
    if count <= most {
        return Ok(());
    }
    Err(refusal(ErrorCode::TooLarge, format!("{field} has {count} {unit}, at most {most} are taken; {remedy}")))
}

fn between<T: Copy + PartialOrd + std::fmt::Display>(
    value: T,
    least: T,
    most: T,
    field: &str,
    unit: &str,
) -> Result<(), Refusal> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(bad(format!("{field} must be {least} to {most}{unit}, got {value}")))
}

fn bad(message: impl Into<String>) -> Refusal {
    refusal(ErrorCode::BadRequest, message.into())
}

fn refusal(code: ErrorCode, message: String) -> Refusal {
    Refusal { code, message }
}
