//! The credentials of the fleet of a directory, so that no other user of the machine can use it: the token of its edge, and
//! the password of its nats-server. They are made once and kept, so that clients find them again after a restart.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use configuration::Secret;
use configuration::api_key::generate_key;
use contract::ErrorCode;
use serde::Deserialize;
use serde_json::json;
use terminal::failure::CommandFailure;

use crate::private_file::write_private;

/// The file in the directory of the fleet.
const FILE: &str = "credentials.json";

/// Source of the credentials of a fleet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CredentialSource {
    /// Credentials in the directory of the fleet; they are created if there are none.
    #[default]
    Kept,
    /// New credentials, which replace those in the directory of the fleet.
    New,
    /// None: every user of this machine can use the fleet.
    None,
}

/// The credentials of the fleet of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LocalCredentials {
    /// The token of the edge.
    pub token: Secret,
    /// The password of the private nats-server.
    pub nats_password: Secret,
}

impl LocalCredentials {
    /// Returns the credentials of a directory, which its fleet has locked.
    pub(crate) fn of(directory: &Path, source: CredentialSource) -> Result<Option<Self>, CommandFailure> {
        let path = directory.join(FILE);
        let cannot = |why: &dyn std::fmt::Display| {
            CommandFailure::new(ErrorCode::BadConfig, format!("{} cannot be used: {why}", path.display()))
                .help("`ailoop up --new-token` makes new credentials; running clients need them then")
        };
        match source {
            CredentialSource::None => return Ok(None),
            CredentialSource::New => {}
            CredentialSource::Kept => match fs::read(&path) {
                Ok(text) => return serde_json::from_slice(&text).map(Some).map_err(|error| cannot(&error)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(cannot(&error)),
            },
        }
        let new = Self { token: Secret::new(generate_key()), nats_password: Secret::new(generate_key()) };
        let text = json!({"token": new.token.expose(), "nats_password": new.nats_password.expose()});
        write_private(&path, format!("{text:#}\n").as_bytes()).map_err(|error| cannot(&error))?;
        Ok(Some(new))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn credentials_are_kept_until_new_ones_are_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let of = |source| LocalCredentials::of(dir.path(), source).unwrap();
        assert_eq!(of(CredentialSource::None), None);
        let first = of(CredentialSource::Kept).unwrap();
        assert_eq!(fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(of(CredentialSource::Kept), Some(first.clone()));
        let second = of(CredentialSource::New).unwrap();
        assert!(first.token != second.token && first.nats_password != second.nats_password);
        assert_eq!(of(CredentialSource::Kept), Some(second));
        fs::write(dir.path().join(FILE), "{}").unwrap();
        let damaged = LocalCredentials::of(dir.path(), CredentialSource::Kept).unwrap_err().to_string();
        assert!(damaged.contains("credentials.json cannot be used") && damaged.contains("--new-token"), "{damaged}");
        of(CredentialSource::New).unwrap();
    }
}
