//! A proxy between a process and the nats-servers: it forwards messages, records them, and stops at the one at which a
//! fault is to be injected.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use contract::subject;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::chaos::frame::Frame;
use crate::chaos::step::{Direction, Moment, Step};

/// Mode in which a proxy treats the messages of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Forwards messages at once.
    Open,
    /// Forwards one message after the other, each after this delay.
    Slow(Duration),
    /// Forwards nothing and keeps the connection open.
    Silent,
    /// Closes connections and refuses new ones.
    Closed,
}

/// The point at which a fault is injected: a step of one session.
pub(crate) struct FaultPoint {
    pub(crate) step: &'static Step,
    pub(crate) session: String,
}

/// The message of a [`FaultPoint`] was reached, and all links of its process are silent.
#[derive(Debug)]
pub(crate) struct FaultReached {
    /// Number of the replica within its service, from 0.
    pub(crate) number: usize,
    pub(crate) at: SystemTime,
}

/// Messages that the proxies of a fleet have observed, and the next fault point.
#[derive(Default)]
pub(crate) struct ObservedTraffic {
    armed: Mutex<Option<ArmedFault>>,
    /// Time at which an input was acknowledged by its sender's server as stored, or answered as being in the log, by
    /// session and the subject of the stored input.
    stored: Mutex<BTreeMap<String, BTreeMap<String, SystemTime>>>,
    /// Times at which gateways checked whether a reply is stored, by its subject.
    checks: Mutex<BTreeMap<String, Vec<SystemTime>>>,
}

struct ArmedFault {
    point: FaultPoint,
    count: u32,
    fire: oneshot::Sender<FaultReached>,
}

/// The proxy of one process.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    _links: JoinSet<()>,
}

struct Shared {
    service: &'static str,
    number: usize,
    traffic: Arc<ObservedTraffic>,
    /// Mode of the link to each server.
    modes: Vec<watch::Sender<Mode>>,
    held: Mutex<HeldItems>,
}

/// Items and pending sends of a process.
#[derive(Default)]
struct HeldItems {
    /// Subjects of held items, and of results that were sent by request, by the subject of the ack or answer.
    items: BTreeMap<String, String>,
    /// Subjects of sent inputs by their reply subject.
    sent: BTreeMap<String, String>,
    /// Items held since [`Proxy::start_recording`].
    since: Option<BTreeSet<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ObservedTraffic {
    /// Sets the next fault point; the receiver fires once, when it is reached.
    pub(crate) fn arm(&self, point: FaultPoint) -> oneshot::Receiver<FaultReached> {
        let (fire, reached) = oneshot::channel();
        *lock(&self.armed) = Some(ArmedFault { point, count: 0, fire });
        reached
    }

    /// Subjects of inputs that the server acknowledged as stored, with the time.
    pub(crate) fn stored(&self, session: &str) -> Vec<(String, SystemTime)> {
        let stored = lock(&self.stored);
        stored.get(session).into_iter().flatten().map(|(subject, at)| (subject.clone(), *at)).collect()
    }

    /// Returns the times at which gateways checked whether the reply of this subject is stored.
    pub(crate) fn checks(&self, subject: &str) -> Vec<SystemTime> {
        lock(&self.checks).get(subject).cloned().unwrap_or_default()
    }

    fn match_fault(
        &self,
        process: &Shared,
        direction: Direction,
        name: &str,
        frame: &Frame,
    ) -> Option<(Moment, oneshot::Sender<FaultReached>)> {
        let mut slot = lock(&self.armed);
        let armed = slot.as_mut()?;
        let step = armed.point.step;
        let begins = step.message.replace("{s}", &armed.point.session);
        let fits = process.service == step.service
            && direction == step.direction
            && name.starts_with(&begins)
            && (!step.by_body || frame.holds(&armed.point.session));
        if !fits {
            return None;
        }
        armed.count += 1;
        if armed.count < step.nth {
            return None;
        }
        slot.take().map(|armed| (step.moment, armed.fire))
    }
}

impl Proxy {
    /// Starts the proxy of one replica, with a link to each server.
    pub(crate) async fn start(
        service: &'static str,
        number: usize,
        servers: &[String],
        traffic: &Arc<ObservedTraffic>,
    ) -> anyhow::Result<Self> {
        let modes = servers.iter().map(|_| watch::Sender::new(Mode::Open)).collect();
        let shared = Arc::new(Shared { service, number, traffic: traffic.clone(), modes, held: Mutex::default() });
        let (mut addresses, mut links) = (Vec::new(), JoinSet::new());
        for (n, server) in servers.iter().enumerate() {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            addresses.push(listener.local_addr()?);
            links.spawn(serve(shared.clone(), n, listener, server.trim_start_matches("nats://").to_owned()));
        }
        Ok(Self { shared, addresses, _links: links })
    }

    /// The URLs that the process connects to.
    pub(crate) fn url(&self) -> String {
        self.addresses.iter().map(|address| format!("nats://{address}")).collect::<Vec<_>>().join(",")
    }

    /// Sets the mode of all links.
    pub(crate) fn set(&self, mode: Mode) {
        for link in 0..self.shared.modes.len() {
            self.set_link(link, mode);
        }
    }

    /// Sets the mode of the link to one server.
    pub(crate) fn set_link(&self, server: usize, mode: Mode) {
        self.shared.modes[server].send_replace(mode);
    }

    /// Whether the process holds an item of a session.
    pub(crate) fn holds_item_of(&self, session: &str) -> bool {
        lock(&self.shared.held).items.values().any(|item| belongs_to(item, session))
    }

    /// Begins to record the items that the process holds.
    pub(crate) fn start_recording(&self) {
        let mut held = lock(&self.shared.held);
        held.since = Some(held.items.values().cloned().collect());
    }

    /// Subjects of the items that the process held since [`Proxy::start_recording`]: subjects.
    pub(crate) fn take_recorded(&self) -> BTreeSet<String> {
        lock(&self.shared.held).since.take().unwrap_or_default()
    }
}

impl Shared {
    fn silence(&self) {
        for mode in &self.modes {
            mode.send_if_modified(|mode| {
                let opens = matches!(mode, Mode::Open | Mode::Slow(_));
                if opens {
                    *mode = Mode::Silent;
                }
                opens
            });
        }
    }

    /// Records a message; returns its name as steps use it.
    fn record(&self, direction: Direction, frame: &Frame) -> String {
        let mut held = lock(&self.held);
        let held = &mut *held;
        match direction {
            Direction::Out if frame.subject.starts_with("$JS.ACK.") => {
                let done = frame.payload().starts_with(b"+ACK");
                if !done && !frame.payload().starts_with(b"-NAK") {
                    return String::new();
                }
                let item = held.items.remove(&frame.subject).unwrap_or_default();
                if done { format!("ack {item}") } else { String::new() }
            }
            Direction::Out => {
                if let Some(result) = held.items.remove(&frame.subject) {
                    return format!("answer {result}");
                }
                if let Some(subject) = checked_reply(frame) {
                    lock(&self.traffic.checks).entry(subject).or_default().push(SystemTime::now());
                }
                let by_request = subject::parse_result(&frame.subject);
                let input = match by_request {
                    Some(result) => Some(subject::control(&result.key, result.verb, &result.id).to_string()),
                    None => frame.subject.starts_with("ai_loop.control.").then(|| frame.subject.clone()),
                };
                if let (Some(reply), Some(input)) = (&frame.reply, input) {
                    held.sent.insert(reply.clone(), input);
                }
                frame.subject.clone()
            }
            Direction::In => {
                if let Some(sent) = held.sent.remove(&frame.subject) {
                    let is_stored = frame.holds("\"seq\"") && !frame.holds("\"error\"");
                    if (is_stored || frame.payload().starts_with(b"\"in_log\""))
                        && let Some(key) = subject::parse_control_key(&sent)
                    {
                        let mut stored = lock(&self.traffic.stored);
                        let of_session = stored.entry(key.session.to_string()).or_default();
                        of_session.entry(sent).or_insert_with(SystemTime::now);
                    }
                } else if let Some(reply) = &frame.reply
                    && (reply.starts_with("$JS.ACK.") || subject::parse_result(&frame.subject).is_some())
                {
                    held.items.insert(reply.clone(), frame.subject.clone());
                    if let Some(since) = &mut held.since {
                        since.insert(frame.subject.clone());
                    }
                }
                frame.subject.clone()
            }
        }
    }
}

/// Whether an item belongs to a session.
pub(crate) fn belongs_to(item: &str, session: &str) -> bool {
    let key = subject::parse_control_key(item)
        .or_else(|| subject::parse_result(item).map(|result| result.key))
        .or_else(|| subject::parse_item(item).map(|item| item.key))
        .or_else(|| subject::parse_timer(item));
    key.is_some_and(|key| key.session.as_str() == session)
}

/// The subject of the reply whose presence a gateway checks.
fn checked_reply(frame: &Frame) -> Option<String> {
    if !frame.subject.starts_with("$JS.API.STREAM.MSG.GET.") {
        return None;
    }
    let body = String::from_utf8_lossy(frame.payload());
    let subject = &body[body.find("ai_loop.control.model_finished.")?..];
    Some(subject.split('"').next().unwrap_or_default().to_owned())
}

async fn serve(shared: Arc<Shared>, server: usize, listener: TcpListener, upstream: String) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                connections.spawn(connection(shared.clone(), server, client, upstream.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection, until either end disconnects or the link is closed.
async fn connection(shared: Arc<Shared>, server: usize, client: TcpStream, upstream: String) {
    let mut mode = shared.modes[server].subscribe();
    if *mode.borrow_and_update() == Mode::Closed {
        return;
    }
    let Ok(upstream) = TcpStream::connect(&upstream).await else { return };
    let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), upstream.into_split());
    // Messages are read and recorded at once, even in silent mode. The limits of the process bound the queue.
    let ((sent, to_pass), (came, to_take)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let (mut pumps, mut from_server_task) = (JoinSet::new(), JoinSet::new());
    pumps.spawn(reading(shared.clone(), Direction::Out, from_client, sent));
    pumps.spawn(writing(shared.clone(), server, to_pass, to_server));
    pumps.spawn(writing(shared.clone(), server, to_take, to_client));
    from_server_task.spawn(reading(shared.clone(), Direction::In, from_server, came));
    let closed = async {
        // The sender lives as long as the proxy.
        let _ = mode.wait_for(|mode| *mode == Mode::Closed).await;
    };
    tokio::select! {
        _ = pumps.join_next() => {}
        _ = from_server_task.join_next() => {}
        () = closed => {}
    }
    // What the server has sent before it noticed the disconnect counts as delivered.
    pumps.shutdown().await;
    let _ = tokio::time::timeout(REMAINDER_MAX, from_server_task.join_next()).await;
}

/// For how long the remaining messages of a server are read after its connection was closed.
const REMAINDER_MAX: Duration = Duration::from_secs(1);

type Passing = (Frame, Option<(Moment, oneshot::Sender<FaultReached>)>);

async fn reading(shared: Arc<Shared>, direction: Direction, from: OwnedReadHalf, read: mpsc::UnboundedSender<Passing>) {
    let mut from = BufReader::new(from);
    while let Ok(Some(frame)) = Frame::read(&mut from).await {
        let name = shared.record(direction, &frame);
        let match_fault = shared.traffic.match_fault(&shared, direction, &name, &frame);
        // The receiver may be gone at the end of a connection; the message is recorded.
        let _ = read.send((frame, match_fault));
    }
}

async fn writing(
    shared: Arc<Shared>,
    server: usize,
    mut passes: mpsc::UnboundedReceiver<Passing>,
    mut to: OwnedWriteHalf,
) {
    let mut mode = shared.modes[server].subscribe();
    while let Some((frame, match_fault)) = passes.recv().await {
        let mut has_passed = false;
        if let Some((moment, fire)) = match_fault {
            shared.silence();
            has_passed = moment == Moment::After;
            if has_passed && to.write_all(&frame.bytes).await.is_err() {
                return;
            }
            // The receiver may have timed out.
            let _ = fire.send(FaultReached { number: shared.number, at: SystemTime::now() });
        }
        let now = mode.wait_for(|mode| *mode != Mode::Silent).await.map(|mode| *mode);
        match now {
            Ok(Mode::Slow(each)) => tokio::time::sleep(each).await,
            Ok(Mode::Open) => {}
            Ok(Mode::Silent | Mode::Closed) | Err(_) => return,
        }
        if !has_passed && to.write_all(&frame.bytes).await.is_err() {
            return;
        }
    }
}
