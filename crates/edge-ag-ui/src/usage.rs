//! Usage of the model calls of a run, by provider and model.

use std::collections::BTreeMap;

use contract::model::Usage;

use super::events::ModelUsage;

/// Tokens by provider and model. A turn uses few models, of which each is configured.
#[derive(Debug, Default)]
pub(super) struct RunUsage(BTreeMap<(String, String), Usage>);

impl RunUsage {
    pub(super) fn add(&mut self, provider: String, model: String, usage: Usage) {
        let used = self.0.entry((provider, model)).or_default();
        *used = used.plus(usage);
    }

    pub(super) fn to_list(&self) -> Vec<ModelUsage> {
        let of = |((provider, model), usage): (&(String, String), &Usage)| ModelUsage {
            provider: provider.clone(),
            model: model.clone(),
            input_tokens: usage.input,
            output_tokens: usage.output,
            total_tokens: usage.input + usage.output,
            reasoning_tokens: usage.reasoning,
            cached_input_tokens: usage.cached,
        };
        self.0.iter().map(of).collect()
    }
}
