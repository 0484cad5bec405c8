//! Prompts that were composed a moment ago. Many sessions of one agent begin with the same one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use contract::compose::{ComposeRequest, Composed};
use contract::tool::ToolSpec;
use tokio::time::Instant;

use crate::tenant_tools::FRESH;

/// Prompts that are kept. A further one clears the cache first.
const PROMPTS_MAX: usize = 64;
/// Bytes of all prompts that are kept, with their requests. A prompt that would exceed this clears the cache first.
const BYTES_MAX: usize = 8 << 20;

/// Cache of composed prompts, by the request that composed them. Its blocking lock is held for a look-up only.
#[derive(Debug, Default)]
pub(crate) struct ComposedPrompts(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_request: HashMap<RequestText, Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    composed: Box<Composed>,
    tools: Arc<Vec<ToolSpec>>,
    at: Instant,
}

/// A request without its tools, as JSON: two requests of the same text and tools compose the same prompt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RequestText(String);

impl RequestText {
    pub(crate) fn of(request_without_tools: &ComposeRequest) -> Self {
        Self(contract::Json::of(request_without_tools).get().to_owned())
    }
}

impl ComposedPrompts {
    /// The prompt that this request composed with these very tools, at most [`FRESH`] ago.
    pub(crate) fn get(&self, request: &RequestText, tools: &Arc<Vec<ToolSpec>>) -> Option<Box<Composed>> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |entry: &&Entry| entry.at.elapsed() <= FRESH && Arc::ptr_eq(&entry.tools, tools);
        entries.by_request.get(request).filter(is_same).map(|entry| entry.composed.clone())
    }

    /// Keeps a prompt that was asked for at `at`. A prompt larger than the whole cache is not kept.
    pub(crate) fn put(&self, request: RequestText, tools: &Arc<Vec<ToolSpec>>, composed: &Composed, at: Instant) {
        let bytes = request.0.len() + composed.prompt.len();
        if bytes > BYTES_MAX {
            return;
        }
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = entries.by_request.remove(&request) {
            entries.bytes -= request.0.len() + before.composed.prompt.len();
        }
        if entries.by_request.len() >= PROMPTS_MAX || entries.bytes + bytes > BYTES_MAX {
            *entries = Entries::default();
        }
        entries.bytes += bytes;
        entries.by_request.insert(request, Entry { composed: Box::new(composed.clone()), tools: tools.clone(), at });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contract::TenantId;
    use contract::settings::{ContinuationSettings, ModelSettings};
    use serde_json::json;

    use super::*;

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
