//! The processes of a command: those that it starts, however they try to get out of sight, and their end.
//!
//! A command has a session of its own. Whoever leaves it is found as a descendant, by the session that it makes, by having
//! been seen before, or by a mark in its environment; whoever's parents are gone becomes a child of this process, which is
//! a subreaper. A child in a foreign session that nothing of this accounts for escaped from some command, since nobody else
//! here starts sessions: it ends with the next command that ends.
//!
//! A command in a PID namespace cannot leave it. Killing the first process of the namespace ends all others, and the
//! kernel keeps that process in the list until they are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, waitpid};

use super::census::{self, Process};

/// The variable of the environment that says to which command a process belongs.
pub(super) const MARK: &str = "AILOOP_COMMAND";
/// Looks at the processes of one command in which new ones are still found and killed. A killed process starts no other
/// one, so that few are needed.
const ROUNDS_MAX: usize = 100;
/// The priority at which the processes of a command are killed, as `nice` counts.
const PRIORITY_HIGHEST: i32 = -20;
/// How old a list of processes may be, so that several commands share one look.
const LOOK_AGE_MAX: Duration = Duration::from_millis(20);
/// Bytes of an environment that are searched for the mark.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;

/// All commands of this process, since it is one subreaper for all of them. A lock, as a command that is dropped must end
/// at once.
static FAMILIES: Mutex<Families> = Mutex::new(Families { last: 0, kin: BTreeMap::new(), look: None });

struct Families {
    last: u64,
    kin: BTreeMap<u64, Kin>,
    look: Option<(Instant, Arc<[Process]>)>,
}

/// What is known of one command's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kin {
    root: i32,
    /// The process that holds the PID namespace of the command; its only child is the first process in there.
    holder: Option<i32>,
    mark: String,
    sessions: BTreeSet<i32>,
    seen: BTreeSet<(i32, u64)>,
}

impl Kin {
    /// Whether a process is not the command's, but one with which a PID namespace is held and entered.
    fn is_ours(&self, process: &Process) -> bool {
        self.holder.is_some_and(|holder| [holder, self.root].contains(&process.pid) || process.parent == holder)
    }
}

/// What was started for a command.
pub(super) trait Rooted {
    /// The process from which all of the command descend.
    fn root(&self) -> i32;
    /// The process that holds the command's PID namespace.
    fn holder(&self) -> Option<i32>;
}

/// Whose is whose.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sorted {
    members: BTreeMap<u64, Vec<Process>>,
    strays: Vec<Process>,
}

/// What a command may take at most, all its processes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) processes: usize,
    pub(super) memory_bytes: u64,
}

/// What is left of a command after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    /// Processes that are not gone yet.
    pub(super) processes: usize,
    /// Some ended just now. The kernel lists numbers first and what they are a moment later: who is seen ended may have
    /// started another one between the two, which this look cannot have seen.
    pub(super) restless: bool,
}

/// The processes of one command; dropping it kills them.
#[derive(Debug)]
pub(super) struct Family {
    id: u64,
    root: i32,
    /// Of what it took too much.
    over: OnceLock<String>,
}

impl Family {
    /// Makes this process the one to which orphans of commands come.
    pub(super) fn adopt() -> io::Result<()> {
        Ok(rustix::process::set_child_subreaper(Some(getpid()))?)
    }

    /// Starts a command, and the family of its processes. No other command is killed meanwhile: it would take the new
    /// processes, which nothing accounts for yet, for its own.
    pub(super) fn start<T: Rooted>(mark: String, start: impl FnOnce(&str) -> io::Result<T>) -> io::Result<(Self, T)> {
        let mut families = lock();
        let started = start(&mark)?;
        let (root, holder) = (started.root(), started.holder());
        families.last += 1;
        let id = families.last;
        let all = census::below(me()).unwrap_or_default();
        let began = all.iter().filter(|process| process.pid == root || Some(process.pid) == holder);
        let seen = began.map(|process| (process.pid, process.began)).collect();
        let sessions = holder.into_iter().chain([root]).collect();
        families.kin.insert(id, Kin { root, holder, mark, sessions, seen });
        families.look = None;
        Ok((Self { id, root, over: OnceLock::new() }, started))
    }

    /// Kills the command if it takes more than it may, those that escaped from any command included; returns whether it did.
    pub(super) fn check(&self, most: Most) -> io::Result<bool> {
        let living = {
            let mut families = lock();
            let (mut living, _) = families.mine(self.id, Some(LOOK_AGE_MAX))?;
            let kin = families.kin.get(&self.id);
            living.retain(|process| !process.ended && !kin.is_some_and(|kin| kin.is_ours(process)));
            living
        };
        let pages: u64 = living.iter().map(|process| process.resident_pages).sum();
        let over = if living.len() > most.processes {
            format!("it had over {} processes", most.processes)
        } else if pages.saturating_mul(rustix::param::page_size() as u64) > most.memory_bytes {
            format!("its processes used over {} bytes of memory together", most.memory_bytes)
        } else {
            return Ok(false);
        };
        // Before it can be seen to end.
        self.over.get_or_init(|| over);
        self.kill()?;
        Ok(true)
    }

    /// Of what it took too much, if it was killed for that.
    pub(super) fn over(&self) -> Option<&str> {
        self.over.get().map(String::as_str)
    }

    /// Kills every process, and returns what is left: the kernel takes a moment to end one.
    pub(super) fn kill(&self) -> io::Result<Left> {
        let mut families = lock();
        let _raised = Raised::now();
        let mut killed = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            let (living, reaped) = families.mine(self.id, None)?;
            // A group dies at once, without a moment in which one of it could start another one.
            if living
                .iter()
                .any(|process| process.group == self.root && !killed.contains(&(process.pid, process.began)))
            {
                end(self.root, kill_process_group);
            }
            let before = killed.len();
            for process in living.iter().filter(|process| !process.ended) {
                if killed.insert((process.pid, process.began)) {
                    end(process.pid, kill_process);
                }
            }
            // Another look follows at once while anything ends: in a pause, a process that this look missed would multiply.
            if killed.len() == before && reaped == 0 {
                return Ok(Left { processes: living.len(), restless: false });
            }
        }
        Ok(Left { processes: killed.len(), restless: true })
    }
}

/// Gives this thread the highest priority for as long as it lives, where the system permits it. A fork bomb that shares
/// the processors evenly starts processes faster than they are found and killed. Where the system does not permit it, it
/// also enforces the limit on processes, which it does not for a superuser.
struct Raised(Option<i32>);

impl Raised {
    fn now() -> Self {
        let usual = rustix::process::getpriority_process(None).ok();
        Self(usual.filter(|_| rustix::process::setpriority_process(None, PRIORITY_HIGHEST).is_ok()))
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        if let Some(usual) = self.0
            && let Err(error) = rustix::process::setpriority_process(None, usual)
        {
            tracing::warn!(%error, "a thread keeps the priority at which it ended a command");
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::error!(%error, root = self.root, "the processes of a command cannot be listed, and may be left");
        }
        lock().kin.remove(&self.id);
    }
}

impl Families {
    /// The processes of a command, and those that escaped, without those that only we keep from being gone; and how many of
    /// them are gone now.
    fn mine(&mut self, id: u64, age: Option<Duration>) -> io::Result<(Vec<Process>, usize)> {
        let all = self.look(age)?;
        let session = census::session_of(me()).unwrap_or_default();
        let mut sorted = sort(&mut self.kin, &all, me(), session, &mark_of);
        let roots: BTreeSet<i32> = self.kin.values().flat_map(|kin| kin.holder.into_iter().chain([kin.root])).collect();
        let over = |process: &Process| process.ended && process.parent == me();
        let mut reaped = 0;
        let members = sorted.members.iter().flat_map(|(of, all)| all.iter().map(move |process| (*of == id, process)));
        for (ours, process) in members.chain(sorted.strays.iter().map(|process| (true, process))) {
            // Orphans come to us to be reaped; the root of a command and its holder are reaped by whoever started them.
            if over(process) && !roots.contains(&process.pid) && reap(process.pid) && ours {
                reaped += 1;
            }
        }
        let mut mine = sorted.members.remove(&id).unwrap_or_default();
        mine.append(&mut sorted.strays);
        mine.retain(|process| !over(process));
        Ok((mine, reaped))
    }

    fn look(&mut self, age: Option<Duration>) -> io::Result<Arc<[Process]>> {
        if let (Some((at, all)), Some(age)) = (&self.look, age)
            && at.elapsed() < age
        {
            return Ok(all.clone());
        }
        let all: Arc<[Process]> = census::below(me())?.into();
        self.look = Some((Instant::now(), all.clone()));
        Ok(all)
    }
}

/// Finds out whose process each one is, and remembers it. Parents stand before their children.
fn sort(
    kin: &mut BTreeMap<u64, Kin>,
    all: &[Process],
    me: i32,
    session: i32,
    mark_of: &dyn Fn(i32) -> Option<String>,
) -> Sorted {
    let mut owners: BTreeMap<i32, u64> = BTreeMap::new();
    for process in all {
        let known =
            |kin: &Kin| kin.sessions.contains(&process.session) || kin.seen.contains(&(process.pid, process.began));
        let orphan = process.parent == me && process.session != session;
        let owner = kin.iter().find(|(_, kin)| known(kin)).or_else(|| {
            // A mark is only read where it decides: the kernel lets its reader wait until the process has begun its
            // program, which is long enough for a fork bomb to get away.
            let only = kin.iter().next().filter(|_| kin.len() == 1);
            let marked = || mark_of(process.pid).and_then(|mark| kin.iter().find(|(_, kin)| kin.mark == mark));
            orphan.then(|| only.or_else(marked)).flatten()
        });
        owners.extend(owner.map(|(id, _)| (process.pid, *id)));
    }
    loop {
        let owned = all.iter().filter_map(|process| Some((process.session, *owners.get(&process.pid)?)));
        let sessions: BTreeMap<i32, u64> = owned.filter(|(at, _)| *at != session).collect();
        let before = owners.len();
        for process in all {
            let heir = owners.get(&process.parent).or_else(|| sessions.get(&process.session)).copied();
            if let Some(owner) = heir {
                owners.entry(process.pid).or_insert(owner);
            }
        }
        if owners.len() == before {
            break;
        }
    }
    let mut sorted = Sorted::default();
    let mut strays = BTreeSet::new();
    for process in all {
        let escaped = (process.parent == me && process.session != session) || strays.contains(&process.parent);
        match owners.get(&process.pid) {
            Some(owner) => sorted.members.entry(*owner).or_default().push(*process),
            None if escaped => {
                strays.insert(process.pid);
                sorted.strays.push(*process);
            }
            None => {}
        }
    }
    for (id, kin) in kin.iter_mut() {
        let members = sorted.members.get(id).map(Vec::as_slice).unwrap_or_default();
        kin.seen = members.iter().map(|process| (process.pid, process.began)).collect();
        kin.sessions = members.iter().map(|process| process.session).filter(|at| *at != session).collect();
        kin.sessions.extend(kin.holder.into_iter().chain([kin.root]));
    }
    sorted
}

fn lock() -> MutexGuard<'static, Families> {
    FAMILIES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn me() -> i32 {
    getpid().as_raw_nonzero().get()
}

fn end(pid: i32, kill: fn(Pid, Signal) -> rustix::io::Result<()>) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    if let Err(error) = kill(pid, Signal::KILL)
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(pid = pid.as_raw_nonzero().get(), %error, "a process of a command cannot be killed");
    }
}

/// Whether it was there to be reaped.
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

/// The command that the environment of a process names; none where it has none, or has cleared it.
fn mark_of(pid: i32) -> Option<String> {
    use std::io::Read;
    let file = std::fs::File::open(format!("/proc/{pid}/environ")).ok()?;
    let mut bytes = Vec::new();
    file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let mark =
        bytes.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(mark.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: i32 = 1;
    const OURS: i32 = 1;

    fn process(pid: i32, parent: i32, session: i32) -> Process {
        Process { pid, parent, group: session, session, began: 7, resident_pages: 1, ended: false }
    }

    fn kin(root: i32) -> Kin {
        Kin {
            root,
            holder: None,
            mark: format!("m{root}"),
            sessions: BTreeSet::from([root]),
            seen: BTreeSet::from([(root, 7)]),
        }
    }

    fn pids(processes: &[Process]) -> Vec<i32> {
        processes.iter().map(|process| process.pid).collect()
    }

    #[test]
    fn nobody_gets_out_of_sight() {
        let mut all = BTreeMap::from([(1, kin(10)), (2, kin(20))]);
        let look = |all: &mut BTreeMap<u64, Kin>, processes: &[Process]| {
            let marks = |pid| (pid == 16).then(|| "m10".to_owned());
            let sorted = sort(all, processes, ME, OURS, &marks);
            let of = |id: u64| sorted.members.get(&id).map(|members| pids(members)).unwrap_or_default();
            (of(1), of(2), pids(&sorted.strays))
        };
        let first = [
            // A server of ours, its child, and what that did in a session of its own.
            process(5, ME, OURS),
            process(6, 5, OURS),
            process(7, 6, 7),
            // Not yet in its session.
            process(10, ME, OURS),
            process(20, ME, 20),
            // Left its session, with a child.
            process(21, 20, 21),
            process(22, 21, 21),
            process(23, 22, 23),
        ];
        assert_eq!(look(&mut all, &first), (vec![10], vec![20, 21, 22, 23], vec![]));
        let second = [
            process(5, ME, OURS),
            process(10, ME, 10),
            // Orphans: of the first session; of a session that was seen; seen itself, and alone now.
            process(11, ME, 10),
            process(24, ME, 21),
            process(23, ME, 23),
            // An orphan of a session that nobody saw, with the mark, and what it started.
            process(16, ME, 16),
            process(17, 16, 17),
            process(18, ME, 17),
            // And one without, with a child of its own.
            process(30, ME, 30),
            process(31, 30, 31),
        ];
        assert_eq!(look(&mut all, &second), (vec![10, 11, 16, 17, 18], vec![24, 23], vec![30, 31]));
        // A number that is used again is somebody else's.
        let again = [process(10, ME, 10), Process { began: 8, ..process(23, ME, OURS) }];
        assert_eq!(look(&mut all, &again), (vec![10], vec![], vec![]));
        assert_eq!(all[&2].sessions, BTreeSet::from([20]), "what is over is forgotten");
    }
}
