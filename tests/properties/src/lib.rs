//! What holds of any bytes that come from outside. Each function takes an input of the fuzzer and panics where something
//! does not hold; the targets below `fuzz/` call them, and so does a plain test with the inputs that are kept there.

#![allow(clippy::missing_panics_doc, reason = "to panic is how a property says that it does not hold")]

mod answers;
mod ids;
mod replies;
mod yaml;

pub use answers::answer;
pub use ids::ids;
pub use replies::{signal, splitter};
pub use yaml::{agents, models};

/// A property.
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
