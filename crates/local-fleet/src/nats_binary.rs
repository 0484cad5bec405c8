//! Finds a nats-server that is new enough. The working directory is not searched: somebody else may have written it.

use std::path::{Path, PathBuf};

use contract::ErrorCode;
use terminal::failure::CommandFailure;
use tokio::process::Command;

/// The oldest nats-server that has what ailoop relies on.
const OLDEST: (u32, u32) = (2, 15);

/// Places to search for a nats-server, in this order.
#[derive(Debug, Clone, Default)]
pub struct SearchPaths {
    /// `AILOOP_NATS_SERVER`: if it is set, no other path is searched.
    pub configured: Option<PathBuf>,
    /// The value of `PATH`.
    pub path: Option<std::ffi::OsString>,
}

/// Finds the first nats-server that is new enough.
///
/// Fails with `nats_too_old` when there are only older ones, and with `nats_missing` when there is none.
pub async fn find(paths: &SearchPaths) -> Result<PathBuf, CommandFailure> {
    find_with(paths, async |path| read_version(path).await).await
}

async fn find_with(
    paths: &SearchPaths,
    version: impl AsyncFn(&Path) -> Option<(u32, u32)>,
) -> Result<PathBuf, CommandFailure> {
    if let Some(configured) = &paths.configured {
        return match version(configured).await {
            Some(found) if found >= OLDEST => Ok(configured.clone()),
            Some(found) => Err(too_old(configured, found)),
            None => Err(CommandFailure::new(
                ErrorCode::NatsMissing,
                "AILOOP_NATS_SERVER does not name a nats-server that runs on this machine",
            )
            .at(configured.display())),
        };
    }
    let mut old = None;
    for candidate in list_candidates(paths) {
        match version(&candidate).await {
            Some(found) if found >= OLDEST => return Ok(candidate),
            Some(found) => old = old.or(Some((candidate, found))),
            None => {}
        }
    }
    Err(old.map_or_else(
        || {
            CommandFailure::new(ErrorCode::NatsMissing, "no nats-server was found")
                .at("searched AILOOP_NATS_SERVER and PATH")
        },
        |(path, found)| too_old(&path, found),
    ))
}

fn too_old(path: &Path, (major, minor): (u32, u32)) -> CommandFailure {
    let message = format!("nats-server {major}.{minor} is too old: {}.{} or newer is needed", OLDEST.0, OLDEST.1);
    CommandFailure::new(ErrorCode::NatsTooOld, message).at(path.display())
}

fn list_candidates(paths: &SearchPaths) -> impl Iterator<Item = PathBuf> + '_ {
    let directories = paths.path.iter().flat_map(std::env::split_paths);
    directories.map(|dir| dir.join("nats-server")).filter(|candidate| candidate.is_file())
}

/// Reads the major and minor version; none if the binary is no nats-server or does not run on this machine.
async fn read_version(binary: &Path) -> Option<(u32, u32)> {
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

    /// Writes a file with the output of `--version`, which the tests read instead of running it.
    fn write_binary(path: &Path, version: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("nats-server: v{version}\n")).unwrap();
    }

    async fn find_fake(paths: &SearchPaths) -> Result<PathBuf, ErrorCode> {
        let version = async |path: &Path| parse_version(&std::fs::read_to_string(path).ok()?);
        find_with(paths, version).await.map_err(|failure| failure.code().clone())
    }

    #[test]
    fn parse_version_output_of_nats_server_is_parsed() {
        assert_eq!(parse_version("nats-server: v2.15.1\n"), Some((2, 15)));
        assert_eq!(parse_version("nats-server: v2.14.0-RC.1"), Some((2, 14)));
        assert_eq!(parse_version("bash 5"), None);
    }

    #[tokio::test]
    async fn find_several_binaries_first_new_enough_is_chosen() {
        let dir = tempfile::tempdir().unwrap();
        let first = dir.path().join("first/nats-server");
        let second = dir.path().join("second/nats-server");
        let path = std::env::join_paths([first.parent().unwrap(), second.parent().unwrap()]).ok();
        let mut paths = SearchPaths { configured: None, path };
        assert_eq!(find_fake(&paths).await, Err(ErrorCode::NatsMissing));
        write_binary(&first, "2.9.10");
        assert_eq!(find_fake(&paths).await, Err(ErrorCode::NatsTooOld));
        write_binary(&second, "2.15.0");
        assert_eq!(find_fake(&paths).await, Ok(second));
        write_binary(&first, "3.0.0");
        assert_eq!(find_fake(&paths).await, Ok(first));
        let configured = dir.path().join("configured");
        paths.configured = Some(configured.clone());
        assert_eq!(find_fake(&paths).await, Err(ErrorCode::NatsMissing));
        write_binary(&configured, "2.9.0");
        assert_eq!(find_fake(&paths).await, Err(ErrorCode::NatsTooOld));
        write_binary(&configured, "2.15.1");
        assert_eq!(find_fake(&paths).await, Ok(configured));
    }

    #[tokio::test]
    async fn read_version_other_or_missing_binary_is_none() {
        assert_eq!(read_version(Path::new("/nowhere/nats-server")).await, None);
        assert_eq!(read_version(Path::new("/bin/sh")).await, None);
    }
}
