//! Converts the result of an MCP tool to text that a model reads.

use ailoop_tool::{Effect, Reply, ToolError};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, ServerResult};
use serde_json::Value;

use super::failure::unknown_outcome_error;

/// A text in parts. It is truncated while the parts are joined, so that omitted parts are never copied.
#[derive(Default)]
struct TextParts {
    parts: Vec<String>,
}

/// Converts a result of at most `max` bytes to a reply. An error of the tool becomes an error.
#[allow(clippy::wildcard_enum_match_arm, reason = "the library's kinds are many and not ours to count")]
pub(super) fn to_reply(result: ServerResult, effect: Effect, max: usize) -> Result<Reply, ToolError> {
    // The server got the call, and its outcome is unknown.
    let unreadable = |what: &str| Err(unknown_outcome_error(effect, &format!("the MCP server {what}")));
    match result {
        ServerResult::CallToolResult(result) => tool_result_to_reply(result, max),
        // The library rejects a whole result for one unknown kind of content.
        ServerResult::CustomResult(result) => match parse_leniently(result.0) {
            Some(result) => tool_result_to_reply(result, max),
            None => unreadable("answered with something that is no result of a tool"),
        },
        ServerResult::InputRequiredResult(_) => {
            unreadable("wants to ask something in the middle of the call, which is not possible")
        }
        ServerResult::CreateTaskResult(_) => unreadable("made a task of the call, whose end is not waited for"),
        ServerResult::ReadResourceResult(result) => {
            let mut text = TextParts::default();
            result.contents.into_iter().for_each(|contents| text.add_resource(contents));
            Ok(Reply::from(text.truncate(max)))
        }
        ServerResult::EmptyResult(_) => Ok(Reply::from("")),
        _ => unreadable("answered with something that is no result of a tool"),
    }
}

fn tool_result_to_reply(result: CallToolResult, max: usize) -> Result<Reply, ToolError> {
    let mut text = TextParts::default();
    result.content.into_iter().for_each(|block| text.add(block));
    let is_empty = text.parts.iter().all(String::is_empty);
    if let Some(structured) = result.structured_content.filter(|_| is_empty) {
        text.parts = vec![structured.to_string()];
    }
    let text = text.truncate(max);
    if result.is_error == Some(true) {
        return Err(ToolError::new(if text.trim().is_empty() {
            "the tool failed and does not say why"
        } else {
            &text
        }));
    }
    Ok(Reply::from(text))
}

impl TextParts {
    fn add(&mut self, block: ContentBlock) {
        let part = match block {
            ContentBlock::Text(text) => text.text,
            ContentBlock::Image(image) => describe_binary("image", &image.mime_type, &image.data),
            ContentBlock::Audio(audio) => describe_binary("audio", &audio.mime_type, &audio.data),
            ContentBlock::Resource(resource) => return self.add_resource(resource.resource),
            ContentBlock::ResourceLink(link) => format!("[resource {}: {}]", link.uri, link.name),
            _ => "[content of an unknown kind]".to_owned(),
        };
        self.parts.push(part);
    }

    fn add_resource(&mut self, contents: ResourceContents) {
        let part = match contents {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                self.parts.push(format!("[resource {uri}]"));
                text
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("of unknown type");
                describe_binary(&format!("resource {uri}"), kind, &blob)
            }
            _ => "[a resource of an unknown kind]".to_owned(),
        };
        self.parts.push(part);
    }

    /// Joins the parts as lines. Of more than `max` bytes it keeps the head and the tail, with a note between them.
    fn truncate(&self, max: usize) -> String {
        /// Bytes of the note.
        const NOTE: usize = 64;
        let whole = self.parts.iter().map(String::len).sum::<usize>() + self.parts.len().saturating_sub(1);
        if whole <= max {
            return self.parts.join("\n");
        }
        let room = max.saturating_sub(NOTE);
        let (mut head, mut tail) = (String::new(), Vec::new());
        let mut left = room - room / 3;
        for part in &self.parts {
            let end = part.floor_char_boundary(left);
            head.push_str(&part[..end]);
            left = if end < part.len() { 0 } else { left - end };
            if left == 0 {
                break;
            }
            head.push('\n');
            left -= 1;
        }
        let mut left = room / 3;
        for part in self.parts.iter().rev() {
            let begin = part.ceil_char_boundary(part.len().saturating_sub(left));
            tail.push(&part[begin..]);
            if begin > 0 || left <= part.len() - begin + 1 {
                break;
            }
            left -= part.len() - begin + 1;
        }
        tail.reverse();
        let tail = tail.join("\n");
        let missing = whole - head.len() - tail.len();
        format!("{head}\n[… {missing} of {whole} bytes left out …]\n{tail}")
    }
}

/// Describes content that is not text.
fn describe_binary(kind: &str, mime_type: &str, base64: &str) -> String {
    let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
    let bytes = (base64.len() / 4 * 3).saturating_sub(padding);
    format!("[{kind}, {mime_type}, {bytes} bytes, not shown]")
}

/// Parses a result block by block, so that one unknown block does not hide the others.
fn parse_leniently(result: Value) -> Option<CallToolResult> {
    let Value::Object(mut fields) = result else { return None };
    let Some(Value::Array(blocks)) = fields.remove("content") else { return None };
    let known =
        |block| serde_json::from_value(block).unwrap_or_else(|_| ContentBlock::text("[content of an unknown kind]"));
    let content: Vec<ContentBlock> = blocks.into_iter().map(known).collect();
    let failed = fields.get("isError").and_then(Value::as_bool).unwrap_or_default();
    Some(if failed { CallToolResult::error(content) } else { CallToolResult::success(content) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(result: Value, expected: Result<&str, &str>) {
        let result: ServerResult = serde_json::from_value(result).unwrap();
        let expected = expected.map(Reply::from).map_err(ToolError::new);
        assert_eq!(to_reply(result, Effect::AtMostOnce, 200), expected);
    }

    #[test]
    fn content_of_every_kind_becomes_text() {
        let text = |text: &str| json!({"type": "text", "text": text});
        check(json!({"content": [text("a"), text("b")]}), Ok("a\nb"));
        check(json!({"content": [text("a")], "structuredContent": {"n": 1}}), Ok("a"));
        check(json!({"content": [], "structuredContent": {"n": 1}}), Ok(r#"{"n":1}"#));
        check(json!({"content": [text("")], "structuredContent": [1]}), Ok("[1]"));
        check(json!({"content": [text("no")], "isError": true}), Err("no"));
        check(json!({"content": [], "isError": true}), Err("the tool failed and does not say why"));
        check(json!({"content": []}), Ok(""));
        let image = json!({"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"});
        check(json!({"content": [text("look"), image]}), Ok("look\n[image, image/png, 5 bytes, not shown]"));
        let audio = json!({"type": "audio", "data": "aGVs", "mimeType": "audio/wav"});
        check(json!({"content": [audio]}), Ok("[audio, audio/wav, 3 bytes, not shown]"));
        let page = json!({"type": "resource", "resource": {"uri": "file:///a", "text": "page"}});
        check(json!({"content": [page]}), Ok("[resource file:///a]\npage"));
        let blob = json!({"type": "resource", "resource": {"uri": "file:///b", "mimeType": "application/zip", "blob": "aGVsbA=="}});
        check(json!({"content": [blob]}), Ok("[resource file:///b, application/zip, 4 bytes, not shown]"));
        let page = json!({"uri": "file:///a", "text": "page"});
        check(json!({"contents": [page]}), Ok("[resource file:///a]\npage"));
        let link = json!({"type": "resource_link", "uri": "file:///c", "name": "c"});
        check(json!({"content": [link]}), Ok("[resource file:///c: c]"));
        let hologram = json!({"type": "hologram", "light": 1});
        check(json!({"content": [text("a"), hologram]}), Ok("a\n[content of an unknown kind]"));
    }

    #[test]
    fn answer_that_is_no_result_has_an_unknown_outcome() {
        for result in [json!({"tools": []}), json!({"something": "else"})] {
            let result: ServerResult = serde_json::from_value(result).unwrap();
            let why = "the MCP server answered with something that is no result of a tool";
            for effect in [Effect::Idempotent, Effect::AtMostOnce] {
                let unknown = "nobody knows whether it took effect. Find out before calling again.";
                let expected = ToolError::unknown(format!("{why}; {unknown}"));
                assert_eq!(to_reply(result.clone(), effect, 200), Err(expected));
            }
            let again = ToolError::new(format!("{why}; it may be called again"));
            assert_eq!(to_reply(result, Effect::Pure, 200), Err(again));
        }
    }

    #[test]
    fn text_too_long_keeps_head_and_tail_within_the_limit() {
        let parts =
            |lengths: &[usize]| TextParts { parts: lengths.iter().map(|length| "ä".repeat(*length / 2)).collect() };
        for lengths in [&[5_000][..], &[150, 150], &[1, 5_000, 1], &[40; 100], &[0; 1_000], &[202], &[0, 0, 900]] {
            let text = parts(lengths);
            let whole = text.parts.join("\n");
            let cut = text.truncate(200);
            assert!(cut.len() <= 200, "{} of {lengths:?}", cut.len());
            let (head, rest) = cut.split_once("\n[… ").unwrap();
            let (note, tail) = rest.split_once(" bytes left out …]\n").unwrap();
            assert!(whole.starts_with(head) && whole.ends_with(tail), "{lengths:?}: {cut}");
            let (missing, all) = note.split_once(" of ").unwrap();
            assert_eq!(all.parse(), Ok(whole.len()));
            assert_eq!(missing.parse(), Ok(whole.len() - head.len() - tail.len()));
        }
        assert_eq!(parts(&[100, 98]).truncate(200), parts(&[100, 98]).parts.join("\n"));
    }
}
