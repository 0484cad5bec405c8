//! The `composer` section of the configuration.

use std::path::PathBuf;

use configuration::Paths;
use configuration::files::Pass;
use configuration::{ConfigError, Settings};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::features;

/// Name of the section of `ailoop.yaml`.
pub const SECTION: &str = "composer";

/// The `composer` section of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "composer")]
pub struct ComposerConfig {
    /// The model of agents that name none, in place of the one in `models.yaml`.
    pub default_model: Option<String>,
    /// Features of all agents.
    pub features: Vec<String>,
    /// Directory of `agents.yaml` and `models.yaml`. Default: the directory of `ailoop.yaml`.
    pub config_dir: Option<PathBuf>,
    /// Prompts that go before those of the project and those that are shipped.
    pub prompts_dir: Option<PathBuf>,
    /// Directory of the `ailoop.yaml` whose changes of `features` are followed. `None` if the caller built the
    /// configuration.
    #[serde(skip)]
    pub watched_config_dir: Option<PathBuf>,
}

impl Default for ComposerConfig {
    fn default() -> Self {
        Self {
            default_model: None,
            features: vec![features::CONTINUATION.to_owned()],
            config_dir: None,
            prompts_dir: None,
            watched_config_dir: None,
        }
    }
}

impl ComposerConfig {
    /// Returns this configuration with the `ailoop.yaml` that it came from, whose changes are then followed.
    pub fn watch_config_file(self) -> Result<Self, ConfigError> {
        Ok(Self { watched_config_dir: Paths::find(None)?.config, ..self })
    }

    /// Reads the features of all agents from the file again.
    pub(crate) fn read_features(&self, pass: &Pass) -> Result<Vec<String>, ConfigError> {
        let Some(dir) = &self.watched_config_dir else { return Ok(self.features.clone()) };
        let settings = Settings::of(Paths::find_in(pass, Some(dir))?)?;
        Ok(settings.section::<Self>(SECTION)?.features)
    }
}
