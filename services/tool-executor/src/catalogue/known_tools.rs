//! The tools of the catalogue, and the changes that must be written. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::limits::CATALOGUE_AGE_MAX;
use contract::tool::ToolSpec;
use contract::{TenantId, ToolName};
use tokio::time::Instant;

use crate::schemas::ToolKey;

/// Age at which an unchanged entry is written again: half its lifetime, so that one failed write loses nothing.
const REFRESH_AFTER: Duration = Duration::from_secs(CATALOGUE_AGE_MAX.as_secs() / 2);

/// Longest silence of a tool before it counts as gone. A client whose server died or froze notices after two pings of 5
/// s and reconnects; sessions that begin meanwhile still know its tools.
const SILENCE_MAX: Duration = Duration::from_secs(12);

#[derive(Debug, Default)]
pub(crate) struct KnownTools(BTreeMap<ToolKey, KnownTool>);

#[derive(Debug)]
struct KnownTool {
    spec: ToolSpec,
    /// `None`: not written yet, or written by another process.
    written: Option<Instant>,
    /// Time of the last answer, or of the first poll without one.
    last_answer_at: Option<Instant>,
}

/// A change that must be written to the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CatalogueChange {
    /// A tool is new or changed, or its entry must be refreshed.
    Put(TenantId, ToolSpec),
    Delete(TenantId, ToolName),
}

impl KnownTools {
    /// Adopts an entry that another executor, or an earlier process of this one, wrote: it is deleted too when no
    /// replica answers.
    pub(crate) fn adopt(&mut self, tenant: TenantId, spec: ToolSpec) {
        let key = (tenant, spec.name.clone());
        self.0.entry(key).or_insert(KnownTool { spec, written: None, last_answer_at: None });
    }

    pub(crate) fn has_name(&self, tool: &ToolName) -> bool {
        self.0.keys().any(|(_, name)| name == tool)
    }

    /// The tools of that name of all tenants.
    pub(crate) fn find(&self, tool: &ToolName) -> impl Iterator<Item = (ToolKey, ToolSpec)> {
        self.0.iter().filter(move |((_, name), _)| name == tool).map(|(key, entry)| (key.clone(), entry.spec.clone()))
    }

    /// Compares the answers of a poll with the known tools. `last_loss` is when this process started or last lost its
    /// connection: silence before that does not count.
    pub(crate) fn observe(
        &mut self,
        found: &BTreeMap<ToolKey, ToolSpec>,
        now: Instant,
        last_loss: Instant,
    ) -> Vec<CatalogueChange> {
        let mut changes = Vec::new();
        for (key, spec) in found {
            let new_entry = || KnownTool { spec: spec.clone(), written: None, last_answer_at: None };
            let entry = self.0.entry(key.clone()).or_insert_with(new_entry);
            entry.last_answer_at = Some(now);
            let is_fresh = entry.written.is_some_and(|at| now.duration_since(at) < REFRESH_AFTER);
            if entry.spec != *spec || !is_fresh {
                entry.spec = spec.clone();
                changes.push(CatalogueChange::Put(key.0.clone(), spec.clone()));
            }
        }
        for (key, entry) in self.0.iter_mut().filter(|(key, _)| !found.contains_key(key)) {
            let last_answer_at = *entry.last_answer_at.get_or_insert(now);
            if now.duration_since(last_answer_at.max(last_loss)) > SILENCE_MAX {
                changes.push(CatalogueChange::Delete(key.0.clone(), key.1.clone()));
            }
        }
        changes
    }

    /// Records a change that was written; one that was not is returned by the next [`KnownTools::observe`] again.
    pub(crate) fn record_change(&mut self, change: &CatalogueChange, now: Instant) {
        match change {
            CatalogueChange::Put(tenant, spec) => {
                if let Some(entry) = self.0.get_mut(&(tenant.clone(), spec.name.clone())) {
                    entry.written = Some(now);
                }
            }
            CatalogueChange::Delete(tenant, tool) => {
                self.0.remove(&(tenant.clone(), tool.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::Json;

    fn spec(name: &str, version: &str) -> ToolSpec {
        ToolSpec {
            name: ToolName::new(name).unwrap(),
            description: String::new(),
            parameters: Json::default(),
            effect: contract::tool::EffectClass::Pure,
            approval: contract::tool::ApprovalPolicy::Never,
            timeout_ms: None,
            max_output: None,
            instructions: None,
            version: version.to_owned(),
        }
    }

    fn found(specs: &[ToolSpec]) -> BTreeMap<ToolKey, ToolSpec> {
        specs.iter().map(|spec| ((TenantId::default(), spec.name.clone()), spec.clone())).collect()
    }

    /// Observes and records every change; returns names, with `-` before deleted ones.
    fn poll(known_tools: &mut KnownTools, specs: &[ToolSpec], now: Instant) -> Vec<String> {
        let changes = known_tools.observe(&found(specs), now, long_ago(now));
        for change in &changes {
            known_tools.record_change(change, now);
        }
        let name = |change: &CatalogueChange| match change {
            CatalogueChange::Put(_, spec) => format!("{}@{}", spec.name, spec.version),
            CatalogueChange::Delete(_, tool) => format!("-{tool}"),
        };
        changes.iter().map(name).collect()
    }

    #[test]
    fn entry_is_written_when_new_changed_or_old_and_deleted_when_silent() {
        let (mut known_tools, start) = (KnownTools::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(poll(&mut known_tools, &[spec("a", "1")], at(0)), ["a@1"]);
        assert!(poll(&mut known_tools, &[spec("a", "1")], at(1)).is_empty());
        assert_eq!(poll(&mut known_tools, &[spec("a", "2")], at(2)), ["a@2"]);
        assert!(poll(&mut known_tools, &[spec("a", "2")], at(16)).is_empty());
        assert_eq!(poll(&mut known_tools, &[spec("a", "2")], at(17)), ["a@2"]);
        assert!(poll(&mut known_tools, &[], at(18)).is_empty());
        assert!(poll(&mut known_tools, &[], at(29)).is_empty());
        assert!(poll(&mut known_tools, &[spec("a", "2")], at(29)).is_empty());
        assert!(poll(&mut known_tools, &[], at(41)).is_empty());
        assert_eq!(poll(&mut known_tools, &[], at(42)), ["-a"]);
        assert!(known_tools.0.is_empty());
    }

    fn long_ago(now: Instant) -> Instant {
        now.checked_sub(Duration::from_mins(1)).unwrap()
    }

    #[test]
    fn poll_missed_before_connection_loss_tool_stays_known() {
        let (mut known_tools, start) = (KnownTools::default(), Instant::now());
        poll(&mut known_tools, &[spec("a", "1")], start);
        let at = |seconds| start + Duration::from_secs(seconds);
        let silent = |known_tools: &mut KnownTools, now| known_tools.observe(&found(&[]), now, at(10));
        assert!(silent(&mut known_tools, at(13)).is_empty());
        assert!(silent(&mut known_tools, at(22)).is_empty());
        let gone = CatalogueChange::Delete(TenantId::default(), ToolName::new("a").unwrap());
        assert_eq!(silent(&mut known_tools, at(23)), std::slice::from_ref(&gone));
        assert_eq!(silent(&mut known_tools, at(24)), [gone], "until it is made");
    }

    #[test]
    fn write_failed_is_retried_and_adopted_entry_is_deleted_too() {
        let (mut known_tools, now) = (KnownTools::default(), Instant::now());
        known_tools.adopt(TenantId::default(), spec("old", "1"));
        assert_eq!(known_tools.observe(&found(&[spec("a", "1")]), now, long_ago(now)).len(), 1);
        assert_eq!(poll(&mut known_tools, &[spec("a", "1")], now), ["a@1"]);
        assert_eq!(poll(&mut known_tools, &[spec("a", "1")], now + Duration::from_secs(13)), ["-old"]);
    }
}
