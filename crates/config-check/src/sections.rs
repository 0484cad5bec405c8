//! Reads the sections of `ailoop.yaml`.

use std::net::SocketAddr;

use bus::NatsConfig;
use configuration::TextFile;
use configuration::{ConfigError, Settings};
use edge::EdgeConfig;
use model_gateway::GatewayConfig;
use prompt_composer::ComposerConfig;
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

    /// Checks the addresses of the nats-servers.
    pub(super) fn check_nats(&mut self, nats: &NatsConfig) {
        for message in nats.url.split(',').filter_map(|url| find_url_mistake(url.trim())) {
            self.report("nats.url", "url", message);
        }
    }

    /// Checks that the directories exist.
    pub(super) fn check_directories(&mut self, composer: Option<&ComposerConfig>, gateway: Option<&GatewayConfig>) {
        let dirs = [
            ("composer.config_dir", composer.and_then(|of| of.config_dir.as_deref())),
            ("composer.prompts_dir", composer.and_then(|of| of.prompts_dir.as_deref())),
            ("gateway.config_dir", gateway.and_then(|of| of.config_dir.as_deref())),
        ];
        for (field, dir) in dirs {
            if let Some(dir) = dir.filter(|dir| !dir.is_dir()) {
                let key = field.rsplit('.').next().unwrap_or_default();
                self.report(field, key, format!("the directory {} does not exist", dir.display()));
            }
        }
    }

    /// Checks the section of the edge as the edge does when it starts.
    pub(super) fn check_edge(&mut self, edge: &EdgeConfig) {
        if let Err(error) = edge.check() {
            let field =
                if edge.token.as_ref().is_some_and(|token| token.expose().is_empty()) { "token" } else { "listen" };
            self.report("edge", field, error.to_string());
        }
    }

    /// Checks that no two listeners of a fleet have the same address.
    pub(super) fn check_ports(&mut self, edge: &EdgeConfig, health: Option<SocketAddr>) {
        let ports = [
            ("edge.ws.listen", Some(edge.ws.listen)),
            ("edge.grpc.listen", Some(edge.grpc.listen)),
            ("health.listen", health),
        ];
        for (index, (field, address)) in ports.iter().enumerate() {
            let same = ports[..index]
                .iter()
                .find(|(_, other)| address.is_some_and(|address| address.port() != 0 && *other == Some(address)));
            if let (Some((other, _)), Some(address)) = (same, address) {
                self.report(field, "listen", format!("{field} and {other} are both {address}: choose two ports"));
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
fn find_url_mistake(url: &str) -> Option<String> {
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
