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
