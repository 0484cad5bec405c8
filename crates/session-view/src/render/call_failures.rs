//! Counts the failures of a model call. A gateway tries a call several times, and then the loop makes it again: people
//! read one number for both.

use contract::event::ErrorEvent;

/// The failures so far of the model call that failed last.
#[derive(Debug, Default)]
pub struct CallFailures {
    /// The call, as notices name it.
    during: String,
    count: u32,
}

impl CallFailures {
    /// Counts a notice, and returns its text with the number.
    pub(crate) fn record(&mut self, notice: &ErrorEvent) -> String {
        if self.during != notice.during {
            *self = Self { during: notice.during.clone(), count: 0 };
        }
        self.count += 1;
        format!("failure {}: {}", self.count, notice.message)
    }
}
