//! Prompts that were composed a moment ago. Many sessions of one agent begin with the same one.

use std::sync::Arc;

use contract::compose::{ComposeRequest, Composed};
use contract::tool::ToolSpec;
use tokio::time::Instant;

use crate::recent_values::RecentValues;

/// Prompts that are kept.
const PROMPTS_MAX: usize = 64;
/// Bytes of all prompts that are kept, with their requests.
const BYTES_MAX: usize = 8 << 20;

/// Cache of composed prompts, by the request that composed them.
#[derive(Debug)]
pub(crate) struct ComposedPrompts(RecentValues<RequestText, ComposedWith>);

#[derive(Debug, Clone)]
struct ComposedWith {
    composed: Arc<Composed>,
    tools: Arc<Vec<ToolSpec>>,
}

/// A request without its tools, as JSON: two requests of the same text and tools compose the same prompt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RequestText(String);

impl RequestText {
    pub(crate) fn of(request_without_tools: &ComposeRequest) -> Self {
        Self(contract::Json::of(request_without_tools).get().to_owned())
    }
}

impl Default for ComposedPrompts {
    fn default() -> Self {
        Self(RecentValues::new(PROMPTS_MAX, BYTES_MAX))
    }
}

impl ComposedPrompts {
    /// The prompt that this request has just composed with these very tools.
    pub(crate) fn get(&self, request: &RequestText, tools: &Arc<Vec<ToolSpec>>) -> Option<Box<Composed>> {
        let found = self.0.get_fresh(request).filter(|found| Arc::ptr_eq(&found.tools, tools))?;
        Some(Box::new((*found.composed).clone()))
    }

    /// Keeps a prompt that was asked for at `at`.
    pub(crate) fn put(&self, request: RequestText, tools: &Arc<Vec<ToolSpec>>, composed: &Composed, at: Instant) {
        let bytes = request.0.len() + composed.prompt.len();
        let with = ComposedWith { composed: Arc::new(composed.clone()), tools: tools.clone() };
        self.0.put(request, with, bytes, at);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contract::TenantId;
    use contract::settings::{ContinuationSettings, ModelSettings};
    use serde_json::json;

    use super::*;
    use crate::recent_values::FRESH;

    fn request(text: &str) -> RequestText {
        let mut request = ComposeRequest::new(TenantId::default());
        request.parameters.insert("text".to_owned(), text.to_owned());
        RequestText::of(&request)
    }

    fn prompt(text: &str) -> Composed {
        let tools = json!({"allow": [], "deny": []});
        let agent = json!({"id": "a", "name": "A", "tools": tools, "continuation": ContinuationSettings::default()});
        let composed = json!({
            "prompt": text, "fingerprint": "", "components": [], "agent": agent, "model": ModelSettings::default(),
        });
        serde_json::from_value(composed).unwrap()
    }

    struct Cache(ComposedPrompts, Arc<Vec<ToolSpec>>);

    impl Cache {
        fn put(&self, text: &str, prompt_text: &str) {
            self.0.put(request(text), &self.1, &prompt(prompt_text), Instant::now());
        }

        fn bytes(&self, text: &str) -> Option<usize> {
            self.0.get(&request(text), &self.1).map(|composed| composed.prompt.len())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn prompt_is_found_by_the_same_request_and_tools_while_it_is_fresh() {
        let cache = Cache(ComposedPrompts::default(), Arc::default());
        cache.put("a", "first");
        assert_eq!((cache.bytes("a"), cache.bytes("b")), (Some(5), None));
        assert_eq!(cache.0.get(&request("a"), &Arc::default()), None, "the tools were read anew and are others");
        tokio::time::advance(FRESH).await;
        assert_eq!(cache.bytes("a"), Some(5));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(cache.bytes("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn cache_keeps_prompts_within_its_limits() {
        let cache = Cache(ComposedPrompts::default(), Arc::default());
        for n in 0..PROMPTS_MAX {
            cache.put(&n.to_string(), "x");
        }
        cache.put("0", "xx");
        assert_eq!((cache.bytes("0"), cache.bytes("1")), (Some(2), Some(1)), "a new one in the place of an old one");
        cache.put("more", "x");
        assert_eq!((cache.bytes("0"), cache.bytes("more")), (None, Some(1)));

        let half = "x".repeat(BYTES_MAX / 2);
        cache.put("1", &half);
        cache.put("2", &half);
        assert_eq!((cache.bytes("1"), cache.bytes("2")), (None, Some(half.len())));
        cache.put("3", &half.repeat(2));
        assert_eq!(cache.bytes("3"), None);
    }
}
