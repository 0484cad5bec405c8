//! What tools say of themselves, and whether it was they who said it. Pure.
//!
//! Everybody hears `$SRV.INFO`, and could answer it in the name of any tool. `$SRV.INFO.<tool>` is heard, where NATS has
//! users, by those alone who may serve that tool: what is new must be said there too, before it counts.

use std::collections::BTreeMap;

use contract::tool::{Approval, EffectClass, ToolSpec};
use contract::{TenantId, ToolName};
use tokio::time::{Duration, Instant};

use super::known::Key;

/// Descriptions of one tool that are remembered: as many as are replaced at the same time, amply.
pub(super) const SAID_MAX: usize = 16;

/// How long it counts that something was said at a tool's own address: by then whoever says it elsewhere only is found out.
const CONFIRMED_FOR: Duration = Duration::from_secs(30);

/// What is said of a tool of a tenant.
pub(super) type Said = (TenantId, ToolSpec);

/// What was said at a tool's own address, and when.
#[derive(Debug, Default)]
pub(super) struct Confirmed(BTreeMap<Key, Vec<(ToolSpec, Instant)>>);

/// What is heard in one poll.
#[derive(Debug)]
pub(super) struct Poll {
    now: Instant,
    /// Said now, and at the tool's own address now or lately.
    alive: BTreeMap<Key, Vec<(ToolSpec, Instant)>>,
    /// Said now, and not there.
    unsure: BTreeMap<Key, Vec<ToolSpec>>,
}

impl Poll {
    pub(super) fn new(now: Instant) -> Self {
        Self { now, alive: BTreeMap::new(), unsure: BTreeMap::new() }
    }

    /// Takes in an answer to the question that everybody hears.
    pub(super) fn hear(&mut self, confirmed: &Confirmed, key: Key, spec: ToolSpec) {
        let said = confirmed.0.get(&key).and_then(|said| said.iter().find(|(said, _)| *said == spec));
        if let Some((_, at)) = said.filter(|(_, at)| self.now.duration_since(*at) < CONFIRMED_FOR) {
            return add(self.alive.entry(key).or_default(), spec, *at);
        }
        let said = self.unsure.entry(key).or_default();
        if said.len() < SAID_MAX && !said.contains(&spec) {
            said.push(spec);
        }
    }

    /// The tools to ask at their own address, and what was said of them elsewhere.
    pub(super) fn unsure(&self) -> BTreeMap<ToolName, Vec<Said>> {
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
        add(self.alive.entry(key).or_default(), spec, self.now);
    }

    /// What each tool is, and whose descriptions do not count. Of replicas that differ the greatest version counts, so that two
    /// executors and two polls agree, but none of them gets less care than it asks for: a call may come to each.
    pub(super) fn end(self, confirmed: &mut Confirmed) -> (BTreeMap<Key, ToolSpec>, Vec<Key>) {
        let counts = |said: &[(ToolSpec, Instant)]| counting(&said.iter().map(|(spec, _)| spec).collect::<Vec<_>>());
        let found = self.alive.iter().filter_map(|(key, said)| Some((key.clone(), counts(said)?))).collect();
        // What nobody says any more has to be confirmed again.
        confirmed.0 = self.alive;
        (found, self.unsure.into_keys().collect())
    }
}

fn add(said: &mut Vec<(ToolSpec, Instant)>, spec: ToolSpec, at: Instant) {
    if said.len() < SAID_MAX && said.iter().all(|(other, _)| *other != spec) {
        said.push((spec, at));
    }
}

fn counting(said: &[&ToolSpec]) -> Option<ToolSpec> {
    let best = said.iter().max_by(|one, other| rank(one).cmp(&rank(other)))?;
    let effect = said.iter().map(|spec| spec.effect).max_by_key(|effect| care(*effect))?;
    let asks = said.iter().any(|spec| spec.approval == Approval::Always);
    let approval = if asks { Approval::Always } else { best.approval };
    Some(ToolSpec { effect, approval, ..ToolSpec::clone(best) })
}

fn care(effect: EffectClass) -> u8 {
    match effect {
        EffectClass::Pure => 0,
        EffectClass::Idempotent => 1,
        EffectClass::Reconcilable => 2,
        EffectClass::AtMostOnce => 3,
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
        let (mut confirmed, began) = (Confirmed::default(), Instant::now());
        let real = spec("1.0.0", EffectClass::AtMostOnce, Approval::Always);
        let forged = spec("9.0.0", EffectClass::Pure, Approval::Never);
        for _ in 0..2 {
            let mut poll = Poll::new(began);
            poll.hear(&confirmed, key(), real.clone());
            poll.hear(&confirmed, key(), forged.clone());
            assert!(poll.unsure()[&key().1].contains(&(key().0, forged.clone())));
            poll.confirm(key(), real.clone());
            assert_eq!(poll.end(&mut confirmed), (BTreeMap::from([(key(), real.clone())]), vec![key()]));
        }
        // Once confirmed it is not asked again for a while, unless it was away.
        let later = |seconds| Poll::new(began + Duration::from_secs(seconds));
        for (seconds, asked) in [(29, false), (30, true)] {
            let mut poll = later(seconds);
            poll.hear(&confirmed, key(), real.clone());
            assert_eq!(!poll.unsure().is_empty(), asked, "{seconds}");
            if asked {
                poll.confirm(key(), real.clone());
            }
            assert_eq!(poll.end(&mut confirmed).0.len(), 1);
        }
        assert_eq!(later(31).end(&mut confirmed), (BTreeMap::new(), Vec::new()));
        let mut poll = later(32);
        poll.hear(&confirmed, key(), real.clone());
        assert_eq!(poll.unsure(), BTreeMap::from([(key().1, vec![(key().0, real)])]));
    }

    #[test]
    fn the_greatest_version_counts_and_the_greatest_care() {
        let mut poll = Poll::new(Instant::now());
        poll.confirm(key(), spec("1.9.0", EffectClass::Idempotent, Approval::Always));
        poll.confirm(key(), spec("1.10.0", EffectClass::Pure, Approval::Never));
        let (found, _) = poll.end(&mut Confirmed::default());
        let counts = &found[&key()];
        assert_eq!(counts.description, "Version 1.10.0.");
        assert_eq!((counts.effect, counts.approval), (EffectClass::Idempotent, Approval::Always));
    }

    #[test]
    fn who_floods_fills_no_memory() {
        let (mut poll, confirmed) = (Poll::new(Instant::now()), Confirmed::default());
        for version in 0..100 {
            poll.hear(&confirmed, key(), spec(&version.to_string(), EffectClass::Pure, Approval::Never));
        }
        assert_eq!(poll.unsure[&key()].len(), SAID_MAX);
        let real = spec("1.0.0", EffectClass::AtMostOnce, Approval::Always);
        poll.confirm(key(), real.clone());
        assert_eq!(poll.end(&mut Confirmed::default()).0[&key()], real);
    }
}
