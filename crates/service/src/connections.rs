//! Connections of one process: limits before and after their credentials were accepted, and a budget in bytes.
//!
//! A connection begins as pending. It stays pending until a request on it showed valid credentials. Pending connections
//! are few, and the oldest one makes room for a new one, so that silent peers cannot shut others out.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::limits::{
    CONNECTION_BYTES_MAX, CONNECTION_REQUESTS_PER_S, CONNECTIONS_MAX, HANDSHAKE_MAX, KEEP_ALIVE,
    PENDING_CONNECTIONS_MAX, PENDING_CONNECTIONS_PER_ADDRESS_MAX,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::pace::{Pace, Rate};

/// Burst of a client, in time at its rate: it may send half as many requests at once as in a second.
const BURST: Duration = Duration::from_millis(500);
/// Bytes of a request that count as one request more.
const BYTES_PER_REQUEST: u32 = 64 << 10;

/// Limits of the connections of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "connections")]
pub struct ConnectionLimits {
    /// Connections with accepted credentials, of all protocols together; 4 096.
    pub max: usize,
    /// Bytes that connections and what waits for their clients may take; 256 MiB.
    pub bytes_max: usize,
    /// Connections without accepted credentials; at one more the oldest one is closed. 256.
    pub pending_max: usize,
    /// Connections without accepted credentials from one address (IPv6: one /64 network); at one more the oldest one of
    /// it is closed. 64.
    pub pending_per_address_max: usize,
    /// Milliseconds until a connection must have shown valid credentials; 10 000.
    pub handshake_ms: u64,
    /// Milliseconds that an HTTP/1 connection with accepted credentials may be without a request, and that the head of
    /// a request may take on it; 75 000. A proxy must close its idle connections earlier, or it sends requests to
    /// closed ones.
    pub keep_alive_ms: u64,
    /// Requests of one client that are read each second in the long run, half as many of them at once; 200. Each 64 KiB
    /// count as one more. A client that asks faster is read more slowly; nothing is refused for it. A client is the
    /// holder of an API key or an access token on all of its connections, else one connection.
    pub requests_per_s: u32,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            max: CONNECTIONS_MAX,
            bytes_max: CONNECTION_BYTES_MAX,
            pending_max: PENDING_CONNECTIONS_MAX,
            pending_per_address_max: PENDING_CONNECTIONS_PER_ADDRESS_MAX,
            handshake_ms: u64::try_from(HANDSHAKE_MAX.as_millis()).unwrap_or(u64::MAX),
            keep_alive_ms: u64::try_from(KEEP_ALIVE.as_millis()).unwrap_or(u64::MAX),
            requests_per_s: CONNECTION_REQUESTS_PER_S,
        }
    }
}

impl ConnectionLimits {
    /// Time until a connection must have shown valid credentials.
    pub fn handshake(&self) -> Duration {
        Duration::from_millis(self.handshake_ms)
    }

    /// Time that an HTTP/1 connection may be without a request.
    pub(crate) fn keep_alive(&self) -> Duration {
        Duration::from_millis(self.keep_alive_ms)
    }

    /// Makes a pace for one client, which has sent nothing yet.
    pub fn new_pace(&self) -> Arc<Pace> {
        Arc::new(Pace::new(self.rate()))
    }

    /// Rate at which the requests of one client are read.
    fn rate(&self) -> Rate {
        let per_message = Duration::from_secs(1) / self.requests_per_s.max(1);
        Rate { per_message, bytes_per_message: BYTES_PER_REQUEST, burst: BURST.max(per_message) }
    }

    /// Refuses a limit of zero: nobody could connect. `section` is where the limits stand in the configuration.
    pub fn check(&self, section: &str) -> Result<(), String> {
        let Self { max, bytes_max, pending_max, pending_per_address_max, handshake_ms, keep_alive_ms, requests_per_s } =
            *self;
        let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let fields = [
            ("max", max),
            ("bytes_max", bytes_max),
            ("pending_max", pending_max),
            ("pending_per_address_max", pending_per_address_max),
            ("handshake_ms", whole(handshake_ms)),
            ("keep_alive_ms", whole(keep_alive_ms)),
            ("requests_per_s", whole(u64::from(requests_per_s))),
        ];
        match fields.iter().find(|(_, value)| *value == 0) {
            Some((field, _)) => Err(format!("{section}.{field} is 0, so that nobody could connect: give it a value")),
            None => Ok(()),
        }
    }
}

/// A budget of bytes that many share. Clones are the same budget.
#[derive(Debug, Clone)]
pub struct ByteBudget {
    max: usize,
    used: Arc<AtomicUsize>,
}

impl ByteBudget {
    /// A budget of so many bytes.
    pub fn new(max: usize) -> Self {
        Self { max, used: Arc::default() }
    }

    /// Takes bytes when the budget has them.
    pub fn take(&self, bytes: usize) -> bool {
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= self.max)
        });
        taken.is_ok()
    }

    /// Takes bytes whether or not the budget has them: for what must go on.
    pub fn take_anyway(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Gives bytes back that were taken.
    pub fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Whether it has so many bytes.
    pub fn has(&self, bytes: usize) -> bool {
        self.used.load(Ordering::Acquire).saturating_add(bytes) <= self.max
    }

    /// Takes bytes, which come back when what is returned is dropped; nothing where the budget does not have them.
    pub fn book(&self, bytes: usize) -> Option<BookedBytes> {
        self.take(bytes).then(|| BookedBytes { budget: self.clone(), bytes })
    }

    /// Bytes that connections hold now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// Bytes that it has in all.
    pub fn max(&self) -> usize {
        self.max
    }
}

/// Bytes that were taken from a budget, until this is dropped.
#[derive(Debug)]
pub struct BookedBytes {
    budget: ByteBudget,
    bytes: usize,
}

impl Drop for BookedBytes {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// Reason why a connection with valid credentials is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionRefusal {
    /// Too many connections are open.
    #[error("{0} connections are open already, which is the limit (edge.connections.max): close some, or try later")]
    TooMany(usize),
    /// The budget of bytes is used up.
    #[error(
        "connections use {used} of {max} bytes (edge.connections.bytes_max), and this one needs {needed}: try again later"
    )]
    Bytes {
        /// Bytes that connections hold now.
        used: usize,
        /// Bytes of the budget.
        max: usize,
        /// Bytes that the connection needs.
        needed: usize,
    },
}

/// The connections of one server. Clones are the same registry.
#[derive(Debug, Clone)]
pub struct Connections {
    inner: Arc<Registry>,
}

#[derive(Debug)]
struct Registry {
    limits: ConnectionLimits,
    budget: ByteBudget,
    state: Mutex<State>,
    released: Notify,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    /// Every connection, also those that were told to close and still have a descriptor.
    open: usize,
    accepted: usize,
    pending: BTreeMap<u64, Pending>,
    /// Pending connections of each address, the oldest first.
    by_address: HashMap<IpAddr, VecDeque<u64>>,
}

#[derive(Debug)]
struct Pending {
    address: IpAddr,
    evicted: CancellationToken,
}

/// An open connection. It leaves the registry when it is dropped.
#[derive(Debug)]
pub struct Connection {
    registry: Arc<Registry>,
    id: u64,
    address: IpAddr,
    protocol: &'static str,
    evicted: CancellationToken,
    /// Bytes that its transport takes beside those of its protocol.
    transport_bytes: usize,
    /// Bytes that it took from the budget; 0 while it is pending.
    bytes: AtomicUsize,
    pace: Arc<Pace>,
    refusals: Pace,
}

impl Connections {
    /// A registry without connections.
    pub fn new(limits: ConnectionLimits) -> Self {
        let (budget, state, released) = (ByteBudget::new(limits.bytes_max), Mutex::default(), Notify::new());
        Self { inner: Arc::new(Registry { limits, budget, state, released }) }
    }

    /// The limits that it enforces.
    pub fn limits(&self) -> ConnectionLimits {
        self.inner.limits
    }

    /// The budget that connections and what waits for their clients share.
    pub fn budget(&self) -> &ByteBudget {
        &self.inner.budget
    }

    /// Number of open connections, and the number of them without accepted credentials.
    pub fn count(&self) -> (usize, usize) {
        let state = self.inner.lock();
        (state.open, state.pending.len())
    }

    /// Waits until another connection may be opened. Those that were told to close hold a descriptor until they are
    /// gone.
    pub async fn room(&self) {
        let Registry { limits, released, .. } = &*self.inner;
        let open_max = limits.max.saturating_add(limits.pending_max.saturating_mul(2));
        loop {
            let next = released.notified();
            tokio::pin!(next);
            next.as_mut().enable();
            if self.inner.lock().open < open_max {
                return;
            }
            next.await;
        }
    }

    /// Adds a connection as pending. Where there are too many, the oldest pending one is told to close: first of the
    /// same address, then of the address that has most.
    pub fn open(&self, protocol: &'static str, peer: IpAddr) -> Arc<Connection> {
        self.open_with(protocol, peer, 0)
    }

    /// As [`Connections::open`], with bytes that its transport takes beside those of its protocol.
    pub(crate) fn open_with(&self, protocol: &'static str, peer: IpAddr, transport_bytes: usize) -> Arc<Connection> {
        let limits = &self.inner.limits;
        let address = network_of(peer);
        let evicted = CancellationToken::new();
        let mut state = self.inner.lock();
        if state.by_address.get(&address).is_some_and(|ids| ids.len() >= limits.pending_per_address_max) {
            state.evict(address);
        }
        if state.pending.len() >= limits.pending_max {
            state.evict_from_largest();
        }
        state.next_id += 1;
        let id = state.next_id;
        state.open += 1;
        state.pending.insert(id, Pending { address, evicted: evicted.clone() });
        state.by_address.entry(address).or_default().push_back(id);
        drop(state);
        let (registry, pace, refusals) = (self.inner.clone(), limits.new_pace(), Pace::new(limits.rate()));
        let bytes = AtomicUsize::new(0);
        Arc::new(Connection { registry, id, address, protocol, evicted, transport_bytes, bytes, pace, refusals })
    }

    /// Closes the oldest pending connection of the address that has most: the process has no descriptor left.
    pub fn evict_one(&self) {
        self.inner.lock().evict_from_largest();
    }
}

impl Connection {
    /// A number that no other connection of this server has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The peer's address (IPv6: its /64 network).
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The protocol of its listener, as metrics name it.
    pub fn protocol(&self) -> &'static str {
        self.protocol
    }

    /// Rate limiter of its requests, over all of its streams, for requests whose sender has none of its own.
    pub fn pace(&self) -> &Arc<Pace> {
        &self.pace
    }

    /// Rate limiter of the answers to requests with bad credentials. It is apart from [`Connection::pace`]: behind a
    /// proxy, other clients share the connection with one that guesses credentials.
    pub fn refusals(&self) -> &Pace {
        &self.refusals
    }

    /// Whether no request on it has shown valid credentials.
    pub fn is_pending(&self) -> bool {
        self.bytes.load(Ordering::Acquire) == 0
    }

    /// Cancelled when it must make room for another one; never once its credentials were accepted.
    pub fn evicted(&self) -> &CancellationToken {
        &self.evicted
    }

    /// Notes that valid credentials were shown, and takes its bytes from the budget. Doing it again changes nothing.
    pub fn accept(&self, bytes: usize) -> Result<(), ConnectionRefusal> {
        let Registry { limits, budget, .. } = &*self.registry;
        let bytes = bytes.saturating_add(self.transport_bytes);
        let mut state = self.registry.lock();
        if !self.is_pending() {
            return Ok(());
        }
        if state.accepted >= limits.max {
            return Err(ConnectionRefusal::TooMany(limits.max));
        }
        if !budget.take(bytes) {
            return Err(ConnectionRefusal::Bytes { used: budget.used(), max: budget.max(), needed: bytes });
        }
        state.accepted += 1;
        state.forget_pending(self.id);
        self.bytes.store(bytes.max(1), Ordering::Release);
        drop(state);
        telemetry::metric::connections(self.protocol, 1);
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let bytes = self.bytes.load(Ordering::Acquire);
        let mut state = self.registry.lock();
        state.open = state.open.saturating_sub(1);
        if bytes > 0 {
            state.accepted = state.accepted.saturating_sub(1);
        } else {
            state.forget_pending(self.id);
        }
        drop(state);
        if bytes > 0 {
            self.registry.budget.give_back(bytes);
            telemetry::metric::connections(self.protocol, -1);
        }
        self.registry.released.notify_waiters();
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn evict(&mut self, address: IpAddr) {
        let oldest = self.by_address.get(&address).and_then(|ids| ids.front()).copied();
        if let Some(pending) = oldest.and_then(|id| self.forget_pending(id)) {
            pending.evicted.cancel();
        }
    }

    fn evict_from_largest(&mut self) {
        let largest = self.by_address.iter().max_by_key(|(_, ids)| ids.len()).map(|(address, _)| *address);
        if let Some(address) = largest {
            self.evict(address);
        }
    }

    fn forget_pending(&mut self, id: u64) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        if let Some(ids) = self.by_address.get_mut(&pending.address) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_address.remove(&pending.address);
            }
        }
        Some(pending)
    }
}

/// An IPv4 address as it is; of an IPv6 address its /64 network, since one host has all of that.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use super::*;

    fn connections(limits: ConnectionLimits) -> Connections {
        Connections::new(limits)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn pending_over_limit_of_one_address_oldest_of_that_address_is_closed() {
        let all = connections(ConnectionLimits { pending_per_address_max: 2, ..ConnectionLimits::default() });
        let other = all.open("ws", address("10.0.0.1"));
        // One IPv6 network counts as one address.
        let open = ["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(|text| all.open("ws", address(text)));
        assert_eq!(open.each_ref().map(|one| one.evicted().is_cancelled()), [true, false, false]);
        assert!(!other.evicted().is_cancelled());
        drop(open);
        assert_eq!(all.count(), (1, 1));
    }

    #[test]
    fn pending_over_limit_of_all_oldest_of_largest_address_is_closed() {
        let all = connections(ConnectionLimits { pending_max: 3, ..ConnectionLimits::default() });
        let first = all.open("ws", address("10.0.0.1"));
        let flood = [(); 3].map(|()| all.open("ws", address("10.0.0.2")));
        assert!(!first.evicted().is_cancelled(), "one silent address does not push others out");
        assert_eq!(flood.each_ref().map(|one| one.evicted().is_cancelled()), [true, false, false]);
    }

    #[test]
    fn accepted_connections_are_bounded_in_number_and_bytes_and_never_evicted() {
        let limits = ConnectionLimits { max: 2, bytes_max: 100, pending_max: 1, ..ConnectionLimits::default() };
        let all = connections(limits);
        let one = all.open("ws", address("10.0.0.1"));
        one.accept(60).unwrap();
        one.accept(60).unwrap();
        assert_eq!(all.budget().used(), 60, "a second request on it costs nothing");
        let two = all.open("grpc", address("10.0.0.1"));
        assert_eq!(two.accept(60), Err(ConnectionRefusal::Bytes { used: 60, max: 100, needed: 60 }));
        two.accept(40).unwrap();
        let three = all.open("grpc", address("10.0.0.1"));
        assert_eq!(three.accept(1), Err(ConnectionRefusal::TooMany(2)));
        assert_eq!([&one, &two, &three].map(|one| one.evicted().is_cancelled()), [false; 3]);
        drop(one);
        three.accept(60).unwrap();
        drop((two, three));
        assert_eq!((all.count(), all.budget().used()), ((0, 0), 0));
    }

    #[test]
    fn limit_of_zero_is_refused_by_name() {
        assert_eq!(ConnectionLimits::default().check("edge.connections"), Ok(()));
        let none = ConnectionLimits { pending_max: 0, ..ConnectionLimits::default() };
        assert!(none.check("edge.connections").unwrap_err().contains("edge.connections.pending_max"));
    }
}
