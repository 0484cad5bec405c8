//! What tools say of themselves, and whether it was they who said it. Pure.
//!
//! Everybody hears `$SRV.INFO`, and could answer it in the name of any tool. `$SRV.INFO.<tool>` is heard, where NATS has
//! users, by those alone who may serve that tool: what is new must be said there too, before it counts.

use std::collections::BTreeMap;

use contract::tool::{Approval, EffectClass, ToolSpec};
use contract::{TenantId, ToolName};

use super::known::Key;

/// Descriptions of one tool that are remembered: as many as are replaced at the same time, amply.
pub(super) const SAID_MAX: usize = 16;

/// What was said at a tool's own address, in earlier polls.
#[derive(Debug, Default)]
pub(super) struct Confirmed(BTreeMap<Key, Vec<ToolSpec>>);

/// What is heard in one poll.
#[derive(Debug, Default)]
pub(super) struct Poll {
    /// Said now, and at the tool's own address now or earlier.
    alive: BTreeMap<Key, Vec<ToolSpec>>,
    /// Said now, and not yet there.
    unsure: BTreeMap<Key, Vec<ToolSpec>>,
}

impl Poll {
    /// Takes in an answer to the question that everybody hears.
    pub(super) fn hear(&mut self, confirmed: &Confirmed, key: Key, spec: ToolSpec) {
        let known = confirmed.0.get(&key).is_some_and(|said| said.contains(&spec));
        let said = if known { &mut self.alive } else { &mut self.unsure };
        add(said.entry(key).or_default(), spec);
    }

    /// The tools to ask at their own address, and what was said of them elsewhere.
    pub(super) fn unsure(&self) -> BTreeMap<ToolName, Vec<(TenantId, ToolSpec)>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((tenant, tool), said) in &self.unsure {
            let said = said.iter().map(|spec| (tenant.clone(), spec.clone()));
            all.entry(tool.clone()).or_default().extend(said);
        }
        all
    }

    /// Takes in an answer that came from a tool's own address.
    pub(super) fn confirm(&mut self, key: Key, spec: ToolSpec) {
        if let Some(said) = self.unsure.get_mut(&key) {
            said.retain(|other| *other != spec);
            if said.is_empty() {
                self.unsure.remove(&key);
            }
        }
        add(self.alive.entry(key).or_default(), spec);
    }

    /// What each tool is, and whose descriptions do not count. Of replicas that differ the greatest version counts, so that two
    /// executors and two polls agree, but none of them gets less care than it asks for: a call may come to each.
    pub(super) fn end(self, confirmed: &mut Confirmed) -> (BTreeMap<Key, ToolSpec>, Vec<Key>) {
        let found = self.alive.iter().filter_map(|(key, said)| Some((key.clone(), counting(said)?))).collect();
        // What nobody says any more has to be confirmed again.
        confirmed.0 = self.alive;
        (found, self.unsure.into_keys().collect())
    }
}

fn add(said: &mut Vec<ToolSpec>, spec: ToolSpec) {
    if said.len() < SAID_MAX && !said.contains(&spec) {
        said.push(spec);
    }
}

fn counting(said: &[ToolSpec]) -> Option<ToolSpec> {
    let best = said.iter().max_by(|one, other| rank(one).cmp(&rank(other)))?;
    let effect = said.iter().map(|spec| spec.effect).max_by_key(|effect| care(*effect))?;
    let asks = said.iter().any(|spec| spec.approval == Approval::Always);
    let approval = if asks { Approval::Always } else { best.approval };
    Some(ToolSpec { effect, approval, ..best.clone() })
}

fn care(effect: EffectClass) -> u8 {
    match effect {
        EffectClass::Pure => 0,
        EffectClass::Idempotent => 1,
        EffectClass::AtMostOnce => 2,
    }
}

fn rank(spec: &ToolSpec) -> (Vec<u64>, &str, &str) {
    let numbers = spec.version.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect();
    (numbers, spec.description.as_str(), spec.parameters.get())
}

#[cfg(test)]
mod tests {
    use contract::Json;

    use super::*;

    fn key() -> Key {
        (TenantId::default(), ToolName::new("act").unwrap())
    }

    fn spec(version: &str, effect: EffectClass, approval: Approval) -> ToolSpec {
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
    fn what_is_new_must_be_said_at_the_tools_own_address() {
        let mut confirmed = Confirmed::default();
        let real = spec("1.0.0", EffectClass::AtMostOnce, Approval::Always);
        let forged = spec("9.0.0", EffectClass::Pure, Approval::Never);
        for _ in 0..2 {
            let mut poll = Poll::default();
            poll.hear(&confirmed, key(), real.clone());
            poll.hear(&confirmed, key(), forged.clone());
            assert!(poll.unsure()[&key().1].contains(&(key().0, forged.clone())));
            poll.confirm(key(), real.clone());
            assert_eq!(poll.end(&mut confirmed), (BTreeMap::from([(key(), real.clone())]), vec![key()]));
        }
        // Once confirmed it is not asked again, until it was away.
        let mut poll = Poll::default();
        poll.hear(&confirmed, key(), real.clone());
        assert!(poll.unsure().is_empty());
        assert_eq!(poll.end(&mut confirmed).0.len(), 1);
        assert_eq!(Poll::default().end(&mut confirmed), (BTreeMap::new(), Vec::new()));
        let mut poll = Poll::default();
        poll.hear(&confirmed, key(), real.clone());
        assert_eq!(poll.unsure(), BTreeMap::from([(key().1, vec![(key().0, real)])]));
    }

    #[test]
    fn the_greatest_version_counts_and_the_greatest_care() {
        let mut poll = Poll::default();
        poll.confirm(key(), spec("1.9.0", EffectClass::Idempotent, Approval::Always));
        poll.confirm(key(), spec("1.10.0", EffectClass::Pure, Approval::Never));
        let (found, _) = poll.end(&mut Confirmed::default());
        let counts = &found[&key()];
        assert_eq!(counts.description, "Version 1.10.0.");
        assert_eq!((counts.effect, counts.approval), (EffectClass::Idempotent, Approval::Always));
    }

    #[test]
    fn who_floods_fills_no_memory() {
        let (mut poll, confirmed) = (Poll::default(), Confirmed::default());
        for version in 0..100 {
            poll.hear(&confirmed, key(), spec(&version.to_string(), EffectClass::Pure, Approval::Never));
        }
        assert_eq!(poll.unsure[&key()].len(), SAID_MAX);
        let real = spec("1.0.0", EffectClass::AtMostOnce, Approval::Always);
        poll.confirm(key(), real.clone());
        assert_eq!(poll.end(&mut Confirmed::default()).0[&key()], real);
    }
}
