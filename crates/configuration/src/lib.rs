//! Configuration that a process reads before it starts: settings, models, continuation settings and texts, from files,
//! the environment and the files shipped in the binary. It does no other IO, and it knows neither NATS nor HTTP.

pub mod api_key;
pub mod continuation;
mod environment;
mod error;
pub mod files;
pub mod models;
pub mod paths;
mod regular_file;
pub mod schema;
mod secret;
pub mod settings;
pub mod shipped;
pub mod suggest;
mod text_file;
pub mod trust;
pub mod yaml;

pub use environment::env;
pub use error::ConfigError;
pub use paths::Paths;
pub use regular_file::place_of;
pub use secret::Secret;
pub use settings::Settings;
pub use text_file::TextFile;
pub use trust::UntrustedConfig;
