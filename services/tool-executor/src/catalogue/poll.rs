//! One poll of the catalogue: the descriptions of tools, and which of them are confirmed. Pure.
//!
//! Every NATS client receives `$SRV.INFO`, and could answer it in the name of any tool. Where NATS has users, only
//! those that may serve a tool receive `$SRV.INFO.<tool>`. So a new description counts only when the same comes from
//! the tool's own address.

use std::collections::BTreeMap;

use contract::tool::{ApprovalPolicy, EffectClass, ToolSpec};
use contract::{TenantId, ToolName};
use tokio::time::{Duration, Instant};

use crate::schemas::ToolKey;

/// Descriptions of one tool that are kept: more than replicas of different versions that run at the same time.
pub(super) const SPECS_PER_TOOL_MAX: usize = 16;

/// Time for which a confirmation counts: after that a description that comes only from elsewhere is no longer trusted.
const CONFIRMED_FOR: Duration = Duration::from_secs(30);

/// A description, and the tenant of the tool.
pub(super) type TenantTool = (TenantId, ToolSpec);

/// Descriptions that came from a tool's own address, and when.
#[derive(Debug, Default)]
pub(super) struct ConfirmedSpecs(BTreeMap<ToolKey, Vec<(ToolSpec, Instant)>>);

/// The answers of one poll.
#[derive(Debug)]
pub(super) struct CataloguePoll {
    now: Instant,
    /// Descriptions of this poll that came from the tool's own address now or lately.
    alive: BTreeMap<ToolKey, Vec<(ToolSpec, Instant)>>,
    /// Descriptions of this poll that did not come from there.
    unconfirmed: BTreeMap<ToolKey, Vec<ToolSpec>>,
}

impl CataloguePoll {
    pub(super) fn new(now: Instant) -> Self {
        Self { now, alive: BTreeMap::new(), unconfirmed: BTreeMap::new() }
    }

    /// Adds an answer to `$SRV.INFO`, which any client could have sent.
    pub(super) fn add_broadcast_reply(&mut self, confirmed: &ConfirmedSpecs, key: ToolKey, spec: ToolSpec) {
        let specs = confirmed.0.get(&key).and_then(|specs| specs.iter().find(|(known, _)| *known == spec));
        if let Some((_, at)) = specs.filter(|(_, at)| self.now.duration_since(*at) < CONFIRMED_FOR) {
            return push_unique(self.alive.entry(key).or_default(), spec, *at);
        }
        let specs = self.unconfirmed.entry(key).or_default();
        if specs.len() < SPECS_PER_TOOL_MAX && !specs.contains(&spec) {
            specs.push(spec);
        }
    }

    /// The tools to ask at their own address, with their descriptions that are not confirmed.
    pub(super) fn unconfirmed(&self) -> BTreeMap<ToolName, Vec<TenantTool>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((tenant, tool), specs) in &self.unconfirmed {
            let specs = specs.iter().map(|spec| (tenant.clone(), spec.clone()));
            all.entry(tool.clone()).or_default().extend(specs);
        }
        all
    }

    /// Adds an answer from a tool's own address.
    pub(super) fn confirm(&mut self, key: ToolKey, spec: ToolSpec) {
        if let Some(specs) = self.unconfirmed.get_mut(&key) {
            specs.retain(|other| *other != spec);
            if specs.is_empty() {
                self.unconfirmed.remove(&key);
            }
        }
        push_unique(self.alive.entry(key).or_default(), spec, self.now);
    }

    /// Merges the descriptions of each tool; the second value has the tools with descriptions that were not confirmed.
    /// Where replicas differ, the greatest version wins, so that two executors and two polls agree, and the most
    /// careful effect class and approval win, since a call may come to any replica.
    pub(super) fn finish(self, confirmed: &mut ConfirmedSpecs) -> (BTreeMap<ToolKey, ToolSpec>, Vec<ToolKey>) {
        let merged =
            |specs: &[(ToolSpec, Instant)]| merge_specs(&specs.iter().map(|(spec, _)| spec).collect::<Vec<_>>());
        let found = self.alive.iter().filter_map(|(key, specs)| Some((key.clone(), merged(specs)?))).collect();
        // A description that no replica sends any more must be confirmed again.
        confirmed.0 = self.alive;
        (found, self.unconfirmed.into_keys().collect())
    }
}

fn push_unique(specs: &mut Vec<(ToolSpec, Instant)>, spec: ToolSpec, at: Instant) {
    if specs.len() < SPECS_PER_TOOL_MAX && specs.iter().all(|(other, _)| *other != spec) {
        specs.push((spec, at));
    }
}

fn merge_specs(specs: &[&ToolSpec]) -> Option<ToolSpec> {
    let best = specs.iter().max_by(|one, other| version_rank(one).cmp(&version_rank(other)))?;
    let effect = specs.iter().map(|spec| spec.effect).max_by_key(|effect| effect_rank(*effect))?;
    let needs_approval = specs.iter().any(|spec| spec.approval == ApprovalPolicy::Always);
    let approval = if needs_approval { ApprovalPolicy::Always } else { best.approval };
    Some(ToolSpec { effect, approval, ..ToolSpec::clone(best) })
}

fn effect_rank(effect: EffectClass) -> u8 {
    match effect {
        EffectClass::Pure => 0,
        EffectClass::Idempotent => 1,
        EffectClass::Reconcilable => 2,
        EffectClass::AtMostOnce => 3,
    }
}

fn version_rank(spec: &ToolSpec) -> (Vec<u64>, &str, &str) {
    let numbers = spec.version.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect();
    (numbers, spec.description.as_str(), spec.parameters.get())
}

#[cfg(test)]
mod tests {
    use contract::Json;

    use super::*;

    fn key() -> ToolKey {
        (TenantId::default(), ToolName::new("act").unwrap())
    }

    fn spec(version: &str, effect: EffectClass, approval: ApprovalPolicy) -> ToolSpec {
        ToolSpec {
            name: key().1,
            description: format!("Version {version}."),
            parameters: Json::default(),
            effect,
            approval,
            timeout_ms: None,
            max_output: None,
            instructions: None,
            version: version.to_owned(),
        }
    }

    #[test]
    fn description_new_counts_only_from_the_tools_own_address() {
        let (mut confirmed, began) = (ConfirmedSpecs::default(), Instant::now());
        let real = spec("1.0.0", EffectClass::AtMostOnce, ApprovalPolicy::Always);
        let forged = spec("9.0.0", EffectClass::Pure, ApprovalPolicy::Never);
        for _ in 0..2 {
            let mut poll = CataloguePoll::new(began);
            poll.add_broadcast_reply(&confirmed, key(), real.clone());
            poll.add_broadcast_reply(&confirmed, key(), forged.clone());
            assert!(poll.unconfirmed()[&key().1].contains(&(key().0, forged.clone())));
            poll.confirm(key(), real.clone());
            assert_eq!(poll.finish(&mut confirmed), (BTreeMap::from([(key(), real.clone())]), vec![key()]));
        }
        // A confirmed description is not checked again for a while, unless the tool was away.
        let later = |seconds| CataloguePoll::new(began + Duration::from_secs(seconds));
        for (seconds, is_unconfirmed) in [(29, false), (30, true)] {
            let mut poll = later(seconds);
            poll.add_broadcast_reply(&confirmed, key(), real.clone());
            assert_eq!(!poll.unconfirmed().is_empty(), is_unconfirmed, "{seconds}");
            if is_unconfirmed {
                poll.confirm(key(), real.clone());
            }
            assert_eq!(poll.finish(&mut confirmed).0.len(), 1);
        }
        assert_eq!(later(31).finish(&mut confirmed), (BTreeMap::new(), Vec::new()));
        let mut poll = later(32);
        poll.add_broadcast_reply(&confirmed, key(), real.clone());
        assert_eq!(poll.unconfirmed(), BTreeMap::from([(key().1, vec![(key().0, real)])]));
    }

    #[test]
    fn replicas_that_differ_greatest_version_and_most_careful_class_win() {
        let mut poll = CataloguePoll::new(Instant::now());
        poll.confirm(key(), spec("1.9.0", EffectClass::Idempotent, ApprovalPolicy::Always));
        poll.confirm(key(), spec("1.10.0", EffectClass::Pure, ApprovalPolicy::Never));
        let (found, _) = poll.finish(&mut ConfirmedSpecs::default());
        let merged = &found[&key()];
        assert_eq!(merged.description, "Version 1.10.0.");
        assert_eq!((merged.effect, merged.approval), (EffectClass::Idempotent, ApprovalPolicy::Always));
    }

    #[test]
    fn descriptions_flooding_are_bounded() {
        let (mut poll, confirmed) = (CataloguePoll::new(Instant::now()), ConfirmedSpecs::default());
        for version in 0..100 {
            poll.add_broadcast_reply(
                &confirmed,
                key(),
                spec(&version.to_string(), EffectClass::Pure, ApprovalPolicy::Never),
            );
        }
        assert_eq!(poll.unconfirmed[&key()].len(), SPECS_PER_TOOL_MAX);
        let real = spec("1.0.0", EffectClass::AtMostOnce, ApprovalPolicy::Always);
        poll.confirm(key(), real.clone());
        assert_eq!(poll.finish(&mut ConfirmedSpecs::default()).0[&key()], real);
    }
}
