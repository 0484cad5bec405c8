//! The permits of a worker: they are shared by tenant, and among the items of a tenant by the tool, model or session
//! that they need, so that no hanging or flooding one takes them all.
//!
//! The rule follows the dynamic thresholds of shared buffers in network switches: a share gets one more permit while it
//! holds fewer than a multiple of the free ones. It does not depend on the number of shares: a single tenant gets most
//! permits, the rest is a reserve for newcomers, and the shares level out as permits are given back.

use std::collections::{BTreeMap, BTreeSet};

use contract::streams::Queue;
use contract::subject;
use contract::tool::header;

use crate::Delivery;
use crate::transport::header;

/// A tenant may hold fewer than this multiple of the free permits: alone 8 of 9, two of them 8 of 17 each.
const TENANT_FACTOR: usize = 8;
/// One tool, model or session may hold fewer than this multiple of the free permits: alone 4 of 5.
const RESOURCE_FACTOR: usize = 4;
/// Shares that metrics name; those that are seen later are counted together.
const LABELS_MAX: usize = 64;
/// Label of their common metrics.
const OTHER: &str = "other";

/// Key by which permits are shared: a tenant, and the tool, model or session that the item needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Share {
    pub(super) tenant: String,
    pub(super) resource: String,
}

impl Share {
    /// The share of an item. All items with an invalid subject have one share.
    pub(super) fn of(queue: Queue, delivery: &Delivery) -> Self {
        let read = match queue {
            Queue::Model | Queue::Tool => subject::parse_item(&delivery.subject).map(|item| {
                let model = || header(&delivery.headers, header::MODEL).unwrap_or_default().to_owned();
                (item.key.tenant, item.tool.map_or_else(model, |tool| tool.to_string()))
            }),
            Queue::Inputs => {
                subject::parse_control_key(&delivery.subject).map(|key| (key.tenant, key.session.to_string()))
            }
            Queue::Timers => subject::parse_timer(&delivery.subject).map(|key| (key.tenant, key.session.to_string())),
        };
        let (tenant, resource) = read.map(|(tenant, resource)| (tenant.to_string(), resource)).unwrap_or_default();
        Self { tenant, resource }
    }
}

/// The permits of one worker, and the shares that hold them.
#[derive(Debug)]
pub(super) struct Places {
    free: usize,
    tenants: BTreeMap<String, usize>,
    shares: BTreeMap<Share, usize>,
    queue: Queue,
    /// The shares that metrics name: the first ones, so that the number of time series is bounded.
    named: BTreeSet<Share>,
}

impl Places {
    pub(super) fn new(queue: Queue, places: usize) -> Self {
        Self { free: places, tenants: BTreeMap::new(), shares: BTreeMap::new(), queue, named: BTreeSet::new() }
    }

    /// Number of free permits.
    pub(super) fn free(&self) -> usize {
        self.free
    }

    /// Whether a share may have one more permit.
    pub(super) fn admits(&self, share: &Share) -> bool {
        let (tenant, resource) = self.held(share);
        tenant < TENANT_FACTOR * self.free && resource < RESOURCE_FACTOR * self.free
    }

    /// Places that the share's tenant holds, and that the share itself holds. The share with fewer comes first.
    pub(super) fn held(&self, share: &Share) -> (usize, usize) {
        let tenant = self.tenants.get(&share.tenant).copied().unwrap_or_default();
        (tenant, self.shares.get(share).copied().unwrap_or_default())
    }

    /// Gives a permit to a share that [`Places::admits`].
    pub(super) fn take(&mut self, share: &Share) {
        self.free = self.free.saturating_sub(1);
        *self.tenants.entry(share.tenant.clone()).or_default() += 1;
        *self.shares.entry(share.clone()).or_default() += 1;
        self.count(share, 1);
    }

    /// Takes back a permit of a share.
    pub(super) fn give_back(&mut self, share: &Share) {
        self.free += 1;
        less(&mut self.tenants, &share.tenant);
        less(&mut self.shares, share);
        self.count(share, -1);
    }

    /// Counts the permits of a share in the metrics.
    fn count(&mut self, share: &Share, delta: i64) {
        // A session is never a label.
        let resource = match self.queue {
            Queue::Model | Queue::Tool => share.resource.as_str(),
            Queue::Inputs | Queue::Timers => "",
        };
        let label = Share { tenant: share.tenant.clone(), resource: resource.to_owned() };
        let named = self.named.contains(&label) || (self.named.len() < LABELS_MAX && self.named.insert(label));
        let (tenant, resource) = if named { (share.tenant.as_str(), resource) } else { (OTHER, OTHER) };
        telemetry::metric::places_held(self.queue.durable(), tenant, resource, delta);
    }
}

fn less<K: Ord>(held: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = held.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            held.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(tenant: &str, resource: &str) -> Share {
        Share { tenant: tenant.to_owned(), resource: resource.to_owned() }
    }

    /// Gives a share as many permits as it may have, and returns their number.
    fn fill(places: &mut Places, share: &Share) -> usize {
        let mut count = 0;
        while places.admits(share) {
            places.take(share);
            count += 1;
        }
        count
    }

    #[test]
    fn share_alone_gets_most_places_and_newcomers_the_rest() {
        // places, one tool alone, a second tool of its tenant, a second tenant
        for (all, alone, second, other) in
            [(1, 1, 0, 0), (4, 4, 0, 0), (5, 4, 1, 0), (64, 52, 5, 6), (512, 410, 46, 45)]
        {
            let mut places = Places::new(Queue::Tool, all);
            let found = [("a", "x"), ("a", "y"), ("b", "x")].map(|(t, r)| fill(&mut places, &share(t, r)));
            assert_eq!(found, [alone, second, other], "of {all}");
        }
    }

    #[test]
    fn share_over_its_part_gets_nothing_until_places_level_out() {
        let mut places = Places::new(Queue::Tool, 64);
        let (one, two) = (share("a", "x"), share("b", "x"));
        let had = fill(&mut places, &one);
        fill(&mut places, &two);
        for _ in 0..had / 4 {
            places.give_back(&one);
            assert!(!places.admits(&one) || places.held(&one).0 < 8 * places.free());
            fill(&mut places, &two);
        }
        assert!(places.held(&two).0 > had / 4, "{:?}", places.held(&two));
        while places.held(&one).0 > 0 {
            places.give_back(&one);
        }
        while places.held(&two).0 > 0 {
            places.give_back(&two);
        }
        assert_eq!((places.free(), places.tenants.len(), places.shares.len()), (64, 0, 0));
    }
}
