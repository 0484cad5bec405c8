//! The settings that every process reads.

use std::collections::HashMap;
use std::time::Duration;

use configuration::settings::{FILE, Settings};
use configuration::{ConfigError, Paths};
use service::common::CommonSettings;
use telemetry::LogFormat;

fn read(text: &str, variables: &[(&str, &str)]) -> Result<CommonSettings, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(FILE), text).unwrap();
    let paths = Paths { config: Some(dir.path().to_owned()), ..Paths::default() };
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    CommonSettings::read(&Settings::with_variables(paths, &variables.collect())?)
}

#[test]
fn common_settings_come_from_the_file_and_the_environment() {
    let common = read("drain_timeout: 3\ntelemetry: {log: json}", &[("AILOOP__NATS__URL", "nats://x")]).unwrap();
    assert_eq!(common.drain_timeout, Duration::from_secs(3));
    assert_eq!(common.nats.url, "nats://x");
    assert_eq!(common.telemetry.log, LogFormat::Json);
}

#[test]
fn shipped_file_holds_the_defaults_of_common_settings() {
    let shipped = Settings::with_variables(Paths::default(), &HashMap::new()).unwrap();
    assert_eq!(CommonSettings::read(&shipped).unwrap(), read("", &[]).unwrap());
}
