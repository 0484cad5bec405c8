//! Properties that hold for any bytes from outside. Each function takes an input of the fuzzer and panics if a property
//! does not hold. The targets below `fuzz/` call them, and so does a test with the inputs of the corpus.

#![allow(clippy::missing_panics_doc, reason = "to panic is how a property says that it does not hold")]

mod answers;
mod ids;
mod replies;
mod yaml;

pub use answers::answer;
pub use ids::ids;
pub use replies::{signal, splitter};
pub use yaml::{agents, models};

/// A check that panics if a property does not hold for the bytes.
pub type Property = fn(&[u8]);

/// Every property, by the name of its target.
pub const ALL: &[(&str, Property)] = &[
    ("agents", agents),
    ("answer", answer),
    ("ids", ids),
    ("models", models),
    ("signal", signal),
    ("splitter", splitter),
];
