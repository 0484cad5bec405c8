//! Runs long checks on a few threads.

use std::io;
use std::sync::Arc;

use contract::ErrorCode;
use contract::Json;
use contract::limits::{VALIDATION_MAX, VALIDATIONS_MAX};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::schema::{ArgumentsError, Schema, on_large_stack, unchecked_error};

/// Checks large values on at most [`VALIDATIONS_MAX`] threads, each within [`VALIDATION_MAX`]. Clones share the
/// threads.
#[derive(Debug, Clone)]
pub struct Checker {
    /// A thread keeps its permit until it ends, not until the call does.
    threads: Arc<Semaphore>,
}

impl Default for Checker {
    fn default() -> Self {
        Self { threads: Arc::new(Semaphore::new(VALIDATIONS_MAX)) }
    }
}

impl Checker {
    /// Checks the arguments of a call.
    pub async fn check(&self, schema: Schema, arguments: &Json) -> Result<(), ArgumentsError> {
        let arguments = arguments.clone();
        self.run_on_thread(move || schema.check_arguments(&arguments)).await
    }

    /// Checks the structured result of a tool.
    pub async fn check_result(&self, schema: Schema, result: Value) -> Result<(), ArgumentsError> {
        let check = move || schema.check_value(&result, "results of the call");
        self.run_on_thread(move || on_large_stack(check).unwrap_or_else(|error| Err(unchecked_error(&error)))).await
    }

    async fn run_on_thread(
        &self,
        check: impl FnOnce() -> Result<(), ArgumentsError> + Send + 'static,
    ) -> Result<(), ArgumentsError> {
        let checked = async {
            let permit = self.threads.clone().acquire_owned().await;
            let check = move || {
                let result = check();
                drop(permit);
                result
            };
            let ended = tokio::task::spawn_blocking(check).await;
            ended.unwrap_or_else(|error| Err(unchecked_error(&io::Error::other(error.to_string()))))
        };
        timeout(VALIDATION_MAX, checked).await.unwrap_or_else(|_| {
            let seconds = VALIDATION_MAX.as_secs();
            let text = format!("checking against the tool's schema took over {seconds} s: it was given up");
            Err(ArgumentsError::new(ErrorCode::Overloaded, text))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::SMALL_BYTES_MAX;

    #[tokio::test(start_paused = true)]
    async fn check_without_a_free_thread_ends_with_an_error() {
        let schema = Schema::compile(&Json::parse(r#"{"type":"object"}"#).unwrap()).unwrap();
        let checker = Checker::default();
        let busy = checker.threads.clone().acquire_many_owned(u32::try_from(VALIDATIONS_MAX).unwrap()).await.unwrap();
        let large = Json::of(&json!({"a": "x".repeat(SMALL_BYTES_MAX)}));
        assert_eq!(schema.check_small(&large), None);
        let error = checker.check(schema.clone(), &large).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Overloaded);
        drop(busy);
        assert_eq!(checker.check(schema, &large).await, Ok(()));
    }
}
