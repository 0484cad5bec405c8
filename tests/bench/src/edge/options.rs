//! Options of the measurement of the edge.

/// Options of the measurement of the edge.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct EdgeOptions {
    /// Watchers, spread over the sessions
    #[arg(long, default_value_t = Self::default().watchers)]
    pub(super) watchers: usize,
    /// Sessions that stream at the same time
    #[arg(long, default_value_t = Self::default().sessions)]
    pub(super) sessions: usize,
    /// Milliseconds between two chunks of a session
    #[arg(long, default_value_t = Self::default().pause_ms)]
    pub(super) pause_ms: u32,
    /// Chunks of each session
    #[arg(long, default_value_t = Self::default().chunks)]
    pub(super) chunks: u32,
    /// Further watchers that read 1 KB a second
    #[arg(long, default_value_t = Self::default().slow_readers)]
    pub(super) slow_readers: usize,
    /// Clients that disconnect at random
    #[arg(long, default_value_t = Self::default().dropping)]
    pub(super) dropping: usize,
    /// Chat completions by each path
    #[arg(long, default_value_t = Self::default().completions)]
    pub(super) completions: usize,
}

impl Default for EdgeOptions {
    fn default() -> Self {
        Self {
            watchers: 2_000,
            sessions: 50,
            pause_ms: 50,
            chunks: 200,
            slow_readers: 50,
            dropping: 1_000,
            completions: 1_000,
        }
    }
}
