//! Values that are read from files, and read again when the files change, without a restart.
//!
//! The files are looked at every two seconds; nothing is subscribed to. Notifications of the kernel are lost on network
//! and overlay file systems, and a watch of a file follows it to where a `ConfigMap`'s exchanged link no longer points;
//! looking at some twenty files takes some 0.2 ms.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::contents::LOOK_EVERY;
use crate::health::Readiness;
use configuration::ConfigError;
use configuration::files::{Marks, Pass};

/// Pause until the next look at files that have just changed: they may be in the middle of being written.
const SETTLE_EVERY: Duration = Duration::from_millis(500);
/// Looks at files that never stand still, before they are read all the same.
const UNSETTLED_MAX: u32 = 20;
/// Readings in a row that are torn by a change, before the next look is waited for.
const PASSES_MAX: usize = 3;

/// Reads everything anew; what is in use now is given, so that parts of it may be kept.
type Read<T> = Box<dyn Fn(&Pass, Option<&T>) -> Result<T, ConfigError> + Send + Sync>;

/// The last good reading of a set of files.
pub struct Reload<T> {
    part: &'static str,
    read: Option<Read<T>>,
    /// A lock since it is held for the copy of a pointer only.
    current: RwLock<Arc<T>>,
    /// A lock so that two looks at once do not read twice.
    state: Mutex<State>,
    readiness: Readiness,
}

#[derive(Default)]
struct State {
    /// Marks of the last reading, also if it could not be used.
    tried: Marks,
    /// Marks of the reading that is in use.
    good: Marks,
    /// A change that may not be over, and how often it was looked at.
    unsettled: Option<(Marks, u32)>,
    broken: bool,
}

/// Result of a look at the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// Nothing changed since the last reading.
    Unchanged,
    /// A file changed while it was read.
    Unsettled,
    /// The files changed, and their new values are in use.
    Taken,
    /// The files changed but cannot be used, for the given reason; the last good reading stays in use.
    Broken(String),
}

impl<T: Send + Sync + 'static> Reload<T> {
    /// Reads for the first time; what cannot be used is an error. `part` names what is read in logs and metrics, and
    /// the warnings of `readiness` tell when it is broken later.
    pub fn start(
        part: &'static str,
        readiness: Readiness,
        read: impl Fn(&Pass, Option<&T>) -> Result<T, ConfigError> + Send + Sync + 'static,
    ) -> Result<Arc<Self>, ConfigError> {
        let pass = Pass::default();
        let first = read(&pass, None)?;
        let marks = pass.marks();
        let state = State { tried: marks.clone(), good: marks, ..State::default() };
        let current = RwLock::new(Arc::new(first));
        Ok(Arc::new(Self { part, read: Some(Box::new(read)), current, state: Mutex::new(state), readiness }))
    }

    /// Wraps a value that is in no file, and so never changes.
    pub fn fixed(part: &'static str, value: T) -> Arc<Self> {
        let (current, state) = (RwLock::new(Arc::new(value)), Mutex::default());
        Arc::new(Self { part, read: None, current, state, readiness: Readiness::new(part) })
    }

    /// Returns the value that is in use.
    pub fn get(&self) -> Arc<T> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks at the files, and takes a change at once.
    pub fn refresh(&self) -> Look {
        self.look(false)
    }

    /// As [`Reload::refresh`], but a change is taken only when the next look finds it the same: what is in the middle
    /// of being written is not read. A writer that pauses for longer than that should write elsewhere and rename.
    pub fn settle(&self) -> Look {
        self.look(true)
    }

    /// As [`Reload::refresh`], away from the tasks that must not wait for a disk.
    pub async fn fresh(self: &Arc<Self>) -> Arc<T> {
        let this = self.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || this.refresh()).await {
            tracing::error!(part = self.part, %error, "the configuration could not be looked at");
        }
        self.get()
    }

    /// Looks every two seconds, until the end.
    pub async fn follow(self: Arc<Self>, ending: CancellationToken) {
        let mut pause = LOOK_EVERY;
        if self.read.is_none() {
            return;
        }
        while ending.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            let this = self.clone();
            pause = match tokio::task::spawn_blocking(move || this.settle()).await {
                Ok(Look::Unsettled) => SETTLE_EVERY,
                Ok(Look::Unchanged | Look::Taken | Look::Broken(_)) => LOOK_EVERY,
                Err(error) => {
                    tracing::error!(part = self.part, %error, "the configuration could not be looked at");
                    LOOK_EVERY
                }
            };
        }
    }

    fn look(&self, patient: bool) -> Look {
        let Some(read) = &self.read else { return Look::Unchanged };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = state.tried.now();
        if now == state.tried {
            state.unsettled = None;
            return Look::Unchanged;
        }
        if patient && !state.has_settled(now) {
            return Look::Unsettled;
        }
        let current = self.get();
        let Some((marks, result)) = whole(read, &current) else { return Look::Unsettled };
        state.unsettled = None;
        state.tried = marks;
        let lost = state.tried.lost_since(&state.good).map(ConfigError::lost);
        match (result, lost) {
            (Ok(value), None) => self.take(state, value),
            (Err(error), _) | (Ok(_), Some(error)) => self.keep(state, &error),
        }
    }

    fn take(&self, mut state: MutexGuard<'_, State>, value: T) -> Look {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
        state.good = state.tried.clone();
        telemetry::metric::config_reloaded(self.part, true);
        if std::mem::take(&mut state.broken) {
            telemetry::metric::config_broken(self.part, -1);
            self.readiness.warn(None);
            tracing::info!(part = self.part, "the configuration is good again, and in use");
        } else {
            tracing::info!(part = self.part, "the configuration changed, and is in use");
        }
        Look::Taken
    }

    fn keep(&self, mut state: MutexGuard<'_, State>, error: &ConfigError) -> Look {
        telemetry::metric::config_reloaded(self.part, false);
        if !std::mem::replace(&mut state.broken, true) {
            telemetry::metric::config_broken(self.part, 1);
        }
        let warning = format!("{error}; the last good configuration stays in use");
        tracing::warn!(part = self.part, "{warning}");
        self.readiness.warn(Some(&warning));
        Look::Broken(warning)
    }
}

impl State {
    /// Whether the files look as they did at the last look; at some time it is enough of waiting.
    fn has_settled(&mut self, now: Marks) -> bool {
        let looks = match &self.unsettled {
            Some((before, _)) if *before == now => return true,
            Some((_, looks)) => looks + 1,
            None => 1,
        };
        self.unsettled = Some((now, looks));
        looks > UNSETTLED_MAX
    }
}

/// A reading during which nothing changed, so that all of it belongs together.
fn whole<T>(read: &Read<T>, current: &T) -> Option<(Marks, Result<T, ConfigError>)> {
    (0..PASSES_MAX).find_map(|_| {
        let pass = Pass::default();
        let result = read(&pass, Some(current));
        let marks = pass.marks();
        (marks.now() == marks).then_some((marks, result))
    })
}

impl<T> fmt::Debug for Reload<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload").field("part", &self.part).finish_non_exhaustive()
    }
}
