//! The processes of a command, however they try to escape, and how they are killed.
//!
//! A command has a session of its own. A process that leaves it is found as a descendant, by a session that the command
//! made, by having been seen before, or by a mark in its environment. A process whose parent has ended becomes a child
//! of this process, which is a subreaper. A child in a foreign session that none of this explains escaped from some
//! command, since nothing else here starts sessions; it is killed with the next command that ends.
//!
//! A command in a PID namespace cannot leave it. Killing the first process of the namespace ends all others, and the
//! kernel keeps that process in the list until they are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, waitpid};

use super::launch::{MARK_VARIABLE, SpawnedCommand};
use super::procfs::{self, Process};

/// Rounds of listing and killing in which new processes are still found. A killed process starts no other one, so few
/// are needed.
const KILL_ROUNDS_MAX: usize = 100;
/// Priority at which processes are killed, as `nice` counts.
const PRIORITY_HIGHEST: i32 = -20;
/// Maximum age of a list of processes, so that several commands share one.
const SNAPSHOT_AGE_MAX: Duration = Duration::from_millis(20);
/// Bytes of an environment that are searched for the mark.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;

/// All commands of this process, since it is one subreaper for all. A lock and not a task, since dropping a command
/// must kill it at once.
static PROCESS_TREES: Mutex<ProcessTrees> =
    Mutex::new(ProcessTrees { last: 0, states: BTreeMap::new(), snapshot: None });

struct ProcessTrees {
    last: u64,
    states: BTreeMap<u64, TreeState>,
    snapshot: Option<(Instant, Arc<[Process]>)>,
}

/// The known processes and sessions of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TreeState {
    root: i32,
    /// The process that holds the PID namespace of the command; its only child is the first process of the namespace.
    holder: Option<i32>,
    mark: String,
    sessions: BTreeSet<i32>,
    known_processes: BTreeSet<(i32, u64)>,
}

impl TreeState {
    /// Whether a process only holds or enters the PID namespace, and is not part of the command.
    fn is_namespace_helper(&self, process: &Process) -> bool {
        self.holder.is_some_and(|holder| [holder, self.root].contains(&process.pid) || process.parent == holder)
    }
}

/// The processes by command, and those that escaped from a command that is not known.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ownership {
    members: BTreeMap<u64, Vec<Process>>,
    escaped: Vec<Process>,
}

/// Limits of all processes of a command together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResourceCap {
    pub(super) processes: usize,
    pub(super) memory_bytes: u64,
}

/// The processes of a command that remain after a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KillReport {
    /// Processes that have not ended yet.
    pub(super) processes: usize,
    /// Whether some ended just now. The kernel lists PIDs first and reads the processes later, so a process that is
    /// seen as ended may have started another one that this list lacks.
    pub(super) has_recent_exits: bool,
}

/// The processes of one command; dropping it kills them.
#[derive(Debug)]
pub(super) struct ProcessTree {
    id: u64,
    root: i32,
    /// The limit that the command exceeded.
    violation: OnceLock<String>,
}

impl ProcessTree {
    /// Makes this process the parent of orphans of commands.
    pub(super) fn become_subreaper() -> io::Result<()> {
        Ok(rustix::process::set_child_subreaper(Some(getpid()))?)
    }

    /// Starts a command and the tracking of its processes. No other command is killed meanwhile: it would take the new
    /// processes, which belong to no command yet, for its own.
    pub(super) fn start(
        mark: String,
        start: impl FnOnce(&str) -> io::Result<SpawnedCommand>,
    ) -> io::Result<(Self, SpawnedCommand)> {
        let mut trees = lock();
        let started = start(&mark)?;
        let (root, holder) = (started.root, started.holder.as_ref().and_then(|holder| holder.pid().ok()));
        trees.last += 1;
        let id = trees.last;
        let all = procfs::list_descendants(own_pid()).unwrap_or_default();
        let began = all.iter().filter(|process| process.pid == root || Some(process.pid) == holder);
        let known_processes = began.map(|process| (process.pid, process.start_time)).collect();
        let sessions = holder.into_iter().chain([root]).collect();
        trees.states.insert(id, TreeState { root, holder, mark, sessions, known_processes });
        trees.snapshot = None;
        Ok((Self { id, root, violation: OnceLock::new() }, started))
    }

    /// Kills the command if it exceeds the cap, together with escaped processes; returns whether it did.
    pub(super) fn enforce_cap(&self, cap: ResourceCap) -> io::Result<bool> {
        let alive = {
            let mut trees = lock();
            let (mut alive, _) = trees.list_processes(self.id, Some(SNAPSHOT_AGE_MAX))?;
            let state = trees.states.get(&self.id);
            alive
                .retain(|process| !process.has_ended && !state.is_some_and(|state| state.is_namespace_helper(process)));
            alive
        };
        let pages: u64 = alive.iter().map(|process| process.resident_pages).sum();
        let violation = if alive.len() > cap.processes {
            format!("it had over {} processes", cap.processes)
        } else if pages.saturating_mul(rustix::param::page_size() as u64) > cap.memory_bytes {
            format!("its processes used over {} bytes of memory together", cap.memory_bytes)
        } else {
            return Ok(false);
        };
        // Stored before the kill, so that the end of the command is never seen without it.
        self.violation.get_or_init(|| violation);
        self.kill()?;
        Ok(true)
    }

    /// The limit for which the command was killed.
    pub(super) fn cap_violation(&self) -> Option<&str> {
        self.violation.get().map(String::as_str)
    }

    /// Kills every process, and returns those that remain: the kernel takes a moment to end a process.
    pub(super) fn kill(&self) -> io::Result<KillReport> {
        let mut trees = lock();
        let _raised = PriorityGuard::raise();
        let mut killed = BTreeSet::new();
        for _ in 0..KILL_ROUNDS_MAX {
            let (alive, reaped) = trees.list_processes(self.id, None)?;
            // A process group is killed at once, so that none of it can start another process in between.
            if alive
                .iter()
                .any(|process| process.group == self.root && !killed.contains(&(process.pid, process.start_time)))
            {
                send_kill(self.root, kill_process_group);
            }
            let before = killed.len();
            for process in alive.iter().filter(|process| !process.has_ended) {
                if killed.insert((process.pid, process.start_time)) {
                    send_kill(process.pid, kill_process);
                }
            }
            // List again at once while anything ends: during a pause, a process that this list missed would multiply.
            if killed.len() == before && reaped == 0 {
                return Ok(KillReport { processes: alive.len(), has_recent_exits: false });
            }
        }
        Ok(KillReport { processes: killed.len(), has_recent_exits: true })
    }
}

/// Raises the priority of this thread while it lives, where the system permits it. A fork bomb that shares the
/// processors evenly starts processes faster than they are found and killed. Where the system does not permit it, the
/// kernel also enforces the limit on processes, which it does not for a superuser.
struct PriorityGuard(Option<i32>);

impl PriorityGuard {
    fn raise() -> Self {
        let previous = rustix::process::getpriority_process(None).ok();
        Self(previous.filter(|_| rustix::process::setpriority_process(None, PRIORITY_HIGHEST).is_ok()))
    }
}

impl Drop for PriorityGuard {
    fn drop(&mut self) {
        if let Some(previous) = self.0
            && let Err(error) = rustix::process::setpriority_process(None, previous)
        {
            tracing::warn!(%error, "a thread keeps the priority at which it ended a command");
        }
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::error!(%error, root = self.root, "the processes of a command cannot be listed, and may be left");
        }
        lock().states.remove(&self.id);
    }
}

impl ProcessTrees {
    /// Lists the processes of a command and the escaped ones, without those that only wait for us to reap them; the
    /// second value counts the reaped ones.
    fn list_processes(&mut self, id: u64, age: Option<Duration>) -> io::Result<(Vec<Process>, usize)> {
        let all = self.take_snapshot(age)?;
        let session = procfs::read_session(own_pid()).unwrap_or_default();
        let mut ownership = assign_owners(&mut self.states, &all, own_pid(), session, &read_mark);
        let roots: BTreeSet<i32> =
            self.states.values().flat_map(|state| state.holder.into_iter().chain([state.root])).collect();
        let is_finished = |process: &Process| process.has_ended && process.parent == own_pid();
        let mut reaped = 0;
        let members =
            ownership.members.iter().flat_map(|(of, all)| all.iter().map(move |process| (*of == id, process)));
        for (ours, process) in members.chain(ownership.escaped.iter().map(|process| (true, process))) {
            // Orphans are reaped here; the root of a command and its holder are reaped by their starter.
            if is_finished(process) && !roots.contains(&process.pid) && reap(process.pid) && ours {
                reaped += 1;
            }
        }
        let mut processes = ownership.members.remove(&id).unwrap_or_default();
        processes.append(&mut ownership.escaped);
        processes.retain(|process| !is_finished(process));
        Ok((processes, reaped))
    }

    fn take_snapshot(&mut self, age: Option<Duration>) -> io::Result<Arc<[Process]>> {
        if let (Some((at, all)), Some(age)) = (&self.snapshot, age)
            && at.elapsed() < age
        {
            return Ok(all.clone());
        }
        let all: Arc<[Process]> = procfs::list_descendants(own_pid())?.into();
        self.snapshot = Some((Instant::now(), all.clone()));
        Ok(all)
    }
}

/// Assigns each process to its command, and remembers it. Parents come before their children.
fn assign_owners(
    states: &mut BTreeMap<u64, TreeState>,
    all: &[Process],
    own_pid: i32,
    session: i32,
    read_mark: &dyn Fn(i32) -> Option<String>,
) -> Ownership {
    let mut owners: BTreeMap<i32, u64> = BTreeMap::new();
    for process in all {
        let is_known = |state: &TreeState| {
            state.sessions.contains(&process.session)
                || state.known_processes.contains(&(process.pid, process.start_time))
        };
        let is_orphan = process.parent == own_pid && process.session != session;
        let owner = states.iter().find(|(_, state)| is_known(state)).or_else(|| {
            // A mark is read only where nothing else decides: the kernel lets the reader wait until the process has
            // executed its program, which gives a fork bomb time to escape.
            let only = states.iter().next().filter(|_| states.len() == 1);
            let marked = || read_mark(process.pid).and_then(|mark| states.iter().find(|(_, state)| state.mark == mark));
            is_orphan.then(|| only.or_else(marked)).flatten()
        });
        owners.extend(owner.map(|(id, _)| (process.pid, *id)));
    }
    loop {
        let owned = all.iter().filter_map(|process| Some((process.session, *owners.get(&process.pid)?)));
        let sessions: BTreeMap<i32, u64> = owned.filter(|(at, _)| *at != session).collect();
        let before = owners.len();
        for process in all {
            let inherited_owner = owners.get(&process.parent).or_else(|| sessions.get(&process.session)).copied();
            if let Some(owner) = inherited_owner {
                owners.entry(process.pid).or_insert(owner);
            }
        }
        if owners.len() == before {
            break;
        }
    }
    let mut ownership = Ownership::default();
    let mut escaped = BTreeSet::new();
    for process in all {
        let has_escaped =
            (process.parent == own_pid && process.session != session) || escaped.contains(&process.parent);
        match owners.get(&process.pid) {
            Some(owner) => ownership.members.entry(*owner).or_default().push(*process),
            None if has_escaped => {
                escaped.insert(process.pid);
                ownership.escaped.push(*process);
            }
            None => {}
        }
    }
    for (id, state) in states.iter_mut() {
        let members = ownership.members.get(id).map(Vec::as_slice).unwrap_or_default();
        state.known_processes = members.iter().map(|process| (process.pid, process.start_time)).collect();
        state.sessions = members.iter().map(|process| process.session).filter(|at| *at != session).collect();
        state.sessions.extend(state.holder.into_iter().chain([state.root]));
    }
    ownership
}

fn lock() -> MutexGuard<'static, ProcessTrees> {
    PROCESS_TREES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

fn send_kill(pid: i32, kill: fn(Pid, Signal) -> rustix::io::Result<()>) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    if let Err(error) = kill(pid, Signal::KILL)
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(pid = pid.as_raw_nonzero().get(), %error, "a process of a command cannot be killed");
    }
}

/// Reaps a child; returns whether there was one.
fn reap(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return false };
    match waitpid(Some(pid), WaitOptions::NOHANG) {
        Ok(reaped) => reaped.is_some(),
        Err(error) => {
            tracing::debug!(%error, "an orphan was reaped by somebody else");
            false
        }
    }
}

/// Reads the command that the environment of a process names; `None` where it has no mark, or has cleared it.
fn read_mark(pid: i32) -> Option<String> {
    use std::io::Read;
    let file = std::fs::File::open(format!("/proc/{pid}/environ")).ok()?;
    let mut bytes = Vec::new();
    file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let mark = bytes
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(MARK_VARIABLE.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(mark.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN_PID: i32 = 1;
    const OWN_SESSION: i32 = 1;

    fn process(pid: i32, parent: i32, session: i32) -> Process {
        Process { pid, parent, group: session, session, start_time: 7, resident_pages: 1, has_ended: false }
    }

    fn state(root: i32) -> TreeState {
        TreeState {
            root,
            holder: None,
            mark: format!("m{root}"),
            sessions: BTreeSet::from([root]),
            known_processes: BTreeSet::from([(root, 7)]),
        }
    }

    fn pids(processes: &[Process]) -> Vec<i32> {
        processes.iter().map(|process| process.pid).collect()
    }

    #[test]
    fn process_in_another_session_is_assigned_to_its_command() {
        let mut all = BTreeMap::from([(1, state(10)), (2, state(20))]);
        let look = |all: &mut BTreeMap<u64, TreeState>, processes: &[Process]| {
            let marks = |pid| (pid == 16).then(|| "m10".to_owned());
            let ownership = assign_owners(all, processes, OWN_PID, OWN_SESSION, &marks);
            let of = |id: u64| ownership.members.get(&id).map(|members| pids(members)).unwrap_or_default();
            (of(1), of(2), pids(&ownership.escaped))
        };
        let first = [
            // An MCP server, its child, and the child of that in a session of its own.
            process(5, OWN_PID, OWN_SESSION),
            process(6, 5, OWN_SESSION),
            process(7, 6, 7),
            // A command that has not made its session yet.
            process(10, OWN_PID, OWN_SESSION),
            process(20, OWN_PID, 20),
            // A process that left the session of its command, with a child.
            process(21, 20, 21),
            process(22, 21, 21),
            process(23, 22, 23),
        ];
        assert_eq!(look(&mut all, &first), (vec![10], vec![20, 21, 22, 23], vec![]));
        let second = [
            process(5, OWN_PID, OWN_SESSION),
            process(10, OWN_PID, 10),
            // Orphans: in the session of the first command; in a session that was seen; seen before and alone now.
            process(11, OWN_PID, 10),
            process(24, OWN_PID, 21),
            process(23, OWN_PID, 23),
            // An orphan in a session that was never seen, with the mark, and its descendants.
            process(16, OWN_PID, 16),
            process(17, 16, 17),
            process(18, OWN_PID, 17),
            // An orphan without a mark, and its child.
            process(30, OWN_PID, 30),
            process(31, 30, 31),
        ];
        assert_eq!(look(&mut all, &second), (vec![10, 11, 16, 17, 18], vec![24, 23], vec![30, 31]));
        // A reused PID is another process.
        let again = [process(10, OWN_PID, 10), Process { start_time: 8, ..process(23, OWN_PID, OWN_SESSION) }];
        assert_eq!(look(&mut all, &again), (vec![10], vec![], vec![]));
        assert_eq!(all[&2].sessions, BTreeSet::from([20]), "what is over is forgotten");
    }
}
