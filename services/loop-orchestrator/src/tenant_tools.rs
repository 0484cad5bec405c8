//! The tools that a tenant had at the last look. They rarely change, so for a moment they are believed without another
//! look. After that, a prompt is composed with them while the catalogue is read, and composed again if they have changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::TenantId;
use contract::tool::ToolSpec;
use tokio::time::Instant;

/// How old the tools and the prompt may be that a session begins with. A burst of sessions then reads them once.
pub(crate) const FRESH: Duration = Duration::from_millis(250);
/// Tenants whose tools are kept. A further one clears the cache first.
const TENANTS_MAX: usize = 256;
/// Bytes of all tools that are kept, as JSON. A list that would exceed this clears the cache first.
const BYTES_MAX: usize = 16 << 20;

/// Cache of the tools of tenants. Its blocking lock is held for a look-up only.
#[derive(Debug, Default)]
pub(crate) struct TenantTools(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_tenant: HashMap<TenantId, Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    tools: Arc<Vec<ToolSpec>>,
    bytes: usize,
    at: Instant,
}

impl TenantTools {
    pub(crate) fn get(&self, tenant: &TenantId) -> Option<Arc<Vec<ToolSpec>>> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.by_tenant.get(tenant).map(|entry| entry.tools.clone())
    }

    /// The tools that the tenant had at most [`FRESH`] ago.
    pub(crate) fn get_fresh(&self, tenant: &TenantId) -> Option<Arc<Vec<ToolSpec>>> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.by_tenant.get(tenant).filter(|entry| entry.at.elapsed() <= FRESH)?;
        Some(entry.tools.clone())
    }

    /// Notes that the known tools are still the same, as asked at `at`; returns them.
    pub(crate) fn confirm(&self, tenant: &TenantId, tools: &[ToolSpec], at: Instant) -> Option<Arc<Vec<ToolSpec>>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.by_tenant.get_mut(tenant).filter(|entry| **entry.tools == *tools)?;
        entry.at = at;
        Some(entry.tools.clone())
    }

    /// Keeps the tools that a tenant had at `at`. Larger lists than the whole cache are not kept.
    pub(crate) fn put(&self, tenant: &TenantId, tools: &Arc<Vec<ToolSpec>>, at: Instant) {
        let bytes = contract::Json::of(&**tools).get().len();
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = entries.by_tenant.remove(tenant) {
            entries.bytes -= before.bytes;
        }
        if bytes > BYTES_MAX {
            return;
        }
        if entries.by_tenant.len() >= TENANTS_MAX || entries.bytes + bytes > BYTES_MAX {
            *entries = Entries::default();
        }
        entries.bytes += bytes;
        entries.by_tenant.insert(tenant.clone(), Entry { tools: tools.clone(), bytes, at });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools(description: &str) -> Arc<Vec<ToolSpec>> {
        let tool = json!({"name": "read", "description": description, "parameters": {"type": "object"}});
        Arc::new(vec![serde_json::from_value(tool).unwrap()])
    }

    #[tokio::test(start_paused = true)]
    async fn tools_are_fresh_until_a_moment_after_the_last_look() {
        let (known, tenant) = (TenantTools::default(), TenantId::default());
        known.put(&tenant, &tools("first"), Instant::now());
        tokio::time::advance(FRESH).await;
        assert_eq!(known.get_fresh(&tenant), Some(tools("first")));
        assert_eq!(known.confirm(&tenant, &tools("second"), Instant::now()), None);
        assert_eq!(known.confirm(&tenant, &tools("first"), Instant::now()), Some(tools("first")));
        tokio::time::advance(FRESH).await;
        assert_eq!(known.get_fresh(&tenant), Some(tools("first")));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!((known.get_fresh(&tenant), known.get(&tenant)), (None, Some(tools("first"))));
    }

    #[tokio::test(start_paused = true)]
    async fn cache_keeps_the_latest_tools_within_its_limits() {
        let (known, now) = (TenantTools::default(), Instant::now());
        let tenant = |n: usize| TenantId::new(&format!("t{n}")).unwrap();
        for n in 0..TENANTS_MAX {
            known.put(&tenant(n), &tools("first"), now);
        }
        known.put(&tenant(0), &tools("second"), now);
        assert_eq!(known.get(&tenant(0)), Some(tools("second")));
        assert_eq!(known.get(&tenant(1)), Some(tools("first")), "a change keeps the others");

        known.put(&tenant(TENANTS_MAX), &tools("third"), now);
        assert_eq!((known.get(&tenant(0)), known.get(&tenant(TENANTS_MAX))), (None, Some(tools("third"))));

        let half = "x".repeat(BYTES_MAX / 2);
        known.put(&tenant(1), &tools(&half), now);
        known.put(&tenant(2), &tools(&half), now);
        assert_eq!((known.get(&tenant(1)), known.get(&tenant(2))), (None, Some(tools(&half))));
        known.put(&tenant(2), &tools(&half.repeat(2)), now);
        assert_eq!(known.get(&tenant(2)), None);
        assert_eq!(known.0.lock().unwrap().bytes, 0);
    }
}
