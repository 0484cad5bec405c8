//! Models and their providers: `models.yaml`. Endpoints and keys come from here and nowhere else.

mod budget;
mod entries;
mod file;

pub use budget::{BudgetRule, BudgetScope, Period};
pub use entries::{
    Alternative, ModelEntry, ModelsFile, Prices, ProviderEntry, ProviderKind, Quirk, Quirks, RESERVED_PARAMETERS,
    Rates, Resolved, UnknownModel,
};
pub use file::{FILE, load, mistakes, parse, schema};

/// Models for agents where nothing names one: the first whose provider has its key.
const DEFAULT_MODELS: &[&str] =
    &["gpt-4o-mini", "claude-sonnet-4-5", "gemini-2.5-flash", "openrouter/openai/gpt-4o-mini"];

/// The scripted model of the shipped models.yaml, which needs no server and no key.
pub const REHEARSAL: &str = "rehearsal";

impl ModelsFile {
    /// The model for agents where nothing names one; none if no provider of such a model has a key.
    pub fn find_default_model(&self, has_key: impl Fn(&ProviderEntry) -> bool) -> Option<Resolved> {
        let mut known = DEFAULT_MODELS.iter().filter_map(|model| self.resolve(model).ok());
        known.find(|model| has_key(&model.provider_entry))
    }
}

/// Whether an environment variable holds a key.
pub fn is_key_set(name: &str) -> bool {
    crate::env(name).is_some_and(|key| !key.trim().is_empty())
}
