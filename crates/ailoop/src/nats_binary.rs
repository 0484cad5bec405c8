//! Finds a nats-server that is new enough.

use std::path::{Path, PathBuf};

use contract::ErrorCode;
use tokio::process::Command;

use crate::failure::Failure;

/// The oldest nats-server that has what ailoop relies on.
const OLDEST: (u32, u32) = (2, 12);

/// Where a nats-server is looked for, in this order.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// `AILOOP_NATS_SERVER`: taken or refused, never passed over.
    pub named: Option<PathBuf>,
    /// The directory from which `.tools/nats-server` is looked for, upwards.
    pub from: PathBuf,
    /// `PATH`.
    pub path: Option<std::ffi::OsString>,
}

/// Finds the first nats-server that is new enough.
///
/// Fails with `nats_too_old` when there are only older ones, and with `nats_missing` when there is none.
pub async fn find(places: &Places) -> Result<PathBuf, Failure> {
    find_by(places, async |path| version(path).await).await
}

async fn find_by(places: &Places, version: impl AsyncFn(&Path) -> Option<(u32, u32)>) -> Result<PathBuf, Failure> {
    if let Some(named) = &places.named {
        return match version(named).await {
            Some(found) if found >= OLDEST => Ok(named.clone()),
            Some(found) => Err(too_old(named, found)),
            None => Err(Failure::new(ErrorCode::NatsMissing, "AILOOP_NATS_SERVER names no nats-server that runs here")
                .at(named.display())),
        };
    }
    let mut old = None;
    for candidate in candidates(places) {
        match version(&candidate).await {
            Some(found) if found >= OLDEST => return Ok(candidate),
            Some(found) => old = old.or(Some((candidate, found))),
            None => {}
        }
    }
    Err(old.map_or_else(
        || {
            Failure::new(ErrorCode::NatsMissing, "there is no nats-server to start")
                .at("looked at AILOOP_NATS_SERVER, .tools/nats-server up the tree, and PATH")
        },
        |(path, found)| too_old(&path, found),
    ))
}

fn too_old(path: &Path, (major, minor): (u32, u32)) -> Failure {
    let message = format!("nats-server {major}.{minor} is too old: {}.{} or newer is needed", OLDEST.0, OLDEST.1);
    Failure::new(ErrorCode::NatsTooOld, message).at(path.display())
}

fn candidates(places: &Places) -> impl Iterator<Item = PathBuf> + '_ {
    let tools = places.from.ancestors().map(|dir| dir.join(".tools/nats-server"));
    let path = places.path.iter().flat_map(std::env::split_paths).map(|dir| dir.join("nats-server"));
    tools.chain(path).filter(|candidate| candidate.is_file())
}

/// Major and minor version; none when it is no nats-server, or does not run here.
async fn version(binary: &Path) -> Option<(u32, u32)> {
    let output = Command::new(binary).arg("--version").kill_on_drop(true).output().await.ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().strip_prefix("nats-server: v")?.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that holds what its `--version` would say.
    fn put(path: &Path, version: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("nats-server: v{version}\n")).unwrap();
    }

    async fn found(places: &Places) -> Result<PathBuf, ErrorCode> {
        let version = async |path: &Path| parse_version(&std::fs::read_to_string(path).ok()?);
        find_by(places, version).await.map_err(|failure| failure.code().clone())
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(parse_version("nats-server: v2.15.1\n"), Some((2, 15)));
        assert_eq!(parse_version("nats-server: v2.14.0-RC.1"), Some((2, 14)));
        assert_eq!(parse_version("bash 5"), None);
    }

    #[tokio::test]
    async fn the_first_good_one_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let tools = dir.path().join(".tools/nats-server");
        let on_path = dir.path().join("bin/nats-server");
        let path = on_path.parent().map(|bin| bin.as_os_str().to_owned());
        let mut places = Places { named: None, from: dir.path().join("a/b"), path };
        assert_eq!(found(&places).await, Err(ErrorCode::NatsMissing));
        put(&tools, "2.9.10");
        assert_eq!(found(&places).await, Err(ErrorCode::NatsTooOld));
        put(&on_path, "2.12.0");
        assert_eq!(found(&places).await, Ok(on_path));
        put(&tools, "3.0.0");
        assert_eq!(found(&places).await, Ok(tools));
        let named = dir.path().join("named");
        places.named = Some(named.clone());
        assert_eq!(found(&places).await, Err(ErrorCode::NatsMissing));
        put(&named, "2.9.0");
        assert_eq!(found(&places).await, Err(ErrorCode::NatsTooOld));
        put(&named, "2.12.1");
        assert_eq!(found(&places).await, Ok(named));
    }

    #[tokio::test]
    async fn what_does_not_run_is_no_nats_server() {
        assert_eq!(version(Path::new("/nowhere/nats-server")).await, None);
        assert_eq!(version(Path::new("/bin/sh")).await, None);
    }
}
