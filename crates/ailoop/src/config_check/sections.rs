//! Reads the sections of `ailoop.yaml`.

use configuration::TextFile;
use configuration::{ConfigError, Settings};
use serde::de::DeserializeOwned;

use super::mistake::ConfigMistake;
use super::tree::{TextPosition, find_key};

/// Reads each section of `ailoop.yaml` by itself, with the environment over it, and collects the mistakes.
pub(super) struct SectionReader<'a> {
    pub(super) settings: &'a Settings,
    pub(super) file: &'a TextFile,
    /// Lines whose mistakes were reported before.
    pub(super) known_lines: &'a [usize],
    pub(super) mistakes: Vec<ConfigMistake>,
}

impl SectionReader<'_> {
    /// Reads a section, or adds the mistake for which it cannot be read.
    pub(super) fn read<T: DeserializeOwned + Default>(&mut self, name: &str) -> Option<T> {
        match self.settings.section(name) {
            Ok(section) => Some(section),
            Err(error) => {
                let mistake = if let ConfigError::Environment { .. } = &error {
                    ConfigMistake::new("the environment", format!("section {name}: {error}"))
                } else {
                    ConfigMistake::from_error(self.file, &error)
                };
                if mistake.line == 0 || !self.known_lines.contains(&mistake.line) {
                    self.mistakes.push(mistake);
                }
                None
            }
        }
    }

    /// Adds a mistake at a key of the file, or of the environment if the file does not have the key.
    pub(super) fn report(&mut self, field: &str, key: &str, message: String) {
        let mut position = Some(TextPosition::START);
        for part in field.split('.').chain([key]) {
            position = position.map(|from| find_key(&self.file.text, from, part).unwrap_or(from));
        }
        let mistake = match position.filter(|position| position.line > 1 || self.file.text.starts_with(field)) {
            Some(position) => ConfigMistake::at(self.file, position, message),
            None => ConfigMistake::new("the environment", message),
        };
        self.mistakes.push(mistake);
    }
}

/// Returns the mistake in the address of a nats-server, if it has one.
pub(super) fn find_url_mistake(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
    if !["nats", "tls", "ws", "wss"].contains(&scheme) {
        return Some(format!("{url:?} is no address of NATS: write nats://<host>:<port>"));
    }
    let host = rest.rsplit('@').next().unwrap_or_default();
    let port = host.rsplit_once(':').filter(|_| !host.ends_with(']')).map(|(_, port)| port.trim_end_matches('/'));
    match port {
        Some(port) if port.parse::<u16>().is_err() => {
            Some(format!("{port:?} in {url:?} is no port: a port is a number up to 65535"))
        }
        _ if host.is_empty() => Some(format!("{url:?} names no host: write nats://<host>:<port>")),
        _ => None,
    }
}
