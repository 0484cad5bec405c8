//! Contents of files that their owner takes anew when they change, such as certificates and keys.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

/// Pause between two looks.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Reads files again and again, until the task ends, for an owner that takes what is new in them. `report` gets the
/// reason why what is there cannot be read or taken, or none once it is in use.
pub async fn follow<C: PartialEq + Send + 'static>(
    read: impl Fn() -> Result<C, String> + Clone + Send + 'static,
    take: impl Fn(&C) -> Result<(), String>,
    report: impl Fn(Option<&str>),
) {
    let (mut seen, mut used) = (None, None);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let read = tokio::task::spawn_blocking(read.clone()).await;
        match read.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(found) if used.as_ref() == Some(&found) => report(None),
            // A change counts when the next look finds the same: a file may be in the middle of being written.
            Ok(found) if seen.as_ref() == Some(&found) => match take(&found) {
                Ok(()) => {
                    report(None);
                    used = Some(found);
                }
                Err(reason) => report(Some(&reason)),
            },
            Ok(found) => seen = Some(found),
            Err(reason) => report(Some(&reason)),
        }
    }
}

/// Reads a file of at most so many bytes; the error does not name it.
pub fn read_at_most(path: &Path, bytes_max: usize) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > bytes_max {
        return Err(format!("it has more than {bytes_max} bytes"));
    }
    Ok(bytes)
}
