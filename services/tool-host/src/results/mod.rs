//! `read_result`: reads the omitted part of a long result, page by page or by a pattern. A session can read its own
//! results only: the object follows from the calling session and the call that it names.

use ailoop_tool::{Call, Effect, Reply, Tool, ToolError};
use bus::Bus;
use contract::streams::Objects;
use contract::tool::{FullResultRef, READ_RESULT};
use contract::{CallId, SessionId, TenantId, Timestamp};
use regex::RegexBuilder;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::connect::Login;
use super::head_tail_buffer::take_head;
use super::truncate::{RESULT_BYTES_MAX, take_fitting};

/// Matching lines in a result.
const LINES_MAX: usize = 500;
/// Bytes of one line in the result.
const LINE_BYTES_MAX: usize = 1_000;
/// Bytes of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Settings of the tool `read_result`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "results")]
pub struct ResultsConfig {
    /// The NATS user of this tool, where users have permissions.
    pub login: Option<Login>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultArguments {
    call: String,
    #[serde(default)]
    offset: usize,
    pattern: Option<String>,
}

/// Builds `read_result`, which reads the results that executors store.
pub(super) fn tools(bus: &Bus, tenant: &TenantId) -> Vec<Tool> {
    let (bus, tenant) = (bus.clone(), tenant.clone());
    let tool = Tool::new(READ_RESULT)
        .description(
            "Reads what was left out of a long result of an earlier call of this session: a page from `offset` on, or \
             the lines that match `pattern`.",
        )
        .effect(Effect::Pure)
        .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
            "call": {"type": "string", "description": "The call, as the note in its result names it."},
            "offset": {"type": "integer", "minimum": 0, "description": "The first byte to read. Default 0."},
            "pattern": {"type": "string", "description": "A regular expression (Rust regex syntax); (?i) ignores case."},
        }, "required": ["call"]}))
        .handler(move |call: Call| {
            let (bus, tenant) = (bus.clone(), tenant.clone());
            async move { Ok::<_, ToolError>(Reply::from(read_result(&bus, &tenant, &call).await?)) }
        });
    vec![tool]
}

async fn read_result(bus: &Bus, tenant: &TenantId, call: &Call) -> Result<Value, ToolError> {
    let arguments: ResultArguments = call.arguments()?;
    let session = SessionId::new(call.session()).map_err(|_| ToolError::new("only a session can read its results"))?;
    let not_stored = || {
        ToolError::new(format!(
            "of call {:?} nothing is kept: its result was not cut, or it is too old",
            arguments.call
        ))
    };
    let wanted = CallId::new(&arguments.call).map_err(|_| not_stored())?;
    let object = FullResultRef::id(tenant, &session, Timestamp::parse(call.session_started()), &wanted);
    let found = bus.transport().get_object(Objects::Results, &object).await;
    let found = found.map_err(|error| ToolError::new(format!("results cannot be read now: {error}")))?;
    let found = found.ok_or_else(not_stored)?;
    let text = String::from_utf8_lossy(&found);
    match &arguments.pattern {
        Some(pattern) => search_lines(&text, pattern),
        None => Ok(read_page(&text, arguments.offset)),
    }
}

/// Returns as much of the text from `offset` as fits into a result.
fn read_page(text: &str, offset: usize) -> Value {
    let first = text.floor_char_boundary(offset);
    let content = take_head(&text[first..], RESULT_BYTES_MAX);
    let next = first + content.len();
    let more = (next < text.len()).then_some(next);
    json!({"bytes": text.len(), "offset": first, "content": content, "next_offset": more})
}

/// Finds the matching lines, with the offsets at which they begin.
fn search_lines(text: &str, pattern: &str) -> Result<Value, ToolError> {
    let built = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build();
    let pattern = built.map_err(|error| ToolError::new(format!("the pattern cannot be used: {error}")))?;
    let mut at = 0;
    let (mut matches, mut found) = (0, Vec::new());
    for line in text.split_inclusive('\n') {
        let (begins, text_line) = (at, line.trim_end_matches(['\n', '\r']));
        at += line.len();
        if pattern.is_match(text_line) {
            matches += 1;
            if matches <= LINES_MAX {
                let end = text_line.floor_char_boundary(LINE_BYTES_MAX);
                found.push(json!({"offset": begins, "text": &text_line[..end]}));
            }
        }
    }
    let lines = take_fitting(found);
    Ok(json!({"bytes": text.len(), "matches": matches, "truncated": lines.len() < matches, "lines": lines}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_without_a_gap() {
        let text = "ä\"\n".repeat(60_000);
        let (mut offset, mut read, mut pages) = (0, String::new(), 0);
        loop {
            let page = read_page(&text, offset);
            read += page["content"].as_str().unwrap();
            pages += 1;
            let Some(next) = page["next_offset"].as_u64() else { break };
            offset = usize::try_from(next).unwrap();
        }
        assert!(pages > 3 && read == text, "{pages}");
        assert_eq!(read_page("short", 99), json!({"bytes": 5, "offset": 5, "content": "", "next_offset": null}));
    }

    #[test]
    fn matching_lines_are_found_with_offsets() {
        let found = search_lines("one\ntwo\r\nthree", "^t").unwrap();
        let wanted = json!([{"offset": 4, "text": "two"}, {"offset": 9, "text": "three"}]);
        assert_eq!((&found["lines"], &found["matches"]), (&wanted, &json!(2)));
        assert!(search_lines("x", "(").unwrap_err().message().contains("cannot be used"));
        let many = search_lines(&"x\n".repeat(10_000), "x").unwrap();
        assert_eq!((&many["matches"], &many["truncated"]), (&json!(10_000), &json!(true)));
    }
}
