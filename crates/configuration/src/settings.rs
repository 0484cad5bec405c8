//! Layered configuration: defaults, then `ailoop.yaml`, then the environment (`AILOOP__SECTION__FIELD`).

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

use config::{Config as Layers, Environment, File, FileFormat};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::ConfigError;
use crate::paths::Paths;
use crate::text_file::TextFile;
use crate::{shipped, yaml};

/// The file that holds all sections.
pub const FILE: &str = shipped::SETTINGS;
/// Begins the name of every environment variable that overrides a field.
const PREFIX: &str = "AILOOP";
/// Every section and field of the file's top level; another one is refused.
pub const SECTIONS: &[&str] = &[
    "nats",
    "telemetry",
    "health",
    "drain_timeout",
    "composer",
    "orchestrator",
    "gateway",
    "executor",
    "tool_host",
    "edge",
];

/// The configuration of one process, read once. It holds secrets, so it cannot be shown.
#[derive(Clone)]
pub struct Settings {
    paths: Paths,
    file: TextFile,
    layers: Layers,
    /// As `layers`, with the lists and mappings of variables read as JSON.
    json_layers: Layers,
    /// Names of the variables that override fields.
    variables: Vec<String>,
}

/// Reads one section, from where [`Paths::find`] finds it.
pub fn load<T: DeserializeOwned + Default>(section: &str) -> Result<T, ConfigError> {
    Settings::read(None)?.section(section)
}

impl Settings {
    /// Reads the file and the environment; see [`Paths::find`] for the directory.
    pub fn read(dir: Option<&Path>) -> Result<Self, ConfigError> {
        Self::of(Paths::find(dir)?)
    }

    /// As [`Settings::read`], from these paths.
    pub fn of(paths: Paths) -> Result<Self, ConfigError> {
        let named = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let variables = std::env::vars_os().filter_map(named).filter(|(name, _)| name.starts_with(PREFIX));
        Self::with_variables(paths, &variables.collect())
    }

    /// As [`Settings::read`], from these paths and these environment variables.
    pub fn with_variables(paths: Paths, variables: &HashMap<String, String>) -> Result<Self, ConfigError> {
        let file = paths.read(FILE)?;
        let mut names: Vec<String> = variables.keys().cloned().collect();
        names.sort();
        // Values stay text until a field says what they are, so that a password `00123` keeps its zeros.
        let environment = Environment::with_prefix(PREFIX).prefix_separator("__").separator("__");
        let layers = Layers::builder()
            .add_source(File::from_str(&yaml::to_json(&file)?, FileFormat::Json))
            .add_source(environment.source(Some(variables.clone())));
        let mut json_layers = layers.clone();
        for (name, value) in variables {
            let path = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix("__"));
            if let (Some(path), Some(value)) = (path, json_value(value)) {
                json_layers = json_layers.set_override(path.to_lowercase().replace("__", "."), value)?;
            }
        }
        let (layers, json_layers) = (layers.build()?, json_layers.build()?);
        let settings = Self { paths, file, layers, json_layers, variables: names };
        settings.check_sections()?;
        Ok(settings)
    }

    /// Returns the directories in which files are looked for.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// One section; its defaults where it is absent.
    pub fn section<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T, ConfigError> {
        match self.layers.get::<Option<T>>(name) {
            Ok(section) => Ok(section.unwrap_or_default()),
            Err(config::ConfigError::NotFound(_)) => Ok(T::default()),
            Err(error) => {
                // A variable may hold a list: only the field knows that its text is one.
                if let Ok(section) = self.json_layers.get::<Option<T>>(name) {
                    return Ok(section.unwrap_or_default());
                }
                // The layers know no lines; where the file alone is wrong too, its parser says where.
                yaml::check_section::<T>(&self.file, name)?;
                let begin = format!("{PREFIX}__{}", name.to_uppercase());
                let mine: Vec<&str> =
                    self.variables.iter().map(String::as_str).filter(|v| v.starts_with(&begin)).collect();
                Err(ConfigError::Environment { reason: Box::new(error), variables: mine.join(", ") })
            }
        }
    }

    fn check_sections(&self) -> Result<(), ConfigError> {
        let sections: HashMap<String, config::Value> = self.layers.clone().try_deserialize()?;
        let Some(name) = sections.keys().find(|name| !SECTIONS.contains(&name.as_str())) else { return Ok(()) };
        let message = format!("there is no section {name:?}; there are {}", SECTIONS.join(", "));
        let line = self.file.text.lines().position(|line| line.starts_with(name.as_str()));
        let origin = line.map_or("the environment", |_| self.file.origin.as_str()).to_owned();
        let line = line.map_or(0, |index| index as u64 + 1);
        Err(ConfigError::Bad { origin, line, column: line.min(1), message })
    }
}

/// The value of a variable that holds a JSON array or object.
fn json_value(text: &str) -> Option<config::Value> {
    if !text.trim_start().starts_with(['[', '{']) {
        return None;
    }
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    config::Value::deserialize(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    #[derive(Debug, PartialEq, Deserialize, Default)]
    #[serde(default, deny_unknown_fields)]
    struct Edge {
        port: u16,
        token: Option<Secret>,
        ratio: f64,
        on: bool,
        nested: Nested,
        names: Vec<String>,
    }

    #[derive(Debug, PartialEq, Deserialize, Default)]
    #[serde(default, deny_unknown_fields)]
    struct Nested {
        name: String,
    }

    fn read(text: &str, environment: &[(&str, &str)]) -> Result<Settings, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), text).unwrap();
        let paths = Paths { config: Some(dir.path().to_owned()), ..Paths::default() };
        let variables = environment.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Settings::with_variables(paths, &variables.collect())
    }

    #[test]
    fn field_set_twice_environment_overrides_file() {
        let environment =
            [("AILOOP__EDGE__PORT", "7"), ("AILOOP__EDGE__TOKEN", "00123"), ("AILOOP__EDGE__NESTED__NAME", "x")];
        let edge: Edge = read("edge: {port: 1, ratio: 0.5, on: true}", &environment).unwrap().section("edge").unwrap();
        let token = Some(Secret::new("00123"));
        assert_eq!(
            edge,
            Edge { port: 7, token, ratio: 0.5, on: true, nested: Nested { name: "x".into() }, names: vec![] }
        );

        let typed = [("AILOOP__EDGE__RATIO", "1.0"), ("AILOOP__EDGE__ON", "true"), ("AILOOP_CONFIG", "/nowhere")];
        let edge: Edge = read("", &typed).unwrap().section("edge").unwrap();
        assert_eq!(edge, Edge { ratio: 1.0, on: true, ..Edge::default() });
        for text in ["", "edge:\n", "edge: {}", "nats: {}"] {
            assert_eq!(read(text, &[]).unwrap().section::<Edge>("edge").unwrap(), Edge::default(), "{text}");
        }
    }

    #[test]
    fn variable_with_a_json_list_sets_a_list() {
        let names = [("AILOOP__EDGE__NAMES", r#"["a", "b"]"#), ("AILOOP__EDGE__TOKEN", "[x")];
        let edge: Edge = read("edge: {names: [c]}", &names).unwrap().section("edge").unwrap();
        assert_eq!(edge.names, ["a", "b"]);
        assert_eq!(edge.token, Some(Secret::new("[x")));
        let nested = [("AILOOP__EDGE__NESTED", r#"{"name": "x"}"#)];
        assert_eq!(read("", &nested).unwrap().section::<Edge>("edge").unwrap().nested.name, "x");
        // A text that looks like a list stays the text that it is.
        let token = [("AILOOP__EDGE__TOKEN", r#"["a"]"#)];
        assert_eq!(read("", &token).unwrap().section::<Edge>("edge").unwrap().token, Some(Secret::new(r#"["a"]"#)));
    }

    #[test]
    fn refused_where_it_stands() {
        let check = |text: &str, environment: &[(&str, &str)], expect: &str| {
            let error = read(text, environment).and_then(|s| s.section::<Edge>("edge")).unwrap_err().to_string();
            assert!(error.contains(expect), "{text}\n  got:    {error}\n  expect: {expect}");
        };
        check("edge:\n  port: 1\n  prot: 2\n", &[], "ailoop.yaml:3:3: ");
        check("nats: {}\nedge:\n  nested: {nam: x}\n", &[], "ailoop.yaml:3:12: ");
        check("edge: {port: many}", &[], "ailoop.yaml:1:14: ");
        check("nats: {}\negde: {port: 1}\n", &[], "ailoop.yaml:2:1: there is no section \"egde\"");
        check("", &[("AILOOP__EGDE__PORT", "1")], "the environment:0:0: there is no section \"egde\"");
        check("", &[("AILOOP__EDGE__PROT", "1")], "prot");
        check("", &[("AILOOP__EDGE__PORT", "many")], "AILOOP__EDGE__PORT");
    }

    #[test]
    fn named_directory_missing_is_refused() {
        assert!(matches!(Settings::read(Some(Path::new("/no/such"))), Err(ConfigError::NoDirectory(_))));
    }
}
