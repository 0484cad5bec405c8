//! The tools that a tenant had at the last look. They rarely change, so for a moment they are believed without another
//! look. After that, a prompt is composed with them while the catalogue is read, and composed again if they have changed.

use std::sync::Arc;

use contract::TenantId;
use contract::tool::ToolSpec;
use tokio::time::Instant;

use crate::recent_values::RecentValues;

/// Tenants whose tools are kept.
const TENANTS_MAX: usize = 256;
/// Bytes of all tools that are kept, as JSON.
const BYTES_MAX: usize = 16 << 20;

/// Cache of the tools of tenants.
#[derive(Debug)]
pub(crate) struct TenantTools(RecentValues<TenantId, Arc<Vec<ToolSpec>>>);

impl Default for TenantTools {
    fn default() -> Self {
        Self(RecentValues::new(TENANTS_MAX, BYTES_MAX))
    }
}

impl TenantTools {
    pub(crate) fn get(&self, tenant: &TenantId) -> Option<Arc<Vec<ToolSpec>>> {
        self.0.get(tenant)
    }

    /// The tools that the tenant had a moment ago.
    pub(crate) fn get_fresh(&self, tenant: &TenantId) -> Option<Arc<Vec<ToolSpec>>> {
        self.0.get_fresh(tenant)
    }

    /// Notes that the known tools are still the same, as asked at `at`; returns them.
    pub(crate) fn confirm(&self, tenant: &TenantId, tools: &[ToolSpec], at: Instant) -> Option<Arc<Vec<ToolSpec>>> {
        self.0.confirm(tenant, at, |known| **known == *tools)
    }

    /// Keeps the tools that a tenant had at `at`.
    pub(crate) fn put(&self, tenant: &TenantId, tools: &Arc<Vec<ToolSpec>>, at: Instant) {
        let bytes = contract::Json::of(&**tools).get().len();
        self.0.put(tenant.clone(), tools.clone(), bytes, at);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::recent_values::FRESH;

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
        assert_eq!(known.0.bytes(), 0);
    }
}
