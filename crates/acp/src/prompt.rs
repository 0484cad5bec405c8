//! The blocks of a prompt as a user message. Pure.

use std::fmt::Write as _;

use contract::ErrorCode;
use contract::model::{Content, ImageUrl, Part};
use serde::Deserialize;

use super::wire::RpcError;

/// A block of a prompt.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum PromptBlock {
    Text {
        text: String,
    },
    Image {
        data: String,
        mime_type: String,
    },
    Audio {},
    ResourceLink {
        uri: String,
        #[serde(default)]
        name: String,
    },
    Resource {
        resource: EmbeddedResource,
    },
    #[serde(other)]
    Unknown,
}

/// Contents that the editor put into a prompt.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct EmbeddedResource {
    uri: String,
    text: Option<String>,
}

/// Converts a prompt to a user message. Links stand in the text where they were; embedded texts follow it, and images
/// come last.
pub(super) fn content_of(blocks: Vec<PromptBlock>) -> Result<Content, RpcError> {
    let refuse = |message: String| Err(RpcError::new(ErrorCode::BadRequest, message));
    let (mut text, mut contexts, mut images) = (String::new(), String::new(), Vec::new());
    for block in blocks {
        match block {
            PromptBlock::Text { text: more } => text.push_str(&more),
            PromptBlock::Image { data, mime_type } => {
                let image_url = ImageUrl { url: format!("data:{mime_type};base64,{data}") };
                images.push(Part::ImageUrl { image_url });
            }
            PromptBlock::ResourceLink { uri, name } => {
                let name = if name.is_empty() { &uri } else { &name };
                let _ = write!(text, "[@{name}]({uri})");
            }
            PromptBlock::Resource { resource: EmbeddedResource { uri, text: Some(inner) } } => {
                let _ = write!(text, "[@{uri}]({uri})");
                let _ = write!(contexts, "\n\n<context uri=\"{uri}\">\n{inner}\n</context>");
            }
            PromptBlock::Resource { resource: EmbeddedResource { uri, text: None } } => {
                return refuse(format!("the resource {uri} is no text; attach it as an image, or name it in the text"));
            }
            PromptBlock::Audio {} => return refuse("audio cannot be sent to an agent; send text or images".to_owned()),
            PromptBlock::Unknown => return refuse("the prompt has a block of an unknown type".to_owned()),
        }
    }
    text.push_str(&contexts);
    if images.is_empty() {
        return Ok(Content::Text(text));
    }
    let text = Some(text).filter(|text| !text.trim().is_empty()).map(|text| Part::Text { text });
    Ok(Content::Parts(text.into_iter().chain(images).collect()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(blocks: &Value, expect: &Result<Value, &str>) {
        let blocks: Vec<PromptBlock> = serde_json::from_value(blocks.clone()).unwrap();
        let got = content_of(blocks).map(|content| serde_json::to_value(content).unwrap());
        match expect {
            Ok(expect) => assert_eq!(got.unwrap(), *expect),
            Err(expect) => assert!(format!("{got:?}").contains(expect), "{got:?}"),
        }
    }

    #[test]
    fn blocks_become_one_message() {
        check(&json!([{"type": "text", "text": "Hi"}]), &Ok(json!("Hi")));
        check(
            &json!([
                {"type": "text", "text": "See "},
                {"type": "resource_link", "uri": "file:///a.rs", "name": "a.rs", "size": 3},
                {"type": "text", "text": " now"},
                {"type": "resource", "resource": {"uri": "file:///b", "text": "two", "mimeType": "text/plain"}}
            ]),
            &Ok(json!(
                "See [@a.rs](file:///a.rs) now[@file:///b](file:///b)\n\n<context uri=\"file:///b\">\ntwo\n</context>"
            )),
        );
        let image = json!({"type": "image", "data": "QUJD", "mimeType": "image/png"});
        let url = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}});
        check(&json!([image]), &Ok(json!([url])));
        check(&json!([image, {"type": "text", "text": "?"}]), &Ok(json!([{"type": "text", "text": "?"}, url])));
    }

    #[test]
    fn block_that_no_agent_can_read_is_refused() {
        check(&json!([{"type": "audio", "data": "", "mimeType": "audio/wav"}]), &Err("audio"));
        check(&json!([{"type": "resource", "resource": {"uri": "file:///c", "blob": "AA"}}]), &Err("file:///c"));
        check(&json!([{"type": "hologram"}]), &Err("unknown type"));
    }
}
