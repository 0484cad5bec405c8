//! The schemas of the tools that are known: arguments are checked against them before a tool is called.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use contract::{Json, TenantId, ToolName};
use tokio::sync::watch;
use tokio::time::timeout;
use tool_schema::{ArgumentsError, Checker, Schema};

/// A tool of a tenant.
pub(crate) type ToolKey = (TenantId, ToolName);

/// Compiled schemas by tool; shared by the catalogue, which adds them, and the calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schemas {
    known: Arc<RwLock<HashMap<ToolKey, Schema>>>,
    /// Tools that answered a poll of this process.
    answered: Arc<RwLock<HashSet<ToolKey>>>,
    /// Whether this process has polled.
    polled: watch::Sender<bool>,
    checker: Checker,
}

impl Schemas {
    /// Compiles the schemas of these tools that are not known yet; returns the reasons of those that cannot be used.
    pub(crate) async fn learn(&self, tools: Vec<(ToolKey, Json)>) -> Vec<(ToolKey, String)> {
        let is_known = |key: &ToolKey, schema: &Json| self.get(key).is_some_and(|known| known.source() == schema);
        let new: Vec<_> = tools.into_iter().filter(|(key, schema)| !is_known(key, schema)).collect();
        if new.is_empty() {
            return Vec::new();
        }
        let compiled = tokio::task::spawn_blocking(move || {
            new.into_iter().map(|(key, schema)| (key, Schema::compile(&schema))).collect::<Vec<_>>()
        });
        let mut refused = Vec::new();
        for (key, compiled) in compiled.await.unwrap_or_default() {
            match compiled {
                Ok(schema) => {
                    self.known.write().unwrap_or_else(PoisonError::into_inner).insert(key, schema);
                }
                Err(reason) => refused.push((key, reason)),
            }
        }
        refused
    }

    /// Whether the tool is in the catalogue now.
    pub(crate) fn has_tool(&self, key: &ToolKey) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }

    /// Records a poll and the tools that answered it.
    pub(crate) fn record_poll<'a>(&self, answered: impl Iterator<Item = &'a ToolKey>) {
        self.answered.write().unwrap_or_else(PoisonError::into_inner).extend(answered.cloned());
        self.polled.send_replace(true);
    }

    /// Whether the tool answered a poll of this process, and is not gone since.
    pub(crate) fn has_answered(&self, key: &ToolKey) -> bool {
        self.answered.read().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    /// Waits for the first poll of the catalogue, at most this long.
    pub(crate) async fn wait_for_catalogue(&self, max: Duration) {
        let mut polled = self.polled.subscribe();
        if !*polled.borrow_and_update() {
            let _late = timeout(max, polled.wait_for(|polled| *polled)).await.is_err();
        }
    }

    /// Removes a tool and its schema.
    pub(crate) fn remove(&self, key: &ToolKey) {
        self.answered.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Checks small arguments at once; `None` for large ones: use [`Schemas::check`] for them. A tool without a known
    /// schema checks its arguments itself.
    pub(crate) fn check_small(&self, key: &ToolKey, arguments: &Json) -> Option<Result<(), ArgumentsError>> {
        match self.get(key) {
            Some(schema) => schema.check_small(arguments),
            None => Some(Schema::check_object(arguments)),
        }
    }

    /// Checks arguments on a thread of their own.
    pub(crate) async fn check(&self, key: &ToolKey, arguments: &Json) -> Result<(), ArgumentsError> {
        match self.get(key) {
            Some(schema) => self.checker.check(schema, arguments).await,
            None => Schema::check_object(arguments),
        }
    }

    // A lock is enough, since it is held for one access to the map only.
    fn get(&self, key: &ToolKey) -> Option<Schema> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tool_forgotten_arguments_are_no_longer_checked() {
        let (schemas, key) = (Schemas::default(), (TenantId::default(), ToolName::new("act").unwrap()));
        let schema = Json::parse(r#"{"type":"object","required":["text"]}"#).unwrap();
        assert!(schemas.learn(vec![(key.clone(), schema)]).await.is_empty());
        let arguments = Json::parse("{}").unwrap();
        assert!(
            schemas.check(&key, &arguments).await.is_err() && schemas.check_small(&key, &arguments).unwrap().is_err()
        );
        schemas.remove(&key);
        assert_eq!(schemas.check(&key, &arguments).await, Ok(()));
    }
}
