//! Fair queue of all requests: each request has a cost, few run at once, and the caller that has used the least goes
//! next, first by the holder of the credential, or by address where many show the same, then by connection.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::{ErrorCode, TenantId};
use tokio::sync::oneshot;

use crate::api_error::ApiError;

/// Total cost of the requests that run at once.
pub(crate) const CAPACITY: u32 = 128;
/// Longest wait of a request before it is refused as `overloaded`.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);
/// Maximum number of waiting requests of one connection.
pub(crate) const WAITING_MAX: usize = 1_024;
/// Retry delay for a client whose request was refused.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Party that shares capacity with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FlowOwner {
    /// A client whose credential names nobody, or that has none.
    Address(IpAddr),
    /// The holder of a credential, wherever the requests come from.
    Holder { tenant: TenantId, subject: String },
}

/// The owner and connection of a request, among which capacity is shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) owner: FlowOwner,
    pub(crate) connection: u64,
}

/// Cost of a request: about the number of requests to the bus that it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestCost {
    /// Answered from memory, or with one request to the bus.
    Light,
    /// A command, which makes some requests to the bus.
    Command,
    /// Reads a page of a log, or a stored result.
    Read,
    /// Reads a whole log, or the whole index from its bucket.
    Scan,
}

impl RequestCost {
    /// Returns the units of [`CAPACITY`] that a request takes.
    pub(crate) const fn units(self) -> u32 {
        match self {
            Self::Light => 1,
            Self::Command => 2,
            Self::Read => 4,
            Self::Scan => 16,
        }
    }
}

/// The queue of one edge. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct FairQueue {
    state: Arc<Mutex<State>>,
}

/// The right of a request to run, until it is dropped.
#[derive(Debug)]
pub struct RequestPermit {
    queue: FairQueue,
    units: u32,
}

#[derive(Debug)]
struct State {
    free: u32,
    /// Units that a new owner counts as having used, so that it neither waits for the others nor overtakes them for
    /// long.
    clock: u64,
    owners: Vec<OwnerQueue>,
}

/// The waiting requests of one owner.
#[derive(Debug)]
struct OwnerQueue {
    owner: FlowOwner,
    /// Units that the owner has used.
    served: u64,
    /// As [`State::clock`], among the connections of the owner.
    clock: u64,
    connections: Vec<ConnectionQueue>,
}

/// The waiting requests of one connection.
#[derive(Debug)]
struct ConnectionQueue {
    connection: u64,
    served: u64,
    /// At most [`WAITING_MAX`]. An abandoned request stays until it would run, or until there is no room.
    waiting: VecDeque<Waiter>,
}

/// A request that waits for its permit.
#[derive(Debug)]
struct Waiter {
    units: u32,
    grant: oneshot::Sender<RequestPermit>,
}

impl Default for FairQueue {
    fn default() -> Self {
        Self::new(CAPACITY)
    }
}

impl FairQueue {
    /// Creates a queue that lets requests of so many units run at once.
    pub(crate) fn new(capacity: u32) -> Self {
        Self { state: Arc::new(Mutex::new(State { free: capacity, clock: 0, owners: Vec::new() })) }
    }

    /// Waits until a request may run.
    pub(crate) async fn acquire(&self, flow: &Flow, cost: RequestCost) -> Result<RequestPermit, ApiError> {
        let (grant, granted) = oneshot::channel();
        let is_queued = self.lock().enqueue(flow, Waiter { units: cost.units(), grant });
        if !is_queued {
            let message = format!("{WAITING_MAX} requests of this connection wait already: send fewer at once");
            return Err(ApiError::new(ErrorCode::Overloaded, message).with_retry_after(RETRY_AFTER));
        }
        self.grant_permits();
        if let Ok(Ok(permit)) = tokio::time::timeout(WAIT_MAX, granted).await {
            return Ok(permit);
        }
        let seconds = WAIT_MAX.as_secs();
        let message = format!("the edge is busy: the request waited {seconds} s; send fewer at once, or try again");
        Err(ApiError::new(ErrorCode::Overloaded, message).with_retry_after(RETRY_AFTER))
    }

    /// Grants permits as long as there is capacity.
    fn grant_permits(&self) {
        loop {
            let Some(Waiter { units, grant }) = self.lock().take_next() else { return };
            // The permit of an abandoned request returns its units here. Dropping it as usual would call this function
            // again.
            let refused = grant.send(RequestPermit { queue: self.clone(), units });
            if let Err(mut permit) = refused {
                let units = std::mem::take(&mut permit.units);
                self.lock().free += units;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        if self.units > 0 {
            self.queue.lock().free += self.units;
            self.queue.grant_permits();
        }
    }
}

impl State {
    /// Adds a request; `false` if too many of its connection wait.
    fn enqueue(&mut self, flow: &Flow, waiter: Waiter) -> bool {
        let clock = self.clock;
        let known = self.owners.iter().position(|entry| entry.owner == flow.owner);
        let owner = known.unwrap_or(self.owners.len());
        if known.is_none() {
            self.owners.push(OwnerQueue {
                owner: flow.owner.clone(),
                served: clock,
                clock: 0,
                connections: Vec::new(),
            });
        }
        let Some(owner) = self.owners.get_mut(owner) else { return false };
        if let Some(queue) = owner.connections.iter_mut().find(|queue| queue.connection == flow.connection) {
            if queue.waiting.len() >= WAITING_MAX {
                queue.waiting.retain(|waiter| !waiter.grant.is_closed());
            }
            if queue.waiting.len() >= WAITING_MAX {
                return false;
            }
            queue.waiting.push_back(waiter);
            return true;
        }
        let (connection, served) = (flow.connection, owner.clock);
        owner.connections.push(ConnectionQueue { connection, served, waiting: VecDeque::from([waiter]) });
        true
    }

    /// Takes the next request if there is capacity for it. A costly one is not overtaken, or it would never run.
    fn take_next(&mut self) -> Option<Waiter> {
        let at = find_least_served(&self.owners, |entry| entry.served)?;
        let owner = self.owners.get_mut(at)?;
        let inner = find_least_served(&owner.connections, |queue| queue.served)?;
        let queue = owner.connections.get_mut(inner)?;
        let units = queue.waiting.front()?.units;
        if units > self.free {
            return None;
        }
        let waiter = queue.waiting.pop_front()?;
        self.free -= units;
        (self.clock, owner.clock) = (owner.served, queue.served);
        owner.served += u64::from(units);
        queue.served += u64::from(units);
        if queue.waiting.is_empty() {
            owner.connections.swap_remove(inner);
        }
        if owner.connections.is_empty() {
            self.owners.swap_remove(at);
        }
        Some(waiter)
    }
}

fn find_least_served<T>(entries: &[T], served: impl Fn(&T) -> u64) -> Option<usize> {
    entries.iter().enumerate().min_by_key(|(_, entry)| served(entry)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use futures::stream::FuturesOrdered;
    use futures::{FutureExt, StreamExt};

    use super::*;

    fn flow(address: u8, connection: u64) -> Flow {
        Flow { owner: FlowOwner::Address(IpAddr::from([10, 0, 0, address])), connection }
    }

    fn flow_of(subject: &str, connection: u64) -> Flow {
        let (tenant, subject) = (TenantId::default(), subject.to_owned());
        Flow { owner: FlowOwner::Holder { tenant, subject }, connection }
    }

    /// Runs requests one at a time and returns their order; all wait before the first one runs.
    async fn order(calls: &[Flow]) -> Vec<Flow> {
        let queue = FairQueue::new(1);
        let blocker = queue.acquire(&flow(99, 0), RequestCost::Light).await.unwrap();
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        let mut waiting: Vec<_> = calls
            .iter()
            .map(|call| {
                let (queue, send, call) = (queue.clone(), send.clone(), call.clone());
                async move {
                    let permit = queue.acquire(&call, RequestCost::Light).await.unwrap();
                    send.send(call).unwrap();
                    drop(permit);
                }
                .boxed()
            })
            .collect();
        for call in &mut waiting {
            assert!(call.now_or_never().is_none(), "the blocker has the only unit");
        }
        drop((blocker, send));
        futures::future::join_all(waiting).await;
        let mut order = Vec::new();
        while let Some(call) = receive.recv().await {
            order.push(call);
        }
        order
    }

    #[tokio::test]
    async fn flooding_connection_does_not_delay_others_beyond_their_turn() {
        let (flood, own, other) = (flow(1, 1), flow(1, 2), flow(2, 3));
        let mut calls = vec![flood; 500];
        calls.extend([own.clone(), other.clone(), other.clone()]);
        let order = order(&calls).await;
        let place = |wanted: &Flow| order.iter().position(|call| call == wanted).unwrap();
        assert_eq!(order.len(), 503);
        assert!(place(&own) <= 4 && place(&other) <= 2, "{:?}", &order[..6]);
    }

    #[tokio::test]
    async fn flooding_holder_does_not_delay_another_one_on_the_same_connection() {
        let (flood, other) = (flow_of("flood", 1), flow_of("other", 1));
        let mut calls = vec![flood; 500];
        calls.extend([flow_of("flood", 2), other.clone()]);
        let order = order(&calls).await;
        let place = order.iter().position(|call| *call == other).unwrap();
        assert!(place <= 2, "a proxy has one connection for both: {place}");
    }

    #[tokio::test(start_paused = true)]
    async fn request_without_permit_in_time_is_refused_as_overloaded() {
        let queue = FairQueue::new(1);
        let blocker = queue.acquire(&flow(1, 1), RequestCost::Light).await.unwrap();
        let refused = queue.acquire(&flow(2, 2), RequestCost::Light).await.unwrap_err();
        assert_eq!((refused.code, refused.retry_after.is_some()), (ErrorCode::Overloaded, true));
        drop(blocker);
        queue.acquire(&flow(2, 2), RequestCost::Light).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_requests_make_room_for_later_ones() {
        let queue = FairQueue::new(1);
        let _blocker = queue.acquire(&flow(1, 1), RequestCost::Light).await.unwrap();
        for _ in 0..WAITING_MAX * 3 {
            assert!(
                queue.acquire(&flow(2, 2), RequestCost::Light).now_or_never().is_none(),
                "the request waits and is abandoned"
            );
        }
        let waiting = queue.lock().owners[0].connections[0].waiting.len();
        assert!(waiting <= WAITING_MAX, "{waiting}");
        let second = flow(2, 2);
        let mut held: Vec<_> = (0..WAITING_MAX).map(|_| queue.acquire(&second, RequestCost::Light).boxed()).collect();
        assert!(held.iter_mut().all(|call| call.now_or_never().is_none()));
        let refused = queue.acquire(&flow(2, 2), RequestCost::Light).now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.code, ErrorCode::Overloaded);
    }

    #[tokio::test]
    async fn costly_requests_run_less_often() {
        let queue = FairQueue::new(CAPACITY);
        let mut permits = Vec::new();
        let first = flow(1, 1);
        let mut scans: FuturesOrdered<_> = (0..20).map(|_| queue.acquire(&first, RequestCost::Scan)).collect();
        while let Some(Some(permit)) = scans.next().now_or_never() {
            permits.push(permit.unwrap());
        }
        assert_eq!(u32::try_from(permits.len()).unwrap(), CAPACITY / RequestCost::Scan.units());
        drop((permits, scans));
        assert_eq!(queue.lock().free, CAPACITY, "abandoned requests return their units");
    }
}
