//! Tasks that have a name, an owner and an end: the one place where tasks are spawned.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The tasks of one owner; clones are the same owner. Tasks end by watching [`Tasks::token`].
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    ending: CancellationToken,
    overdue: CancellationToken,
}

impl Tasks {
    /// An owner without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a task under a name. A panic ends this task alone and is logged.
    #[allow(clippy::disallowed_methods, reason = "here a task gets its name, its owner and its end")]
    pub fn spawn<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let overdue = self.overdue.clone();
        tokio::spawn(self.tracker.track_future(async move {
            tokio::select! {
                () = overdue.cancelled() => tracing::warn!(task = name, "did not end in time, cut off"),
                ended = AssertUnwindSafe(task).catch_unwind() => if ended.is_err() {
                    tracing::error!(task = name, "panicked");
                },
            }
        }));
    }

    /// As [`Tasks::spawn`], for a task that is dropped when the tasks must end.
    pub fn spawn_until_end<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let ending = self.token();
        self.spawn(name, async move {
            ending.run_until_cancelled(task).await;
        });
    }

    /// Cancelled when the tasks must end.
    pub fn token(&self) -> CancellationToken {
        self.ending.clone()
    }

    /// Number of running tasks.
    pub fn count(&self) -> usize {
        self.tracker.len()
    }

    /// Asks all tasks to end, waits for them, and cuts off those that are late. Returns whether none was.
    pub async fn end(&self, timeout: Duration) -> bool {
        self.ending.cancel();
        self.tracker.close();
        let in_time = tokio::time::timeout(timeout, self.tracker.wait()).await.is_ok();
        if !in_time {
            self.overdue.cancel();
            self.tracker.wait().await;
        }
        in_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn late_task_is_aborted_and_panic_ends_no_other_task() {
        let tasks = Tasks::new();
        tasks.spawn("panics", async { panic!("on purpose") });
        tasks.spawn("obeys", {
            let token = tasks.token();
            async move { token.cancelled().await }
        });
        assert!(tasks.end(Duration::from_secs(1)).await);

        let tasks = Tasks::new();
        tasks.spawn("stays", std::future::pending());
        assert!(!tasks.end(Duration::from_secs(1)).await);
        assert_eq!(tasks.count(), 0);
    }
}
