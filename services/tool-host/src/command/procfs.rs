//! Reads the processes below this one from `/proc`.

use std::collections::BTreeMap;
use std::io;

/// A process as `/proc` showed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// Start time in ticks of the kernel. It tells two processes with the same PID apart.
    pub(super) start_time: u64,
    pub(super) resident_pages: u64,
    /// Whether it is a zombie.
    pub(super) has_ended: bool,
}

/// All descendants of `top`, without `top` itself; parents come before their children.
pub(super) fn list_descendants(top: i32) -> io::Result<Vec<Process>> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // A process may end between the two reads.
        let Ok(line) = std::fs::read(format!("/proc/{pid}/stat")) else { continue };
        let Some(process) = parse_stat(&String::from_utf8_lossy(&line)) else { continue };
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut next = children.remove(&top).unwrap_or_default();
    while let Some(process) = next.pop() {
        next.extend(children.remove(&process.pid).unwrap_or_default());
        found.push(process);
    }
    Ok(found)
}

/// Reads the session id of a process.
pub(super) fn read_session(pid: i32) -> Option<i32> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|process| process.session)
}

/// Counts the threads of all processes of a user, which the kernel compares with the limit.
pub(super) fn count_threads(user: u32) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut threads = 0;
    for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
        if entry.metadata().is_ok_and(|found| found.uid() == user) {
            threads += std::fs::read_dir(entry.path().join("task")).map_or(0, |tasks| tasks.count() as u64);
        }
    }
    Ok(threads)
}

/// Parses a line of `/proc/<pid>/stat`. The program name in it may contain anything, parentheses included.
fn parse_stat(line: &str) -> Option<Process> {
    let (begin, rest) = line.rsplit_once(')')?;
    let pid = begin.split_once(' ')?.0.parse().ok()?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<i64>().ok();
    let small = |index: usize| i32::try_from(number(index)?).ok();
    // A process whose main thread has ended while others run is not finished.
    let has_ended = matches!(*fields.first()?, "Z" | "X" | "x") && number(17)? <= 1;
    Some(Process {
        pid,
        parent: small(1)?,
        group: small(2)?,
        session: small(3)?,
        start_time: u64::try_from(number(19)?).ok()?,
        resident_pages: u64::try_from(number(21)?).unwrap_or(0),
        has_ended,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_with_any_name_is_parsed() {
        let rest = "7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1000 33 18446744073709551615";
        let process = Process {
            pid: 12,
            parent: 7,
            group: 8,
            session: 9,
            start_time: 4_711,
            resident_pages: 33,
            has_ended: false,
        };
        for name in ["sh", "a b", "x) R 1 (y", ")", "", "a\nb"] {
            assert_eq!(parse_stat(&format!("12 ({name}) S {rest}")), Some(process), "{name:?}");
        }
        assert_eq!(parse_stat(&format!("12 (sh) Z {rest}")), Some(Process { has_ended: true, ..process }));
        let threads = rest.replace("20 0 1 0", "20 0 3 0");
        assert_eq!(parse_stat(&format!("12 (sh) Z {threads}")), Some(process), "its threads go on");
        for bad in ["", "12", "12 (sh)", "12 (sh) S 1 2", "x (sh) S 7 8 9"] {
            assert_eq!(parse_stat(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn child_of_this_process_is_listed() {
        let me = i32::try_from(std::process::id()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let found = list_descendants(me).unwrap();
        let found_child = found.iter().find(|process| process.pid == pid).copied();
        child.kill().unwrap();
        child.wait().unwrap();
        let found_child = found_child.unwrap();
        assert_eq!((found_child.parent, Some(found_child.session)), (me, read_session(me)));
    }
}
