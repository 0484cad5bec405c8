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

/// The model that each key chooses where nothing names one, by the environment variable of the key; the first one counts.
pub const MODEL_BY_KEY: &[(&str, &str)] = &[
    ("OPENAI_API_KEY", "gpt-4o-mini"),
    ("ANTHROPIC_API_KEY", "claude-sonnet-4-5"),
    ("GEMINI_API_KEY", "gemini-2.5-flash"),
    ("OPENROUTER_API_KEY", "openrouter/openai/gpt-4o-mini"),
];

/// Whether an environment variable holds a key.
pub fn is_key_set(name: &str) -> bool {
    crate::env(name).is_some_and(|key| !key.trim().is_empty())
}
